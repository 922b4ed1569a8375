"""Rows of tables: CSV files, Markdown tables, and tables of web pages (cells between " | ")."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import PurePosixPath

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
"""Delimiter by file suffix. A CSV file with more semicolons than commas in its header has `;`."""
_MOST_QUOTE_CHARS = 2_000
"""The longest quote that a citation takes (`shared.types.handoff.Citation`)."""
_SEPARATOR = re.compile(r"[\s|:-]*-[\s|:-]*")


def delimiter_of(source: str, text: str) -> str | None:
    """Return the character between the fields of a table file, or None for any other file."""
    delimiter = _DELIMITERS.get(PurePosixPath(source).suffix.lower())
    header = text.partition("\n")[0]
    if delimiter == "," and header.count(";") > header.count(","):
        return ";"
    return delimiter


def rows_of_file(text: str, delimiter: str, *, is_start: bool) -> Iterator[tuple[str, str]]:
    """Yield the quote and the wording of each row of a table file.

    `is_start`: the text begins with the header of the file. Otherwise the first row may be cut,
    and the columns have no names.
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
                if is_start:
                    columns = cells
                else:
                    columns = []
            elif any(cells) and len(quote) <= _MOST_QUOTE_CHARS:
                yield quote, _wording(cells, columns)
    except csv.Error:
        return


def is_row(line: str) -> bool:
    """Return whether a line of text looks like a row of a table."""
    return line.startswith("|") or " | " in line


def rows_of_table(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the quote and the wording of each row below the header of a table."""
    rows = [cells_of(line) for line in lines]
    columns: list[str] = []
    if len(rows) > 1 and not any(re.search(r"\d", cell) or not cell for cell in rows[0][1:]):
        columns = rows[0]
    first = 0
    if columns:
        first = 1
    for line, cells in zip(lines[first:], rows[first:], strict=True):
        if any(cells[1:]) and not _SEPARATOR.fullmatch(line):
            yield " ".join(line.strip("|").split()), _wording(cells, columns)


def cells_of(line: str) -> list[str]:
    """Return the cells of a row."""
    cells: list[str] = []
    for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
        cells.append(cell.strip())
    return cells


def _wording(cells: Sequence[str], columns: Sequence[str]) -> str:
    """Return a row in words: `Ember: Price $1,099, Weight 1.9 kg`."""
    first, *others = cells
    pairs = zip_longest(columns[1 : len(cells)], others, fillvalue="")
    values = ", ".join(f"{name} {value}".strip() for name, value in pairs if value)
    if first and values:
        return f"{first}: {values}"
    return first or values
