"""Rows of CSV files, Markdown tables, and tables of web pages (cells between " | "), in words."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import PurePosixPath

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
"""Delimiter by file suffix. The delimiter is `;` if the first line of a CSV file has more
semicolons than commas.
"""
_MOST_QUOTE_CHARS = 2_000
"""Characters of the longest quote that a citation takes (`shared.types.handoff.Citation`)."""
_SEPARATOR = re.compile(r"[\s|:-]*-[\s|:-]*")


def delimiter_of(source: str, text: str) -> str | None:
    """Return the character between the fields of a CSV or TSV file, or None for any other file."""
    delimiter = _DELIMITERS.get(PurePosixPath(source).suffix.lower())
    header = text.partition("\n")[0]
    if delimiter == "," and header.count(";") > header.count(","):
        return ";"
    return delimiter


def rows_of_file(text: str, delimiter: str, *, is_start: bool) -> Iterator[tuple[str, str]]:
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
            elif any(cells) and len(quote) <= _MOST_QUOTE_CHARS:
                yield quote, _wording(cells, columns)
    except csv.Error:
        return


def is_row(line: str) -> bool:
    """Return whether a line of text looks like a row of a table."""
    return line.startswith("|") or " | " in line


def rows_of_table(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the quote and the wording of each row of a table. A first row without digits and
    empty cells is the header, which is left out.
    """
    rows = list(map(cells_of, lines))
    columns: list[str] = []
    first = 0
    if len(rows) > 1 and _is_header(rows[0]):
        columns = rows[0]
        first = 1
    for line, cells in zip(lines[first:], rows[first:], strict=True):
        if any(cells[1:]) and not _SEPARATOR.fullmatch(line):
            yield " ".join(line.strip("|").split()), _wording(cells, columns)


def _is_header(cells: Sequence[str]) -> bool:
    """Return whether each cell after the first one is a name: not empty and without digits."""
    return all(cell and not re.search(r"\d", cell) for cell in cells[1:])


def cells_of(line: str) -> list[str]:
    """Return the cells of a row of a Markdown table."""
    cells: list[str] = []
    for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
        cells.append(cell.strip())
    return cells


def _wording(cells: Sequence[str], columns: Sequence[str]) -> str:
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
