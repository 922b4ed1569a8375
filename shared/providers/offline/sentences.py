"""Splits documents (Markdown, plain text and tables) into sentences. The offline model states
only these.

Rows of CSV files, of Markdown tables and of tables of web pages (cells between " | ") become
sentences.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import NamedTuple

from handoff_queue.shared.providers.offline.words import split_words

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
"""Delimiter by file suffix. The delimiter is `;` if the first line of a CSV file has more
semicolons than commas.
"""
_MAX_QUOTE_CHARS = 2_000
"""Characters of the longest quote that a citation takes (`shared.types.handoff.Citation`)."""
_SEPARATOR = re.compile(r"[\s|:]*+-[\s|:-]*+")


def find_delimiter(source: str, text: str) -> str | None:
    """Return the character between the fields of a CSV or TSV file, or None for any other file."""
    delimiter = _DELIMITERS.get(PurePosixPath(source).suffix.lower())
    header = text.partition("\n")[0]
    if delimiter == "," and header.count(";") > header.count(","):
        return ";"
    return delimiter


def iterate_file_rows(text: str, delimiter: str, *, is_start: bool) -> Iterator[tuple[str, str]]:
    """Yield the quote and the wording of each row of a table file, without the first row.

    Args:
        is_start: True if the first row is the header of the file. Otherwise it may be cut, and the
            columns have no names.
    """
    lines = text.splitlines(keepends=True)
    reader = csv.reader(lines, delimiter=delimiter)
    columns: list[str] = []
    begin = 0
    try:
        for number, row in enumerate(reader):
            quote = " ".join("".join(lines[begin : reader.line_num]).split())
            begin = reader.line_num
            cells: list[str] = []
            for cell in row:
                cells.append(" ".join(cell.split()))
            if number == 0:
                columns = cells if is_start else []
            elif any(cells) and len(quote) <= _MAX_QUOTE_CHARS:
                yield quote, _format_row(cells, columns)
    except csv.Error:
        return


def is_row(line: str) -> bool:
    """Return whether a line of text looks like a row of a table."""
    return line.startswith("|") or " | " in line


def iterate_table_rows(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the quote and the wording of each row of a table. A first row without digits and
    empty cells is the header, which is left out.
    """
    rows = list(map(split_cells, lines))
    columns: list[str] = []
    first = 0
    if len(rows) > 1 and _is_header(rows[0]):
        columns = rows[0]
        first = 1
    for line, cells in zip(lines[first:], rows[first:], strict=True):
        if any(cells[1:]) and not _SEPARATOR.fullmatch(line):
            yield " ".join(line.strip("|").split()), _format_row(cells, columns)


def _is_header(cells: Sequence[str]) -> bool:
    """Return whether each cell after the first one is a name: not empty and without digits."""
    return all(cell and not re.search(r"\d", cell) for cell in cells[1:])


def split_cells(line: str) -> list[str]:
    """Return the cells of a row of a Markdown table."""
    cells: list[str] = []
    for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
        cells.append(cell.strip())
    return cells


def _format_row(cells: Sequence[str], columns: Sequence[str]) -> str:
    """Return a row in words: `Ember: Price $1,099, Weight 1.9 kg`."""
    first, *others = cells
    pairs: list[str] = []
    for name, value in zip_longest(columns[1 : len(cells)], others, fillvalue=""):
        if value:
            pairs.append(f"{name} {value}".strip())
    values = ", ".join(pairs)
    if first and values:
        return f"{first}: {values}"
    return first or values


CLOSING = "\"')\\]”’*_"
"""Characters that may be between a full stop and the end of the sentence, for a regex set."""
_BREAK = re.compile(rf"(?<=[.!?])[{CLOSING}]*(\s+)(?=\S)|(?<=[。！？])()")
_ABBREVIATIONS = frozenset(
    "e.g. i.e. etc. vs. cf. approx. dr. mr. mrs. ms. prof. no. fig. st. al.".split()
)
_MIN_WORDS, _MAX_WORDS = 4, 60
_MAX_TITLE_WORDS = 8
_LABELLED = re.compile(r"[^\W\d][\w ()/%-]{0,30}:\s+\S")
"""A labelled value such as `Price: $499`, which is a statement of any length."""
_MAX_LABELLED_WORDS = 12
_ITEM = re.compile(r"(?:[-*+]|\d{1,2}[.)])\s+(.*)")
_LOG_LINE = re.compile(r"\[?\d{4}-\d\d-\d\d[T ]")
_HEADING = re.compile(r"(#{1,6})\s+(\S.*)")
_UNDERLINE = re.compile(r"={3,}|-{3,}")
_HIDDEN = re.compile(
    r"\A---\n.*?\n---\n|^(?P<fence>```|~~~).*?(?:^(?P=fence)\s*$|\Z)", re.DOTALL | re.MULTILINE
)
"""Front matter and blocks of code."""
_MARKED_UP = frozenset({"", ".md", ".markdown", ".mdx", ".txt", ".rst", ".html", ".htm"})
"""Suffixes of documents that may hold Markdown. Any other document is stated as it is."""
_LINK = re.compile(r"(?<![\w\])])!?\[([^\[\]]+)\]\([^()\s]*\)")
_BOLD = re.compile(r"(?<![\w*])\*\*(?=\S)([^*]+?)(?<=\S)\*\*(?![\w*])")
_FOOTNOTE = re.compile(r"(?<=[.,;:!?)])\[\^?\d+\]|\s\[\^?\d+\](?=[\s.,;:]|$)|\[\^\d+\]")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, an item of a list or a row of a table."""

    quote: str
    """The text in the document, with white space folded."""
    text: str
    """The sentence as plain text. A row of a table is put in words."""
    source: str
    headings: tuple[str, ...] = ()
    """Headings above the sentence, from the title of the document down."""

    @property
    def place(self) -> str:
        """The headings and the name of the document, as one text."""
        return " ".join([*self.headings, build_name(self.source)])


@lru_cache(maxsize=256)
def parse_sentences(
    text: str, source: str, *, is_start: bool = True, is_end: bool = True
) -> tuple[Sentence, ...]:
    """Return the whole sentences of a text, without headings and code.

    Args:
        source: path or URL of the document.
        is_start: True if the text has the beginning of the document. Otherwise the first sentence
            may be cut, and is left out.
        is_end: True if the text has the end of the document. Otherwise the last list item or row
            of a table file may be cut, and is left out.
    """
    if delimiter := find_delimiter(source, text):
        if not is_end and not text.endswith("\n"):
            text = text[: text.rfind("\n") + 1]
        rows = iterate_file_rows(text, delimiter, is_start=is_start)
        return tuple(Sentence(quote, wording, source) for quote, wording in rows)
    is_marked_up = PurePosixPath(source).suffix.lower() in _MARKED_UP or "://" in source
    blocks = list(_iterate_blocks(text, is_start=is_start))
    sentences: list[Sentence] = []
    for number, block in enumerate(blocks):
        lacks_start = number == 0 and not is_start
        lacks_end = number == len(blocks) - 1 and not is_end
        for quote in _list_quotes(block, lacks_start=lacks_start, lacks_end=lacks_end):
            plain = block.wording or quote
            if is_marked_up:
                plain = _without_markup(plain)
            sentences.append(Sentence(quote, plain, source, block.headings))
    return tuple(sentences)


def _without_markup(text: str) -> str:
    """Return a text without links, bold type and the marks of footnotes."""
    text = _BOLD.sub(r"\1", _LINK.sub(r"\1", text))
    return _FOOTNOTE.sub("", text).strip()


def split_sentences(block: str) -> list[str]:
    """Return the sentences of a paragraph."""
    sentences: list[str] = []
    start = 0
    for match in _BREAK.finditer(block):
        end = max(match.start(1), match.start(2))
        sentence = block[start:end].strip()
        if sentence and not _ends_in_abbreviation(sentence):
            sentences.append(sentence)
            start = match.end()
    last = block[start:].strip()
    if last:
        sentences.append(last)
    return sentences


def build_name(source: str) -> str:
    """Return a readable name of a document from its path."""
    stem = source.rstrip("/").rsplit("/", 1)[-1].rsplit(".", 1)[0]
    return re.sub(r"[-_]+", " ", stem) or source


def _ends_in_abbreviation(before: str) -> bool:
    """Return whether the full stop at the end belongs to an abbreviation, a number or an
    initial.

    "It is written in C." ends a sentence. "Donald E." does not.
    """
    *others, last = before.split()
    is_initial = re.fullmatch(r"\(?[A-Z]\.", last) is not None and (
        not others or others[-1].lstrip("(")[:1].isupper()
    )
    is_number = re.fullmatch(r"\d{1,2}\.", before) is not None
    return last.lower().lstrip("(") in _ABBREVIATIONS or is_initial or is_number


class _DocumentBlock(NamedTuple):
    """A paragraph, a heading, an item of a list or a row of a table."""

    kind: str
    """`text`, `heading`, `item` or `row`."""
    text: str
    """The block with white space folded."""
    wording: str = ""
    """The words of a row, or ""."""
    level: int = 0
    """Level of a heading, from 1 to 6, or 0."""
    headings: tuple[str, ...] = ()
    """Headings above the block, from the title of the document down."""


def _list_quotes(block: _DocumentBlock, *, lacks_start: bool, lacks_end: bool) -> list[str]:
    """Return the row, or the sentences of a block that are statements.

    Args:
        lacks_start: True if the first sentence may be cut.
        lacks_end: True if the last item may be cut.
    """
    if block.kind == "row":
        return [block.text]
    pieces = split_sentences(block.text)
    if lacks_start:
        pieces = pieces[1:]
    statements: list[str] = []
    for number, piece in enumerate(pieces, start=1):
        is_cut = lacks_end and number == len(pieces)
        if _is_statement(piece, is_whole_item=block.kind == "item" and not is_cut):
            statements.append(piece)
    return statements


def _is_statement(piece: str, *, is_whole_item: bool) -> bool:
    """Return whether a piece is a labelled value, or a sentence or list item of 4 to 60 words."""
    count = len(split_words(piece))
    if _LABELLED.match(piece) and count <= _MAX_LABELLED_WORDS:
        return piece[-1] not in ":?,;"
    has_end = re.search(rf"[.!。！][{CLOSING}]*$", piece) is not None
    is_item = is_whole_item and piece[-1] not in ":?,;"
    return (has_end or is_item) and _MIN_WORDS <= count <= _MAX_WORDS


def _iterate_blocks(text: str, *, is_start: bool) -> Iterator[_DocumentBlock]:
    """Yield the blocks of a text below their headings. A short first block is the title."""
    titles: dict[int, str] = {}
    is_first = is_start
    for block in _iterate_raw_blocks(_HIDDEN.sub("\n", text)):
        level = block.level
        if is_first and _is_title(block):
            level = 1
        is_first = False
        if level:
            titles = {above: title for above, title in titles.items() if above < level}
            titles[level] = block.text
        else:
            yield block._replace(headings=tuple(titles.values()))


def _is_title(block: _DocumentBlock) -> bool:
    """Return whether the first block of a document looks like its title."""
    is_short = len(block.text.split()) <= _MAX_TITLE_WORDS
    return block.kind == "text" and block.text[-1].isalnum() and is_short


def _iterate_raw_blocks(text: str) -> Iterator[_DocumentBlock]:
    """Yield the blocks of a text in their order, without the headings above them."""
    kind, lines = "text", list[str]()
    table: list[str] = []
    for line in [*text.splitlines(), ""]:
        stripped = line.strip()
        if table and not is_row(stripped):
            for quote, wording in iterate_table_rows(table):
                yield _DocumentBlock("row", quote, wording)
            table = []
        heading = _HEADING.match(stripped)
        underline = _UNDERLINE.fullmatch(stripped)
        item = _parse_item(stripped)
        if lines and (not stripped or heading or underline or item or is_row(stripped)):
            folded = " ".join(" ".join(lines).split())
            if underline and kind == "text" and len(lines) == 1:
                yield _DocumentBlock("heading", folded, level=1 if stripped[0] == "=" else 2)
            else:
                yield _DocumentBlock(kind, folded)
            kind, lines = "text", []
        if heading:
            title = _without_closing_marks(heading[2])
            yield _DocumentBlock("heading", title, level=len(heading[1]))
        elif is_row(stripped):
            table.append(stripped)
        elif item:
            kind, lines = "item", [item]
        elif stripped and not re.fullmatch(r"[=*_-]{3,}", stripped):
            lines.append(stripped.removeprefix("> "))


def _without_closing_marks(heading: str) -> str:
    """Return the text of a heading without the marks at its end: `Pumps` for `Pumps ##`."""
    return heading.rstrip("#").rstrip() or heading


def _parse_item(line: str) -> str | None:
    """Return the text of a list item, a labelled value or a log line, and None for any other
    line.
    """
    if item := _ITEM.match(line):
        return item.group(1)
    is_label = (
        _LABELLED.match(line) is not None
        and len(line.split()) <= _MAX_LABELLED_WORDS
        and line[-1] not in ".,;"
    )
    if is_label or _LOG_LINE.match(line):
        return line
    return None
