"""Rows of tables: Markdown tables, tables of web pages (cells between " | "), and CSV files."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import PurePosixPath

DELIMITERS = {".csv": ",", ".tsv": "\t"}
"""By the suffix of a file name. A .csv with more semicolons than commas in its header has `;`."""
LONGEST_QUOTE = 2_000
"""The longest quote that a citation takes (`shared.types.handoff.Citation`)."""
_SEPARATOR = re.compile(r"[\s|:-]*-[\s|:-]*")
_PLAIN_NAMES = frozenset({"", "value", "values"})
"""Names of a second column that tell a reader nothing."""


def delimiter_of(source: str, text: str) -> str | None:
    """Return what separates the fields of a table file. None: the source is no table file."""
    delimiter = DELIMITERS.get(PurePosixPath(source).suffix.lower())
    header = text.partition("\n")[0]
    if delimiter == "," and header.count(";") > header.count(","):
        return ";"
    return delimiter


def rows_of_file(
    text: str, delimiter: str, *, starts_whole: bool, ends_whole: bool
) -> Iterator[tuple[str, str]]:
    """Yield a quote and its wording for each row below the header of a table file.

    A part of a file that does not start with the header has no names of columns, and its first row
    may be cut: the row is left out, as is a last row that may be cut.
    """
    lines = text.splitlines(keepends=True)
    if not ends_whole and lines and not lines[-1].endswith("\n"):
        lines.pop()
    reader = csv.reader(lines, delimiter=delimiter)
    columns: list[str] = []
    begin = number = 0
    try:
        for number, cells in enumerate(reader):
            quote = " ".join("".join(lines[begin : reader.line_num]).split())
            begin = reader.line_num
            if number == 0:
                columns = [" ".join(cell.split()) for cell in cells] if starts_whole else []
            elif any(cell.strip() for cell in cells) and len(quote) <= LONGEST_QUOTE:
                yield quote, wording([" ".join(cell.split()) for cell in cells], columns)
    except csv.Error:
        return


def table_lines(lines: Sequence[str]) -> dict[int, list[str] | None]:
    """Return the names of the columns for each line of a table, by the number of the line.

    None stands for a header and for the line below it; [] for a row of a table without a header.
    """
    found: dict[int, list[str] | None] = {}
    number = 0
    while number < len(lines):
        end = _end_of_table(lines, number)
        if end > number:
            has_line = number + 1 < end and _SEPARATOR.fullmatch(lines[number + 1].strip())
            header = cells_of(lines[number])
            is_header = has_line or (end - number > 1 and _names_columns(header))
            first = number + 1 if is_header else number
            rows = [n for n in range(first, end) if not _SEPARATOR.fullmatch(lines[n].strip())]
            found |= dict.fromkeys(range(number, end), None)
            found |= dict.fromkeys(rows, header if is_header else [])
        number = max(end, number + 1)
    return found


def wording(cells: Sequence[str], columns: Sequence[str]) -> str:
    """Return a row in words: `Ember: Price $1,099, Weight 1.9 kg`."""
    first, *others = cells
    names = columns[1:]
    if len(columns) == 2 and names[0].lower() in _PLAIN_NAMES:
        names = []
    pairs = zip_longest(names[: len(others)], others, fillvalue="")
    values = [f"{name} {value}".strip() for name, value in pairs if value]
    return f"{first}: {', '.join(values)}" if first and values else first or ", ".join(values)


def cells_of(line: str) -> list[str]:
    """Return the cells of a row of a Markdown table, or of a table of a web page."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def _end_of_table(lines: Sequence[str], first: int) -> int:
    """Return the number of the line after a table that begins here; `first`: there is none."""
    if lines[first].lstrip().startswith("|"):
        end = first
        while end < len(lines) and lines[end].lstrip().startswith("|"):
            end += 1
        return end
    count = len(cells_of(lines[first]))
    end = first
    while end < len(lines) and _is_bare_row(lines[end], count):
        end += 1
    return end if end - first > 1 else first


def _is_bare_row(line: str, count: int) -> bool:
    """Whether a line is a row without outer bars: two or more cells, as many as in the first row."""
    is_line = "|" in line and _SEPARATOR.fullmatch(line.strip()) is not None
    return (" | " in line or is_line) and len(cells_of(line)) == count > 1


def _names_columns(cells: Sequence[str]) -> bool:
    """Whether a first row looks like names of columns: no cell is blank or holds a digit."""
    return all(cell and not re.search(r"\d", cell) for cell in cells)
