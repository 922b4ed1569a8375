"""A user's known facts, as values and as a database."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from handoff_queue.shared.types.gates import FactTable, KnownFact

HEADER = ("subject", "attribute", "value", "unit", "date", "source")


def a_fact(
    value: str,
    unit: str | None = None,
    subject: str = "Eiffel Tower",
    attribute: str = "height",
    date: str | None = None,
    source: str = "survey.pdf",
) -> KnownFact:
    return KnownFact(
        subject=subject, attribute=attribute, value=value, unit=unit, date=date, source=source
    )


def a_table(*facts: KnownFact) -> FactTable:
    return FactTable(facts=facts)


def a_database(path: Path, *statements: str, rows: Sequence[tuple[object, ...]] = ()) -> Path:
    """Make a database with a table `facts` with the columns of HEADER, filled with `rows`."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"CREATE TABLE facts ({', '.join(HEADER)})")
        database.executemany("INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?)", rows)
        for statement in statements:
            database.execute(statement)
    return path
