"""Read tables in text files: a header that names the columns, and rows below the header."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from handoff_queue.shared.documents.media_types import DocumentRefused, decode
from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.text.plain_yaml import read_bounded

DELIMITERS = {".csv": ",", ".tsv": "\t"}
"""Delimiter by suffix. If the first line of a .csv has no comma, the delimiter may be `;`,
which some spreadsheets write.
"""


def read_text(path: Path, max_bytes: int, *, if_larger: str, allowed: str) -> str:
    """Return the text of a file.

    Args:
        if_larger: advice for a file with more than `max_bytes` bytes.
        allowed: the files that the caller reads, for the error about a file that is not text.

    Raises:
        UserError: the file cannot be read, is too large, or is not text.
    """
    try:
        return decode(read_bounded(path, max_bytes, if_larger))
    except DocumentRefused as reason:
        raise UserError(f"{path} {reason}; give {allowed}") from reason


def iterate_rows(
    path: Path, text: str, delimiter: str, reserved_names: Collection[str] = ()
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows that are not blank, each with the number of its last line.

    Args:
        path: the file, for errors.
        reserved_names: names that no column may have.

    Raises:
        UserError: a row has not as many fields as the header, a column has no name, or a name is in
            `reserved_names` or there twice.
    """
    first = text.partition("\n")[0]
    if delimiter not in first and ";" in first and delimiter == ",":
        delimiter = ";"
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    try:
        for fields in reader:
            if not "".join(fields).strip():
                continue
            if header is None:
                header = _parse_header(f"{path}:{reader.line_num}", fields, reserved_names)
            elif len(fields) != len(header):
                problem = _find_row_problem(fields, header, delimiter)
                raise UserError(f"{path}:{reader.line_num}: {problem}")
            else:
                yield reader.line_num, dict(zip(header, fields, strict=True))
    except csv.Error as error:
        if "field larger than field limit" in str(error):
            raise UserError(
                f"{path}:{reader.line_num}: a field has more than {csv.field_size_limit():,}"
                " characters; close an open quote, or shorten the field and give its text as a"
                " document"
            ) from error
        raise UserError(
            f"{path}:{reader.line_num}: is not a table ({error}); close quotes, and write a quote"
            ' in a field as `""`'
        ) from error


def _find_row_problem(fields: Sequence[str], header: Sequence[str], delimiter: str) -> str:
    """Return the problem of a row that has not as many fields as the header."""
    counts = f"the row has {format_count(len(fields), 'field')}, the header {len(header)}"
    if len(fields) < len(header):
        missing = header[len(fields)]
        return f"{counts}; add {missing!r:.80}, or a `{delimiter}` for each field without a value"
    return f'{counts}; put a field that holds `{delimiter}` into quotes ("...")'


def _parse_header(where: str, fields: list[str], reserved_names: Collection[str]) -> list[str]:
    """Return the names of the columns, without line breaks and repeated blanks.

    Raises:
        UserError: a column has no name, or a name is reserved or there twice.
    """
    names = [" ".join(field.split()) for field in fields]
    earlier: set[str] = set()
    for place, name in enumerate(names):
        if not name:
            raise UserError(
                f"{where}: column {place + 1} has no name; give it one in the header, or remove the"
                " column"
            )
        if name in earlier:
            raise UserError(f"{where}: column {name!r:.80} is there twice; rename one")
        earlier.add(name)
        if name in reserved_names:
            raise UserError(
                f"{where}: a column cannot be called {name}, which stands for something else in"
                " every workflow; rename it"
            )
    return names
