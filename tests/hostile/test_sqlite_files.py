"""A hostile SQLite file runs nothing, and is read whole or refused with one line, soon."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.gates.facts import read_facts

TABLE = "CREATE TABLE facts(subject, attribute, value, unit)"
ROW = "INSERT INTO facts VALUES ('Everest', 'height', '8849', 'm')"
ENDLESS = "WITH RECURSIVE n(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
SECONDS = 10.0


def made(*statements: str) -> Callable[[Path], None]:
    """Return a function that makes a database with these statements."""

    def make(file: Path) -> None:
        with sqlite3.connect(file) as database:
            for statement in (TABLE, ROW, *statements):
                database.execute(statement)
        database.close()

    return make


def changed(at: int, data: bytes) -> Callable[[Path], None]:
    """Return a function that makes a database and overwrites some bytes."""

    def make(file: Path) -> None:
        made()(file)
        content = bytearray(file.read_bytes())
        content[at : at + len(data)] = data
        file.write_bytes(content)

    return make


def cut(size: int) -> Callable[[Path], None]:
    """Return a function that makes a database and keeps only its first bytes."""

    def make(file: Path) -> None:
        made()(file)
        file.write_bytes(file.read_bytes()[:size])

    return make


WITH_SCHEMA = "PRAGMA writable_schema = 1"
REFUSED: dict[str, Callable[[Path], None]] = {
    "a view in place of the table": made("DROP TABLE facts", f"CREATE VIEW facts AS {ENDLESS}"),
    "a definition that is a view": made(
        WITH_SCHEMA,
        f"UPDATE sqlite_schema SET type = 'view', sql = 'CREATE VIEW facts AS {ENDLESS}'",
    ),
    "a definition that is not SQL": made(WITH_SCHEMA, "UPDATE sqlite_schema SET sql = 'owned('"),
    "a definition of another page": made(WITH_SCHEMA, "UPDATE sqlite_schema SET rootpage = 999999"),
    "a definition of the first page": made(WITH_SCHEMA, "UPDATE sqlite_schema SET rootpage = 1"),
    "a virtual table": made(
        "DROP TABLE facts",
        "CREATE VIRTUAL TABLE facts USING fts5(subject, attribute, value, unit)",
    ),
    "a generated column": made(
        "DROP TABLE facts",
        "CREATE TABLE facts(subject, attribute, unit, value AS (hex(unit)))",
        "INSERT INTO facts VALUES ('a', 'b', 'c')",
    ),
    "a BLOB": made("UPDATE facts SET value = zeroblob(1000000)"),
    "a NUL in a text": made("UPDATE facts SET value = 'a' || char(0) || 'b'"),
    "a text that is not UTF-8": made("UPDATE facts SET value = CAST(x'ff' AS TEXT)"),
    "a value of 200,000 characters": made("UPDATE facts SET value = printf('%.*c', 200000, 'x')"),
    "a missing column": made("ALTER TABLE facts DROP COLUMN value"),
    "no rows": made("DELETE FROM facts"),
    "half a page": cut(2_000),
    "only the magic": cut(16),
    "a page size of zero": changed(16, b"\0\0"),
    "a page size of three": changed(16, b"\0\3"),
    "a schema of another format": changed(44, b"\xff\xff\xff\xff"),
    "an encoding that does not exist": changed(56, b"\0\0\0\x63"),
    "a table of broken cells": changed(4_096, b"\x0d\xff\xff\xff\xff\xff\xff\xff"),
}
"""Files that hold no facts."""
HARMLESS: dict[str, Callable[[Path], None]] = {
    "a trigger": made(
        "CREATE TRIGGER t AFTER INSERT ON facts BEGIN SELECT load_extension('owned'); END"
    ),
    "another table of the same name in capital letters": made("CREATE VIEW seen AS SELECT 1"),
    "an index over an expression": made("CREATE INDEX i ON facts(abs(value))"),
    "a journal that is named in the file": made("PRAGMA journal_mode = PERSIST"),
}
"""Files whose facts are read, and nothing else."""


@pytest.mark.parametrize("kind", REFUSED)
def test_a_hostile_database_is_refused_with_one_line(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "facts.db"
    REFUSED[kind](file)
    before, begun = file.read_bytes(), time.thread_time()

    with pytest.raises(UserError) as caught:
        read_facts(file, table="facts")

    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1_000
    assert time.thread_time() - begun < SECONDS
    assert file.read_bytes() == before


@pytest.mark.parametrize("kind", HARMLESS)
def test_only_the_rows_of_the_table_are_read(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "facts.db"
    HARMLESS[kind](file)
    before = file.read_bytes()

    (fact,) = read_facts(file, table="facts").facts

    assert (fact.subject, fact.value) == ("Everest", "8849")
    assert file.read_bytes() == before
