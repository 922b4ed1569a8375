"""Writes an answer from claims: a comparison with a table, or lists under headings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from handoff_queue.shared.providers.offline.citations import MissingFact, add_marker, format_gaps
from handoff_queue.shared.providers.offline.conversation import OfflineClaim
from handoff_queue.shared.providers.offline.request_text import understand
from handoff_queue.shared.providers.offline.words import join_with_and, mentions
from handoff_queue.shared.types.citation_markers import MARKER

_MAX_COLUMNS = 3
"""Subjects that are columns of a table. With more subjects, each subject is a row."""
_EMPTY_CELL = "not found"


def draft(request: str, claims: Sequence[OfflineClaim], gaps: Sequence[MissingFact]) -> str:
    """Return the Markdown of an answer. Every statement has the marker of its claim."""
    claims = remove_repeats(claims)
    asking = understand(request)
    by_subject = group_claims_by_subject(asking.subjects, claims)
    if any(by_subject.values()):
        parts = _format_comparison(by_subject, asking.aspects)
    else:
        parts = _format_lists(claims)
    parts += format_gaps(gaps)
    return "\n\n".join(parts)


def remove_repeats(claims: Iterable[OfflineClaim]) -> list[OfflineClaim]:
    """Return the first claim of each text. Similar texts may contradict each other."""
    by_text: dict[str, OfflineClaim] = {}
    for claim in claims:
        by_text.setdefault(claim.text, claim)
    return list(by_text.values())


def group_claims_by_subject(
    subjects: Sequence[str], claims: Sequence[OfflineClaim]
) -> dict[str, list[OfflineClaim]]:
    """Return the claims about each subject. See `_find_subjects`."""
    by_subject: dict[str, list[OfflineClaim]] = {}
    for subject in subjects:
        by_subject[subject] = []
    for claim in claims:
        for subject in _find_subjects(claim, subjects):
            by_subject[subject].append(claim)
    return by_subject


def _find_subjects(claim: OfflineClaim, subjects: Sequence[str]) -> list[str]:
    """Return the subject with which the claim begins, or else all subjects that it mentions."""
    mentioned_subjects: list[str] = []
    for subject in subjects:
        if claim.text.lower().startswith(subject.lower()):
            return [subject]
        if mentions(subject, claim.text):
            mentioned_subjects.append(subject)
    return mentioned_subjects


def _format_lists(claims: Sequence[OfflineClaim]) -> list[str]:
    """Return a list of the claims under each heading."""
    by_heading: dict[str, list[OfflineClaim]] = {}
    for claim in claims:
        by_heading.setdefault(claim.heading, []).append(claim)
    parts: list[str] = []
    for heading, claims_below in by_heading.items():
        if heading:
            parts.append(f"## {heading}")
        parts.append(_format_list(claims_below))
    return parts


def _format_list(claims: Iterable[OfflineClaim], about: str = "") -> str:
    """Return the claims as a Markdown list. The prefix `about: ` is left out."""
    lines: list[str] = []
    for claim in claims:
        lines.append(f"- {add_marker(claim.text.removeprefix(f'{about}: '), claim.id)}")
    return "\n".join(lines)


def _format_comparison(
    by_subject: Mapping[str, list[OfflineClaim]], aspects: Sequence[str]
) -> list[str]:
    """Return a title, a table if there is one, and a list of each subject's other claims."""
    parts = [f"# {join_with_and(list(by_subject))}, compared"]
    table, table_ids = _build_table(by_subject, aspects)
    if table:
        parts.append(table)
    for subject, claims in by_subject.items():
        rest = [claim for claim in claims if claim.id not in table_ids]
        if rest:
            parts += [f"## {subject}", _format_list(rest, about=subject)]
    return parts


def _build_table(
    by_subject: Mapping[str, list[OfflineClaim]], aspects: Sequence[str]
) -> tuple[str, set[str]]:
    """Return a table of the claims by heading and subject, and the ids of the claims in it.

    The table has each heading that several subjects share or that the request asks for. It is
    empty if there is no such heading.
    """
    requested_aspects = set(map(str.lower, aspects))
    cells: dict[str, dict[str, OfflineClaim]] = {}
    for subject, claims in by_subject.items():
        for claim in claims:
            if claim.heading and claim.heading not in by_subject:
                cells.setdefault(claim.heading, {}).setdefault(subject, claim)
    rows = [["", *by_subject]]
    table_ids: set[str] = set()
    for heading, claim_by_subject in cells.items():
        if len(claim_by_subject) <= 1 and heading.lower() not in requested_aspects:
            continue
        row = [heading]
        for subject in by_subject:
            row.append(_format_cell(subject, claim_by_subject.get(subject)))
        rows.append(row)
        table_ids.update(claim.id for claim in claim_by_subject.values())
    if len(rows) == 1:
        return "", set()
    if len(by_subject) > _MAX_COLUMNS:
        rows = list(map(list, zip(*rows, strict=True)))
    return _format_table(rows), table_ids


def _format_cell(subject: str, claim: OfflineClaim | None) -> str:
    """Return the text of a claim with its marker, and without the name of the subject."""
    if claim is None:
        return _EMPTY_CELL
    text = claim.text.rstrip(".").removeprefix(f"{subject}: ")
    text = re.sub(rf"^{re.escape(subject)} (?=[a-z])", "", text, flags=re.IGNORECASE)
    return f"{text} [{claim.id}]".replace("|", "\\|")


def _format_table(rows: list[list[str]]) -> str:
    """Return the rows as a Markdown table with columns of equal width."""
    widths: list[int] = []
    separator: list[str] = []
    for column in zip(*rows, strict=True):
        width = max(3, *map(_measure_width, column))
        widths.append(width)
        separator.append("-" * width)
    lines: list[str] = []
    for row in (rows[0], separator, *rows[1:]):
        cells: list[str] = []
        for cell, width in zip(row, widths, strict=True):
            cells.append(cell + " " * (width - _measure_width(cell)))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _measure_width(cell: str) -> int:
    """Return the number of characters of a cell as readers see it, with numbers as markers."""
    return len(MARKER.sub("[1]", cell))
