"""Cutting a text into passages: the unit that is ranked, shown and quoted. Whole paragraphs; sentences where those are too long."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

AIM_CHARS = 700
"""A passage is closed once it is this long: some five sentences, enough to quote from, short enough to show eight."""
MOST_CHARS = 1_400
"""A paragraph longer than this is cut at sentences, lines, words, and in the end anywhere."""

_HEADING = re.compile(r"#{1,6}[ \t]+(\S.*)")
_CUTS = (
    re.compile(r"(?<=[.!?。！？])[\"')\]]*\s+|(?<=[。！？])"),
    re.compile(r"\n"),
    re.compile(r"\s"),
)
"""Where to cut a long paragraph, best first."""


@dataclass(frozen=True, slots=True)
class Passage:
    """text[start:end], without white space at its ends."""

    start: int
    end: int
    heading: str
    """The document's first heading and the one that the passage stands under."""


def passages(text: str) -> Iterator[Passage]:
    """The passages of a text in order. They don't overlap, and leave nothing out but white space."""
    title = section = ""
    start = end = -1
    for piece_start, piece_end in _pieces(text):
        heading = _HEADING.match(text, piece_start, piece_end)
        is_full = start >= 0 and (
            heading is not None or piece_end - start > MOST_CHARS or end - start >= AIM_CHARS
        )
        if is_full:
            yield Passage(start, end, _trail(title, section))
            start = -1
        if heading is not None:
            section = heading.group(1).strip()[:200]
            title = title or section
        start, end = (piece_start if start < 0 else start), piece_end
    if start >= 0:
        yield Passage(start, end, _trail(title, section))


def _trail(title: str, section: str) -> str:
    return section if section == title else f"{title} {section}".strip()


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Paragraphs, and parts of those that are too long."""
    for first, end in _paragraphs(text):
        start = first
        while end - start > MOST_CHARS:
            cut = _best_cut(text, start)
            piece_end = start + len(text[start:cut].rstrip())
            yield start, piece_end
            start = cut + len(text[cut:end]) - len(text[cut:end].lstrip())
        if start < end:
            yield start, end


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Runs of lines that are not blank; a heading ends where its line does."""
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
            start, end = (first if start < 0 else start), first + len(stripped)
        position += len(line)
    if start >= 0:
        yield start, end


def _best_cut(text: str, start: int) -> int:
    """Where the rest of a long paragraph begins."""
    window_end = start + MOST_CHARS
    for cut in _CUTS:
        ends = [
            found.end()
            for found in cut.finditer(text, start + 1, window_end)
            if found.end() - start <= MOST_CHARS
        ]
        if ends and ends[-1] - start >= AIM_CHARS // 2:
            return ends[-1]
    return window_end
