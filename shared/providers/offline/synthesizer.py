"""The synthesizer's part: results merged with their markers kept, what is said twice said
once, contradictions named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from handoff_queue.shared.providers.offline.conversation import Conversation, KnownClaim
from handoff_queue.shared.providers.offline.sentences import words_of
from handoff_queue.shared.providers.offline.statements import gaps_in, marked, not_found
from handoff_queue.shared.providers.offline.topic import similar

_SAME_SUBJECT = 0.5
"""Share of words from which two claims speak of the same thing, and must agree."""
_NEGATIONS = frozenset(
    [
        "not",
        "no",
        "never",
        "cannot",
        "without",
        "neither",
        "nor",
        "doesn't",
        "isn't",
        "can't",
        "don't",
        "lacks",
    ]
)


def envelope(conversation: Conversation) -> dict[str, Any]:
    """The answer envelope, with `output` as Markdown."""
    claims = [claim for result in conversation.results for claim in result.claims]
    conflicts = _conflicts(claims)
    missing = [
        result.step
        for result in conversation.results
        if result.status == "failed" or not result.text.strip()
    ]
    return {
        "status": "ok" if claims else "partial",
        "output": _merged(conversation, conflicts, missing),
        "claims": [],
        "confidence": 0.0
        if not claims
        else round(max(0.3, 0.9 - 0.2 * len(conflicts) - 0.2 * len(missing)), 2),
        "needs": None if claims else "results with claims",
        "problem": None,
    }


def _merged(
    conversation: Conversation, conflicts: list[tuple[KnownClaim, KnownClaim]], missing: list[str]
) -> str:
    said: set[str] = set()
    parts = []
    gaps: list[str] = []
    for result in conversation.results:
        if result.step in missing:
            continue
        gaps += gaps_in(result.text)
        text = (
            result.text
            if isinstance(result.output, str)
            else " ".join(marked(claim.text, claim.id) for claim in result.claims)
        )
        parts.append(_without_repeats(_qualified(text, result.step), said))
    if conflicts:
        pairs = [
            f"- {marked(one.text, one.id)} But: {marked(other.text, other.id)}"
            for one, other in conflicts
        ]
        parts.append("\n".join(["## Where the sources disagree", "", *pairs]))
    gaps += [f"the result of {step}" for step in missing]
    named = [not_found(list(dict.fromkeys(gaps)))] if gaps else []
    return "\n\n".join(part for part in [*parts, *named] if part.strip())


def _qualified(text: str, step: str) -> str:
    return re.sub(r"\[(c[0-9]{1,4})\]", rf"[{step}.\1]", text)


def _without_repeats(text: str, said: set[str]) -> str:
    """A text without the lines that an earlier one has said, the gaps (named once, at the end)
    and headings left empty.
    """
    kept: list[str] = []
    for line in text.splitlines():
        key = " ".join(words_of(re.sub(r"\[[^\]]*\]", "", line)))
        is_statement = bool(key) and not line.lstrip().startswith(("#", "|"))
        if (is_statement and key in said) or gaps_in(line):
            continue
        said |= {key} if is_statement else set()
        kept.append(line)
    return _without_empty_sections(re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip())


def _without_empty_sections(text: str) -> str:
    return re.sub(r"^(#{2,6}) [^\n]*\n+(?=\1 |\Z)", "", text + "\n", flags=re.MULTILINE).strip()


def _conflicts(claims: Sequence[KnownClaim]) -> list[tuple[KnownClaim, KnownClaim]]:
    """Pairs from different sources that speak of the same thing, with other numbers or the
    other way round.
    """
    return [
        (one, other)
        for one, other in combinations(claims, 2)
        if one.source != other.source and _disagree(one.text, other.text)
    ]


def _disagree(one: str, other: str) -> bool:
    if similar(one, other) < _SAME_SUBJECT:
        return False
    numbers = [set(re.findall(r"(?<![\w.])\d[\d.,]*\b", text)) for text in (one, other)]
    negated = [bool(_NEGATIONS & set(words_of(text))) for text in (one, other)]
    return negated[0] != negated[1] or bool(
        numbers[0] and numbers[1] and not numbers[0] & numbers[1]
    )
