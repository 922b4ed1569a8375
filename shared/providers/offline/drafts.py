"""Text made of claims: a comparison with a table, or lists under headings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from handoff_queue.shared.providers.offline.citations import marked, not_found
from handoff_queue.shared.providers.offline.conversation import Claim
from handoff_queue.shared.providers.offline.request_text import understand
from handoff_queue.shared.providers.offline.words import joined, mentions, similarity
from handoff_queue.shared.types.citation_markers import MARKER

_SAME = 0.9
"""Similarity from which two claims are stated once."""
_MOST_COLUMNS = 3
"""With more things, each thing is a row of the table instead of a column."""
_EMPTY_CELL = "not found"


def draft(request: str, claims: Sequence[Claim], gaps: Sequence[str]) -> str:
    """Return the Markdown of an answer. Every statement has its marker."""
    claims = distinct(claims)
    asking = understand(request)
    by_thing = claims_by_thing(asking.things, claims)
    is_comparison = any(by_thing.values())
    if is_comparison:
        parts = _comparison(by_thing, asking.aspects)
    else:
        parts = _lists(claims)
    if gaps:
        parts.append(not_found(gaps))
    return "\n\n".join(parts)


def distinct(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims without repetitions."""
    kept: list[Claim] = []
    for claim in claims:
        if all(similarity(claim.text, other.text) < _SAME for other in kept):
            kept.append(claim)
    return kept


def claims_by_thing(things: Sequence[str], claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    """Return the claims about each thing. A claim that begins with a thing is about that alone."""
    found: dict[str, list[Claim]] = {thing: [] for thing in things}
    for claim in claims:
        first = [thing for thing in things if claim.text.lower().startswith(thing.lower())]
        for thing in first[:1] or [thing for thing in things if mentions(thing, claim.text)]:
            found[thing].append(claim)
    return found


def _lists(claims: Sequence[Claim]) -> list[str]:
    headings = list(dict.fromkeys(claim.heading for claim in claims))
    parts = []
    for heading in headings:
        if heading:
            parts.append(f"## {heading}")
        parts.append(_list(claim for claim in claims if claim.heading == heading))
    return parts


def _list(claims: Iterable[Claim], about: str = "") -> str:
    lines = []
    for claim in claims:
        lines.append(f"- {marked(claim.text.removeprefix(f'{about}: '), claim.id)}")
    return "\n".join(lines)


def _comparison(by_thing: Mapping[str, list[Claim]], aspects: Sequence[str]) -> list[str]:
    title = f"# {joined(list(by_thing))}, compared"
    table, used = _table(by_thing, aspects)
    if table:
        parts = [title, table]
    else:
        parts = [title]
    for thing, claims in by_thing.items():
        rest = [claim for claim in claims if claim.id not in used]
        if rest:
            parts += [f"## {thing}", _list(rest, about=thing)]
    return parts


def _table(by_thing: Mapping[str, list[Claim]], aspects: Sequence[str]) -> tuple[str, set[str]]:
    """Return a table with a row for each common heading, and the ids of the claims in it."""
    asked: set[str] = set()
    for aspect in aspects:
        asked.add(aspect.lower())
    cells: dict[str, dict[str, Claim]] = {}
    for thing, claims in by_thing.items():
        for claim in claims:
            if claim.heading and claim.heading not in by_thing:
                cells.setdefault(claim.heading, {}).setdefault(thing, claim)
    rows = {
        heading: row for heading, row in cells.items() if len(row) > 1 or heading.lower() in asked
    }
    if not rows:
        return "", set()
    lines = [["", *by_thing]]
    for heading, row in rows.items():
        lines.append([heading, *(_cell(thing, row.get(thing)) for thing in by_thing)])
    if len(by_thing) > _MOST_COLUMNS:
        lines = [list(column) for column in zip(*lines, strict=True)]
    used = {claim.id for row in rows.values() for claim in row.values()}
    return _aligned(lines), used


def _cell(thing: str, claim: Claim | None) -> str:
    """Return the text of a claim without the name of the thing, which the table has."""
    if claim is None:
        return _EMPTY_CELL
    text = claim.text.rstrip(".").removeprefix(f"{thing}: ")
    text = re.sub(rf"^{re.escape(thing)} (?=[a-z])", "", text, flags=re.IGNORECASE)
    return f"{text} [{claim.id}]".replace("|", "\\|")


def _aligned(rows: list[list[str]]) -> str:
    """Return the rows as a Markdown table with columns of equal width."""
    widths: list[int] = []
    for column in zip(*rows, strict=True):
        widths.append(max(3, *(_width(cell) for cell in column)))
    lines = [rows[0], ["-" * width for width in widths], *rows[1:]]
    texts = []
    for line in lines:
        padded = [
            cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True)
        ]
        texts.append(f"| {' | '.join(padded)} |")
    return "\n".join(texts)


def _width(cell: str) -> int:
    """Return the characters of a cell as readers see it: its marker becomes a number."""
    return len(MARKER.sub("[1]", cell))
