"""Read the items of a repeated step from a file: the lines of a text, or the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.text.csv_tables import DELIMITERS, iterate_rows, read_text
from handoff_queue.supervisor.text.plain_yaml import convert_path
from handoff_queue.supervisor.workflows.expansion import MAX_STEPS
from handoff_queue.supervisor.workflows.template import OWN_NAMES

MAX_BYTES = 20_000_000
"""Most bytes of one file: the default limit of a document."""


@dataclass(frozen=True, slots=True)
class Items:
    """The items over which a workflow repeats steps: lines or rows. One of the two is empty."""

    lines: tuple[str, ...] = ()
    rows: tuple[Mapping[str, str], ...] = ()


def read_items(path: str | Path) -> Items:
    """Return the rows of a .csv or .tsv with a header, or the lines of any other text.

    Blank lines and rows are left out.

    Raises:
        UserError: the file cannot be read, is too large, or is not text. `UserError` also means
            that it has no items, too many items, or a header or row that is not valid.
    """
    path = convert_path(path)
    text = read_text(
        path,
        MAX_BYTES,
        if_larger="split it, and give each part to its own job",
        allowed="lines of text, or a .csv or .tsv with a header",
    )
    delimiter = DELIMITERS.get(path.suffix.lower())
    if delimiter is None:
        lines = [line for line in text.split("\n") if line.strip()]
        items = Items(lines=tuple(lines))
    else:
        rows = [row for _, row in iterate_rows(path, text, delimiter, OWN_NAMES)]
        items = Items(rows=tuple(rows))
    count = len(items.lines) + len(items.rows)
    if not count:
        missing = "lines" if delimiter is None else "rows below its header"
        raise UserError(f"{path} holds no {missing}; add some")
    if count > MAX_STEPS:
        raise UserError(
            f"{path} holds {count:,} items, at most {MAX_STEPS:,} are allowed; split it, and give"
            " each part to its own job"
        )
    return items
