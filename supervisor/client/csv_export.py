"""Writes the rows of a repeated step as CSV or JSON lines. A cell never begins a formula."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue

from handoff_queue.supervisor.client.repeated_step_rows import COLUMNS, Row

_FORMULA = re.compile(r"^[=@+\t\n＝＠＋－]|^-(?![0-9.]+$)")
"""First characters of a cell that a spreadsheet would run as a formula. A spreadsheet of East Asia
also takes those of full width (OWASP, "CSV Injection").
"""


def rows_as_text(rows: Sequence[Row], target: Path) -> str:
    """Return the rows as the text of a file: JSON lines for `.jsonl`, else a CSV table."""
    if target.suffix.lower() == ".jsonl":
        return "".join(f"{row.to_json()}\n" for row in rows)
    return _table(rows)


def _table(rows: Sequence[Row]) -> str:
    """Return a CSV table. Each property of an object is a column; any other output is `output`."""
    fields: dict[str, None] = {}
    for row in rows:
        fields.update(dict.fromkeys(_named(row.output)))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header: list[JsonValue] = [*COLUMNS]
    for field in fields:
        if field in COLUMNS:
            header.append(f"output.{field}")
        else:
            header.append(field)
    writer.writerow(map(_cell, header))
    for row in rows:
        outputs = _named(row.output)
        values: list[JsonValue] = [row.key, row.n, row.step, row.status, row.why]
        values += map(outputs.get, fields)
        writer.writerow(map(_cell, values))
    return text.getvalue()


def _named(output: JsonValue) -> dict[str, JsonValue]:
    if isinstance(output, dict):
        return output
    if output is None:
        return {}
    return {"output": output}


def _cell(value: JsonValue) -> str:
    """Return the text of a cell. A text that a spreadsheet would run as a formula begins with
    `'`. A carriage return becomes a line feed: `csv` does not quote it, so it would end the row.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        text = value.replace("\r\n", "\n").replace("\r", "\n")
    else:
        text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and _FORMULA.search(text):
        return f"'{text}"
    return text
