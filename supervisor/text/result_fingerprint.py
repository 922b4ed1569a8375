"""Fingerprint of a result: its content in the forms in which results are compared. Pure.

Words that can reverse a statement are part of the fingerprint: figures, names, negations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cached_property

from handoff_queue.shared.types.citation_markers import MARKER
from handoff_queue.shared.types.handoff import Claim, HandoffResult
from handoff_queue.supervisor.text.claim_subject import ClaimSubject, is_same, matter_of
from handoff_queue.supervisor.text.task_similarity import find_names, stems_in

SHINGLE = 4
"""Words of a shingle, which is a run of consecutive words."""
_SENTENCE_END = re.compile(r"[.!?;](?=\s|$)|\n")
_ROUND_A_WORD = "\"'“”‘’`*_()[]{},:;.!?|#"
_ARTICLES = frozenset(("", "a", "an", "the"))
_NOT = re.compile(r"(?<=\w)n['’]t\b|(?<=can)not\b", re.IGNORECASE)
_LETTERS = re.compile(r"[^\W\d_]+")
_TURNS = frozenset(
    (
        "no not nor never none neither without except unless if only all any some every both more most less least must may might should "
        "can could will would was were had nicht kein keine keinen keinem keiner keines nie ohne"
    ).split()
)
_RELATIONS = frozenset("than from to into by before after as behind".split())
"""Words that relate two things, which cannot change places."""


class ResultFingerprint:
    """The content of a result in several forms. Each form is computed once, at its first use."""

    def __init__(self, result: HandoffResult) -> None:
        self.claims = result.claims
        if isinstance(result.output, str):
            output = result.output
        else:
            output = json.dumps(result.output, ensure_ascii=False)
        self.text = MARKER.sub(" ", output)
        """Text of the output without citation markers, because markers name the step."""

    @cached_property
    def shingles(self) -> frozenset[tuple[str, ...]]:
        """Return the shingles of the text."""
        words = re.findall(r"\w+", self.text.casefold())
        return frozenset(zip(*(words[start:] for start in range(SHINGLE)), strict=False))

    @cached_property
    def sentences(self) -> frozenset[tuple[str, ...]]:
        """Return the words of each sentence in order, without articles."""
        return frozenset(filter(None, map(_words, _SENTENCE_END.split(self.text.casefold()))))

    @cached_property
    def whole(self) -> str:
        """Return the text together with the texts of its claims."""
        return "\n".join([self.text, *(claim.text for claim in self.claims)])

    @cached_property
    def marks(self) -> frozenset[str]:
        """Return the names and figures, and the words that can reverse a statement."""
        return find_names(self.whole) | (_letters(self.whole) & _TURNS)

    @cached_property
    def values(self) -> frozenset[tuple[str, ...]]:
        """Return (value, unit, date) of each comparable claim."""
        values: set[tuple[str, ...]] = set()
        for claim in self.claims:
            if claim.is_comparable:
                values.add(_value(claim))
        return frozenset(values)

    @cached_property
    def stems(self) -> frozenset[str]:
        """Return the stems of the words in the text and in the claims."""
        return frozenset(stems_in(self.whole))


class EarlierClaims:
    """Index of claims by content, in which a search for equal claims reads few claims."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        self._valued: dict[tuple[str, ...], list[Claim]] = {}
        self._worded: list[tuple[frozenset[str], Claim]] = []
        self._matters: dict[tuple[str, ...], dict[str, dict[ClaimSubject, list[Claim]]]] = {}
        for claim in claims:
            if claim.is_comparable:
                self._valued.setdefault(_value(claim), []).append(claim)
            else:
                self._worded.append((frozenset(stems_in(claim.text)), claim))

    def like(self, claim: Claim) -> list[Claim]:
        """Return the claims that say the same as a claim.

        A comparable claim finds claims with the same value, unit and date of the same attribute of the
        same thing. Another claim finds claims that are not comparable either, have all words of the
        claim, and share its names and relations.
        """
        if claim.is_comparable:
            matter = _matter(claim)
            alike: list[Claim] = []
            for other, claims in self._of_value(_value(claim)).get(matter.head, {}).items():
                if is_same(matter, other):
                    alike += claims
            return alike
        stems, sense = frozenset(stems_in(claim.text)), _sense(claim.text)
        return [
            candidate
            for theirs, candidate in self._worded
            if stems and stems <= theirs and sense == _sense(candidate.text)
        ]

    def _of_value(self, value: tuple[str, ...]) -> dict[str, dict[ClaimSubject, list[Claim]]]:
        """Return the claims with this value, unit and date, by the head of their subject and then by the
        whole subject.
        """
        if value not in self._matters:
            claims = self._matters[value] = {}
            for claim in self._valued.get(value, ()):
                matter = _matter(claim)
                claims.setdefault(matter.head, {}).setdefault(matter, []).append(claim)
        return self._matters[value]


def _sense(text: str) -> tuple[object, ...]:
    """Return the properties that two texts with the same words must share to mean the same.

    These are names, words that can reverse a statement, and the order of the words if the text
    relates two things.
    """
    words = _letters(text)
    return find_names(text), words & _TURNS, stems_in(text) if words & _RELATIONS else ()


def _matter(claim: Claim) -> ClaimSubject:
    return matter_of(claim.subject or "", claim.attribute or "")


def _value(claim: Claim) -> tuple[str, ...]:
    """Return (value, unit, date) of a claim, in small letters and with single spaces."""
    parts: list[str] = []
    for part in (claim.value, claim.unit, claim.date):
        parts.append(" ".join((part or "").casefold().split()))
    return tuple(parts)


def _words(sentence: str) -> tuple[str, ...]:
    words: list[str] = []
    for word in (token.strip(_ROUND_A_WORD) for token in sentence.split()):
        if word not in _ARTICLES:
            words.append(word)
    return tuple(words)


def _letters(text: str) -> frozenset[str]:
    return frozenset(_LETTERS.findall(_NOT.sub(" not", text).casefold()))
