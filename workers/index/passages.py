"""Splits documents into passages (chunks) for the search."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

AIM_CHARS = 700
"""Characters after which a passage gets no further paragraph: about five sentences. This is
enough for a quote, and short enough to show eight passages.
"""
MAX_CHARS = 1_400
"""Longest passage in characters. A longer paragraph is cut after a sentence, a line or a word,
or else at this length.
"""

_HEADING = re.compile(r"#{1,6}[ \t]+(\S.*)")
_CUTS = (
    re.compile(r"(?<=[.!?。！？])[\"')\]]*\s+|(?<=[。！？])"),
    re.compile(r"\n"),
    re.compile(r"\s"),
)
"""Places to cut a long paragraph, best first."""


@dataclass(frozen=True, slots=True)
class Passage:
    """The part `text[start:end]` of a document, without white space at its ends."""

    start: int
    end: int
    heading: str
    """The document's first heading, and the heading above the passage."""


def split_passages(text: str) -> Iterator[Passage]:
    """Yield the passages of a text in order. They do not overlap, and they cover the whole
    text except white space.
    """
    title = section = ""
    start = end = -1
    for piece_start, piece_end in _iterate_pieces(text):
        heading = _HEADING.match(text, piece_start, piece_end)
        is_full = start >= 0 and (
            heading is not None or piece_end - start > MAX_CHARS or end - start >= AIM_CHARS
        )
        if is_full:
            yield Passage(start, end, _format_trail(title, section))
            start = -1
        if heading is not None:
            section = heading.group(1).strip()[:200]
            title = title or section
        if start < 0:
            start = piece_start
        end = piece_end
    if start >= 0:
        yield Passage(start, end, _format_trail(title, section))


def _format_trail(title: str, section: str) -> str:
    """Return the title and the heading of the section, or the title alone if both are the same."""
    if section == title:
        return section
    return f"{title} {section}".strip()


def _iterate_pieces(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of paragraphs, and of parts of long paragraphs."""
    for first, end in _iterate_paragraphs(text):
        start = first
        while end - start > MAX_CHARS:
            cut_index = _find_best_cut(text, start)
            piece_end = start + len(text[start:cut_index].rstrip())
            yield start, piece_end
            rest = text[cut_index:end]
            start = cut_index + len(rest) - len(rest.lstrip())
        if start < end:
            yield start, end


def _iterate_paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of paragraphs: lines without a blank line between them. A heading begins
    a new span.
    """
    start = end = -1
    position = 0
    for line in text.splitlines(keepends=True):
        stripped = line.strip()
        is_heading = _HEADING.match(stripped) is not None
        if start >= 0 and (not stripped or is_heading):
            yield start, end
            start = -1
        if stripped:
            first = position + line.index(stripped)
            if start < 0:
                start = first
            end = first + len(stripped)
        position += len(line)
    if start >= 0:
        yield start, end


def _find_best_cut(text: str, start: int) -> int:
    """Return the index at which a long paragraph is cut: the last good place in the first
    `MAX_CHARS`.
    """
    window_end = start + MAX_CHARS
    for pattern in _CUTS:
        ends: list[int] = []
        for match in pattern.finditer(text, start + 1, window_end):
            if match.end() - start <= MAX_CHARS:
                ends.append(match.end())
        if ends and ends[-1] - start >= AIM_CHARS // 2:
            return ends[-1]
    return window_end
