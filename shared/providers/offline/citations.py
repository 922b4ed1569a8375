"""Markers of claims, and gaps, in the text of an output. A gap is a fact that was not found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from handoff_queue.shared.providers.offline.conversation import Result
from handoff_queue.shared.providers.offline.sentences import CLOSING, split_cells, split_sentences
from handoff_queue.shared.providers.offline.words import find_stems, join_with_and, mentions
from handoff_queue.shared.types.citation_markers import MARKER

ALL_DOCUMENTS = "the documents"
CANNOT_ANSWER = "The offline model cannot answer this"
_GAP_LINE = re.compile(r"^[^\w\n]*+Not found in ([^\n]+?): *+([^\n]+)$", re.MULTILINE)
_WORDS_BEGIN = 'the words "'
_MAX_NAMED_PLACES = 3
_MIN_WORDS = 4
"""A piece of text with fewer words is a label, and needs no marker."""


def add_marker(text: str, marker: str) -> str:
    """Return a statement with its marker before the full stop."""
    end = re.search(rf"[.!。！][{CLOSING}]*$", text)
    if end is None:
        return f"{text} [{marker}]."
    return f"{text[: end.start()]} [{marker}]{end.group()}"


@dataclass(frozen=True, slots=True)
class MissingFact:
    """A fact that was not found, and the documents that were read for it."""

    text: str
    place: str = ALL_DOCUMENTS

    def __str__(self) -> str:
        return f"Not found in {self.place}: {self.text}"


def describe_gap(words: Sequence[str], subject: str = "") -> str:
    """Return the text of the gap for words that are in no sentence about the subject."""
    about = f" ({subject})" if subject else ""
    return f'{_WORDS_BEGIN}{", ".join(words)}"{about}'


def _split_gap_of_words(gap_text: str) -> tuple[str, str] | None:
    """Return the words and the subject of a text of `describe_gap`. None: it is another text."""
    if not gap_text.startswith(_WORDS_BEGIN):
        return None
    words, mark, about = gap_text.removeprefix(_WORDS_BEGIN).partition('"')
    if mark and not about:
        return words, ""
    if mark and about.startswith(" (") and about.endswith(")"):
        return words, about[2:-1]
    return None


def join_places(places: Sequence[str]) -> str:
    """Return the names of the first places and the number of the others."""
    names = list(dict.fromkeys(places))
    others = len(names) - _MAX_NAMED_PLACES
    if others > 1:
        names[_MAX_NAMED_PLACES:] = [f"{others} others"]
    return join_with_and(names)


def format_gaps(gaps: Iterable[MissingFact]) -> list[str]:
    """Return one line for each place. It names the gaps of the place."""
    by_place: dict[str, list[str]] = {}
    for gap in gaps:
        by_place.setdefault(gap.place, []).append(gap.text)
    return [f"{MissingFact('; '.join(texts), place)}." for place, texts in by_place.items()]


def parse_gaps(output: str) -> list[MissingFact]:
    """Return the gaps that an output names. See `format_gaps`."""
    gaps: list[MissingFact] = []
    for line in _GAP_LINE.finditer(output):
        if MARKER.search(line[0]):
            continue  # a document says so
        for text in line[2].rstrip().removesuffix(".").split(";"):
            if text.strip():
                gaps.append(MissingFact(text.strip(), line[1]))
    return gaps


def find_open_gaps(results: Sequence[Result]) -> list[MissingFact]:
    """Return the gaps that the outputs of all results name, each once with all its places.

    A word counts as found if the claim of a result has it.
    """
    statements: list[str] = []
    for result in results:
        for claim in result.claims:
            statements.append(" ".join((claim.text, *claim.quotes)))
    places: dict[str, list[str]] = {}
    for result in results:
        for gap in parse_gaps(result.text):
            if text := without_found_words(gap.text, statements):
                places.setdefault(text, []).append(gap.place)
    return [MissingFact(text, join_places(places_of_gap)) for text, places_of_gap in places.items()]


def without_found_words(gap_text: str, statements: Iterable[str]) -> str:
    """Return the text of a gap without the words that a statement about its subject has.

    The text is empty if the statements have all words.
    """
    parts = _split_gap_of_words(gap_text)
    if parts is None:
        return gap_text
    words, subject = parts
    found_stems: set[str] = set()
    for statement in statements:
        if mentions(subject, statement):
            found_stems |= find_stems(statement)
    missing: list[str] = []
    for word in words.split(", "):
        if not find_stems(word) <= found_stems:
            missing.append(word)
    if not missing:
        return ""
    return describe_gap(missing, subject)


def find_markers(output: str) -> set[str]:
    """Return the ids of the claims that an output points to."""
    claim_ids: set[str] = set()
    for ids in MARKER.findall(output):
        for claim_id in re.split("[,;]", ids):
            claim_ids.add(claim_id.strip())
    return claim_ids


def iterate_unmarked_statements(output: str) -> Iterator[str]:
    """Yield the sentences, list items and cells of tables that need a marker and have none.

    Code, headings, the header and the first column of a table, and gaps need no marker.
    """
    text = re.sub(r"^(```|~~~).*?(^\1\s*$|\Z)", "", output, flags=re.DOTALL | re.MULTILINE)
    previous_is_row = False
    for line in map(str.strip, text.splitlines()):
        is_table = line.startswith("|")
        is_header = is_table and not previous_is_row
        previous_is_row = is_table
        if is_header or line.startswith("#") or _GAP_LINE.match(line) or CANNOT_ANSWER in line:
            continue
        bare = re.sub(r"^(?:[-*+]|\d+[.)])\s+", "", line)
        if is_table:
            pieces = split_cells(line)[1:]
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
