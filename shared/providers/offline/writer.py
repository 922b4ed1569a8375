"""The writer's part: an answer made of the context's claims, each with its marker; nothing is
said that no claim says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from handoff_queue.shared.providers.offline.aspects import (
    Aspect,
    all_aspects,
    aspect,
    content_words,
)
from handoff_queue.shared.providers.offline.conversation import Conversation, KnownClaim, Result
from handoff_queue.shared.providers.offline.findings import heading_of
from handoff_queue.shared.providers.offline.request_questions import (
    Asking,
    joined,
    request_in,
    understand,
)
from handoff_queue.shared.providers.offline.schema_forms import Subject
from handoff_queue.shared.providers.offline.sentences import title_of
from handoff_queue.shared.providers.offline.statements import gaps_in, marked, not_found
from handoff_queue.shared.providers.offline.topic import FIT, defines, mentions, similar
from handoff_queue.shared.types.citation_markers import MARKER

_SAME = 0.9
_NONE = "not found"
_LONG_CELL_WORDS = 22
_MOST_COLUMNS = 3
"""Of things side by side: more are told one below the other."""
_POINTS_FOR_A_ROW = 2.0
"""One word that merely hints at an aspect makes no row."""
_FEWEST_ROWS_SHARED = 2
"""Without aspects asked for, a row of the table needs claims of at least two of the things."""


@dataclass(frozen=True, slots=True)
class Section:
    """What the context says of one thing or question."""

    name: str
    claims: tuple[KnownClaim, ...]


def envelope(conversation: Conversation) -> dict[str, Any]:
    """The answer envelope, with `output` as Markdown. It makes no claims of its own: its
    markers point to the context's.
    """
    text, silent = draft(conversation), _silent_things(conversation)
    unusable = [result.step for result in conversation.results if not result.claims]
    confidence = (
        0.0
        if not _claims(conversation)
        else round(0.9 * (1 - len(unusable) / len(conversation.results)), 2)
    )
    return {
        "status": "ok" if _claims(conversation) and not silent else "partial",
        "output": text,
        "claims": [],
        "confidence": confidence,
        "needs": None
        if _claims(conversation)
        else f"results with claims from {joined(unusable) or 'earlier steps'}",
        "problem": f"the results say nothing about {joined(silent)}" if silent else None,
    }


def _silent_things(conversation: Conversation) -> list[str]:
    """Things to compare that no claim speaks of."""
    claims = _claims(conversation)
    return [
        each
        for each in understand(request_in(conversation.task)).things
        if not any(mentions(each, claim.text) for claim in claims)
    ]


def draft(conversation: Conversation) -> str:
    """The Markdown of the answer."""
    asking = understand(request_in(conversation.task))
    claims = _claims(conversation)
    parts = (
        _comparison(asking, conversation, claims)
        if asking.things
        else _explanation(asking, conversation, claims)
    )
    gaps = list(
        dict.fromkeys(gap for result in conversation.results for gap in gaps_in(result.text))
    )
    silent = [
        f"anything from {result.step} ({result.status})"
        for result in conversation.results
        if not result.claims and not gaps_in(result.text)
    ]
    missing = [
        thing for thing in _silent_things(conversation) if not any(thing in gap for gap in gaps)
    ]
    named = [*gaps, *silent, *missing]
    return "\n\n".join([*parts, *([not_found(named)] if named else [])])


def subjects_of(
    conversation: Conversation, own: Sequence[Mapping[str, Any]]
) -> tuple[list[KnownClaim], list[Subject]]:
    """What a form can be filled from: the claims (`own`: of a researcher, who has no
    context's), and those of each thing compared.

    Where nothing is compared and several documents speak, each of them is a subject.
    """
    if own:
        known = tuple(
            KnownClaim(claim["id"], claim["text"], claim["sources"][0]["source"]) for claim in own
        )
        conversation = replace(conversation, results=(Result("answer", "ok", "", known),))
    claims, things = _claims(conversation), understand(request_in(conversation.task)).things
    by_name = {thing: _of_thing(thing, things, conversation.results, claims) for thing in things}
    sources = dict.fromkeys(claim.source for claim in claims)
    if not things and len(sources) > 1:
        by_name = {
            title_of(source): [claim for claim in claims if claim.source == source]
            for source in sources
        }
    return claims, [
        Subject(_as_written(name, found), tuple(found)) for name, found in by_name.items()
    ]


def _claims(conversation: Conversation) -> list[KnownClaim]:
    """The context's claims, each said once, without what the reviewer objected to."""
    objected = [
        quote
        for text in conversation.feedback
        for quote in re.findall(r"[\"“«]([^\"”»]{12,})[\"”»]", text)
    ]
    kept: list[KnownClaim] = []
    for claim in (claim for result in conversation.results for claim in result.claims):
        is_new = all(
            claim.id != other.id and similar(claim.text, other.text) < _SAME for other in kept
        )
        if is_new and not any(quote.rstrip(".") in claim.text for quote in objected):
            kept.append(claim)
    return kept


def _comparison(asking: Asking, conversation: Conversation, claims: list[KnownClaim]) -> list[str]:
    by_thing = [
        (thing, _of_thing(thing, asking.things, conversation.results, claims))
        for thing in asking.things
    ]
    sections = [Section(_as_written(thing, of_it), tuple(of_it)) for thing, of_it in by_thing]
    aspects = [aspect(label) for label in asking.aspects] or _common_aspects(sections)
    title = joined([section.name for section in sections]) + (
        f": {joined([each.label for each in aspects])}" if asking.aspects else ", compared"
    )
    table, used = _table(sections, aspects)
    advice = [
        (section.name, claim)
        for section in sections
        for claim in section.claims
        if FIT.score(claim.text) and claim.id not in used
    ]
    used |= {claim.id for _, claim in advice}
    parts = [f"# {title}"]
    parts += ["## At a glance", table] if table else []
    for section in sections:
        # what a thing is opens its section, even when a cell of the table says so too
        rest = [
            claim
            for index, claim in enumerate(section.claims)
            if claim.id not in used or (index == 0 and defines(section.name, claim.text))
        ]
        if rest:
            parts += [f"## {section.name}", _paragraph(rest, section.name)]
    if advice:
        parts += [
            "## Which to choose",
            "\n".join(f"- {marked(claim.text, claim.id)}" for _, claim in advice),
        ]
    return parts


def _of_thing(
    thing: str, things: Sequence[str], results: Sequence[Result], claims: list[KnownClaim]
) -> list[KnownClaim]:
    """Claims of the step that researched the thing; of other steps, those that begin with it."""
    slug = "_".join(re.findall(r"[a-z0-9]+", thing.lower()))
    own_steps = {result.step for result in results if result.step.endswith(slug)}
    others = [other for other in things if other != thing]
    kept = []
    for claim in claims:
        own = (
            claim.id.split(".")[0] in own_steps
            or _begins_with(thing, claim.text)
            or (not own_steps and mentions(thing, f"{claim.text} {title_of(claim.source)}"))
        )
        if own and not any(_begins_with(other, claim.text) for other in others):
            kept.append(claim)
    return kept


def _as_written(thing: str, claims: Sequence[KnownClaim]) -> str:
    """A name as sentences begin with it: `pgvector` stays small, `post-filtering` does not."""
    return next(
        (claim.text[: len(thing)] for claim in claims if _begins_with(thing, claim.text)), thing
    )


def _begins_with(thing: str, text: str) -> bool:
    return text.lower().startswith(thing.lower())


def _common_aspects(sections: Sequence[Section]) -> list[Aspect]:
    return [
        each
        for each in all_aspects()
        if sum(
            any(each.score(claim.text) >= _POINTS_FOR_A_ROW for claim in section.claims)
            for section in sections
        )
        >= _FEWEST_ROWS_SHARED
    ]


def _table(sections: Sequence[Section], aspects: Sequence[Aspect]) -> tuple[str, set[str]]:
    """A table by aspect (of many things: by thing), and the claims that it uses; a claim
    stands twice only where nothing else does.
    """
    used: set[str] = set()
    rows = [["", *(section.name for section in sections)]]
    for wanted in aspects:
        cells = []
        for section in sections:
            speaking = [
                claim
                for claim in section.claims
                if wanted.score(claim.text) and not FIT.score(claim.text)
            ]
            free = [claim for claim in speaking if claim.id not in used]
            best = max(
                free or speaking, key=partial(_suits_cell, wanted, section.name), default=None
            )
            used |= {best.id} if best else set()
            cells.append(_cell(section.name, wanted.label, best))
        if any(cell != _NONE for cell in cells):
            rows.append([heading_of(wanted.label), *cells])
    if len(rows) == 1:
        return "", set()
    return _aligned(
        [list(column) for column in zip(*rows, strict=True)]
        if len(sections) > _MOST_COLUMNS
        else rows
    ), used


def _suits_cell(wanted: Aspect, thing: str, claim: KnownClaim) -> float:
    """Speaks of the aspect, can go on from the column's name, and is short."""
    length = len(claim.text.split())
    return (
        wanted.score(claim.text)
        + (2.5 if _begins_with(thing, claim.text) else 0.0)
        - (1.0 if length > _LONG_CELL_WORDS else 0.0)
    )


def _cell(thing: str, label: str, claim: KnownClaim | None) -> str:
    """A claim in a cell: the table names its subject and the aspect, so the sentence goes on
    from there.
    """
    if claim is None:
        return _NONE
    text = claim.text.rstrip(".").removeprefix(f"{thing}: ")
    text = re.sub(rf"^{re.escape(label)}: ", "", text, flags=re.IGNORECASE)
    begins = re.match(rf"(?:the )?{re.escape(thing)} (?!and\b|or\b)(?=[a-z])", text, re.IGNORECASE)
    return f"{text[begins.end() :] if begins else text} [{claim.id}]".replace("|", "\\|")


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(3, *(_width(row[column]) for row in rows)) for column in range(len(rows[0]))]
    lines = [rows[0], ["-" * width for width in widths], *rows[1:]]
    padded = [
        [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
        for row in lines
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in padded)


def _width(cell: str) -> int:
    """Characters of a cell once its markers are the numbers of the final answer, which is
    where people see the table.
    """
    return len(MARKER.sub("[1]", cell))


def _explanation(asking: Asking, conversation: Conversation, claims: list[KnownClaim]) -> list[str]:
    """An answer to questions: one section each, a paragraph per document, the one that says
    most first.
    """
    topics = list(asking.topics)
    by_step = [
        Section(result.step, tuple(c for c in claims if c.id.split(".")[0] == result.step))
        for result in conversation.results
    ]
    steps = [section for section in by_step if section.claims] or (
        [Section("answer", tuple(claims))] if claims else []
    )
    parts = (
        [f"# {_title(topics[0] if len(topics) == 1 else asking.text)}"]
        if len(steps) != 1 or len(topics) == 1
        else []
    )
    for index, section in enumerate(steps):
        named = (
            topics[index]
            if len(topics) == len(by_step) == len(steps)
            else section.name.replace("research_", "").replace("_", " ")
        )
        parts += [f"## {_title(named)}"] if len(steps) > 1 else []
        parts += _paragraphs(section.claims)
    return parts


def _title(text: str) -> str:
    words = text.strip().rstrip(".")
    short = words if len(words) <= 100 else words[:100].rsplit(" ", 1)[0] + " …"
    return heading_of(short) if content_words(short) else "Answer"


def _paragraphs(claims: Sequence[KnownClaim]) -> list[str]:
    sources = dict.fromkeys(claim.source for claim in claims)
    return [_paragraph([claim for claim in claims if claim.source == source]) for source in sources]


def _paragraph(claims: Sequence[KnownClaim], about: str = "") -> str:
    """Claims in a row. Under a heading that names what they are about, none but the first
    needs to name it again.
    """
    first, *others = claims
    rest = [claim.text.removeprefix(f"{about}: ") if about else claim.text for claim in others]
    return " ".join(
        marked(text, claim.id) for text, claim in zip([first.text, *rest], claims, strict=True)
    )
