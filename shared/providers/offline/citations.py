"""Markers of claims, and gaps, in the text of an output. A gap is a fact that was not found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from handoff_queue.shared.providers.offline.conversation import Result
from handoff_queue.shared.providers.offline.sentences import CLOSING, cells_of, split_sentences
from handoff_queue.shared.types.citation_markers import MARKER

NOT_FOUND = "Not found in the documents"
CANNOT_ANSWER = "The offline model cannot answer this"
_MIN_WORDS = 4
"""A piece of text with fewer words is a label, and needs no marker."""


def add_marker(text: str, marker: str) -> str:
    """Return a statement with its marker before the full stop."""
    end = re.search(rf"[.!。！][{CLOSING}]*$", text)
    if end is None:
        return f"{text} [{marker}]."
    return f"{text[: end.start()]} [{marker}]{end.group()}"


def not_found(gaps: Sequence[str]) -> str:
    """Return the line that names gaps."""
    return f"{NOT_FOUND}: {'; '.join(gaps)}."


def gaps_in(output: str) -> list[str]:
    """Return the gaps that an output names. See `not_found`."""
    lines = re.findall(rf"^[^\w\n]*+{NOT_FOUND}:\s*+(.+)$", output, re.MULTILINE)
    gaps: list[str] = []
    for line in lines:
        for gap in line.rstrip().removesuffix(".").split(";"):
            if gap.strip():
                gaps.append(gap.strip())
    return gaps


def gaps_of(results: Iterable[Result]) -> list[str]:
    """Return the gaps that the outputs of all results name."""
    gaps: list[str] = []
    for result in results:
        gaps += gaps_in(result.text)
    return gaps


def markers_in(output: str) -> set[str]:
    """Return the ids of the claims that an output points to."""
    claim_ids: set[str] = set()
    for ids in MARKER.findall(output):
        for claim_id in re.split("[,;]", ids):
            claim_ids.add(claim_id.strip())
    return claim_ids


def unmarked_statements(output: str) -> Iterator[str]:
    """Yield the sentences, list items and cells of tables that need a marker and have none.

    Code, headings, the header and the first column of a table, and gaps need no marker.
    """
    text = re.sub(r"^(```|~~~).*?(^\1\s*$|\Z)", "", output, flags=re.DOTALL | re.MULTILINE)
    previous_is_row = False
    for line in map(str.strip, text.splitlines()):
        is_table = line.startswith("|")
        is_header = is_table and not previous_is_row
        previous_is_row = is_table
        if is_header or line.startswith("#") or NOT_FOUND in line or CANNOT_ANSWER in line:
            continue
        bare = re.sub(r"^(?:[-*+]|\d+[.)])\s+", "", line)
        if is_table:
            pieces = cells_of(line)[1:]
        else:
            pieces = split_sentences(bare)
        for piece in pieces:
            if _needs_marker(piece):
                yield piece


def _needs_marker(piece: str) -> bool:
    """Return whether a piece of text has no marker, and is neither a question nor a label."""
    if MARKER.search(piece) or piece.rstrip("*_`").endswith((":", "?")):
        return False
    return len(piece.split()) >= _MIN_WORDS
