"""What a step is repeated over, out of a file: the lines of a text, or the rows of a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from shared.documents.decoding import decode
from shared.documents.refused import Refused
from shared.wire.errors import UserError
from supervisor.workflows.bounded_file import bounded_bytes
from supervisor.workflows.template import OWN_NAMES
from supervisor.workflows.workflow import MOST_STEPS

MOST_BYTES = 20_000_000
"""Of one file: as for a document."""
_TABLES = {".csv": ",", ".tsv": "\t"}
"""By suffix: what stands between two fields. A .csv whose first line has no comma may have `;`, as some spreadsheets write it."""


@dataclass(frozen=True, slots=True)
class Items:
    """One of the two is empty."""

    lines: tuple[str, ...] = ()
    rows: tuple[Mapping[str, str], ...] = ()


def read_items(path: Path) -> Items:
    """Rows of a .csv or .tsv with a header, lines of any other text. Blank ones are left out.

    Raises:
        UserError: unreadable, too large, no text, nothing in it, too much in it; a header or a row that is broken.
    """
    data = bounded_bytes(path, MOST_BYTES, "split it, and give each part to its own job")
    try:
        text = decode(data)
    except Refused as reason:
        raise UserError(f"{path} {reason}; give lines of text, or a .csv or .tsv with a header") from reason
    delimiter = _TABLES.get(path.suffix.lower())
    found = (
        Items(lines=tuple(line for line in text.split("\n") if line.strip()))
        if delimiter is None
        else Items(rows=tuple(_rows(path, text, delimiter)))
    )
    count = len(found.lines) + len(found.rows)
    if not count:
        raise UserError(f"{path} holds no {'lines' if delimiter is None else 'rows below its header'}; add some")
    if count > MOST_STEPS:
        raise UserError(f"{path} holds {count:,} items, at most {MOST_STEPS:,} are taken; split it, and give each part to its own job")
    return found


def _rows(path: Path, text: str, delimiter: str) -> Iterator[dict[str, str]]:
    first = text.partition("\n")[0]
    if delimiter not in first and ";" in first and delimiter == ",":
        delimiter = ";"
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    try:
        for fields in reader:
            if not any(field.strip() for field in fields):
                continue
            if header is None:
                header = _checked_header(f"{path}:{reader.line_num}", fields)
            elif len(fields) != len(header):
                problem = f"the row has {len(fields)} fields, the header {len(header)}"
                raise UserError(f'{path}:{reader.line_num}: {problem}; put a field that holds `{delimiter}` into quotes ("...")')
            else:
                yield dict(zip(header, fields, strict=True))
    except csv.Error as error:
        raise UserError(f'{path}:{reader.line_num}: is no table ({error}); close quotes, and write a quote in a field as `""`') from error


def _checked_header(where: str, fields: list[str]) -> list[str]:
    names = [" ".join(field.split()) for field in fields]
    for place, name in enumerate(names):
        if not name:
            raise UserError(f"{where}: column {place + 1} has no name; give it one in the header, or remove the column")
        if name in names[:place]:
            raise UserError(f"{where}: column {name!r:.80} is there twice; rename one")
        if name in OWN_NAMES:
            raise UserError(f"{where}: a column cannot be called {name}, which stands for something else in every workflow; rename it")
    return names
