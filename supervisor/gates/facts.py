"""Read a user's own facts from a CSV or SQLite table.

The client reads the whole table when it makes a job. If cells are not valid, no fact is taken,
and the error lists the problems. SQL that is stored in a SQLite file does not run: the
connection may only SELECT named columns of one plain table.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from handoff_queue.shared.text.unicode_text import has_lone_surrogate, to_nfc
from handoff_queue.shared.text.word_forms import suggest_name
from handoff_queue.shared.types.errors import ManyProblems, UserError
from handoff_queue.shared.types.gates import MAX_FACTS, FactTable, KnownFact
from handoff_queue.shared.types.message import Message
from handoff_queue.supervisor.text.csv_tables import DELIMITERS, iterate_rows, read_text
from handoff_queue.supervisor.text.periods import parse_periods
from handoff_queue.supervisor.text.plain_yaml import convert_path

MAX_BYTES = 5_000_000
"""Most bytes of a text file, and of one value in a SQLite file."""
MAX_PROBLEMS = 10
"""Most problems in one error."""
MAX_CELL_CHARS = 500
"""Most characters of a cell."""
MAX_READING_S = 10.0
"""Most seconds to read a SQLite file. A plain table of a few thousand rows takes milliseconds."""
_MAGIC = b"SQLite format 3\0"
_NEEDED = ("subject", "attribute", "value")
_OTHERS = ("unit", "date", "source")
_NAME = re.compile(r"[^\W\d][\w $.-]{0,62}")
"""Name of a table or column in SQLite."""
_CREATES_TABLE = re.compile(r"CREATE\s+TABLE\b", re.IGNORECASE)
"""The statement of a plain table, which is not a virtual table."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=80)]
_Cells = Mapping[str, str]
"""Cells of a row by part: subject, attribute, value, unit, date and source."""
_Placed = tuple[str, _Cells]
"""Place of a row, for errors, and its cells."""


class FactsFile(Message):
    """The field `facts` of a file of gates: it names a table of facts."""

    file: Annotated[str, StringConstraints(min_length=1, max_length=1_000)]
    table: Name | None = None
    """Table in a SQLite file."""
    columns: dict[str, Name] = Field(default_factory=dict)
    """Names of the table's columns for subject, attribute, value, unit, date and source; by
    default these words.
    """


def read_facts(
    file: str | Path, columns: Mapping[str, str] | None = None, table: str | None = None
) -> FactTable:
    """Return the facts of a .csv or .tsv with a header, or of a table of a SQLite file.

    Args:
        columns: names of the table's columns for subject, attribute, value, unit, date and
            source; None: these words.
        table: name of the table in a SQLite file; None for a text file.

    Raises:
        UserError: the file cannot be read, is too large, or has no such table, no facts or too
            many. Or a needed column is missing, or cells are not valid. The message has one line
            for each such cell.
    """
    file = convert_path(file)
    if columns is not None and not isinstance(columns, Mapping):
        raise UserError(f"columns must be a mapping of names, not {type(columns).__name__}")
    named_columns = dict(columns or {})
    parts = (*_NEEDED, *_OTHERS)
    for part in named_columns:
        if part not in parts:
            advice = suggest_name(part, parts, otherwise="correct the columns")
            raise UserError(f"a fact has no {part!r:.80}: {advice}")
    is_database = _is_sqlite(file)
    if is_database and table is None:
        raise UserError(f"{file} is a SQLite file: name its table with `table: ...`")
    if table is not None and not is_database:
        raise UserError(
            f"{file} is not an SQLite file, so it has no table {table!r:.80}: leave out `table`"
        )
    all_columns = {part: named_columns.get(part, part) for part in parts}
    if table is not None:
        rows = _iterate_database_rows(file, table, all_columns, {*named_columns})
    else:
        rows = _iterate_text_rows(file, all_columns, {*named_columns})
    # otherwise a table that is too long stays open until the garbage collector runs
    with closing(rows):
        return _build_facts(file, rows, all_columns)


def _is_sqlite(file: Path) -> bool:
    if file.exists() and not file.is_file():
        raise UserError(f"the facts {file} are not a regular file; name a file")
    try:
        with file.open("rb") as stream:
            return stream.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise UserError(
            f"the facts {file} cannot be read ({error.strerror}); check the path and its"
            " permissions"
        ) from error


def _build_facts(file: Path, rows: Iterable[_Placed], columns: Mapping[str, str]) -> FactTable:
    """Return the facts in the rows.

    Raises:
        UserError: there is no row, there are too many, or cells are not valid.
    """
    facts: list[KnownFact] = []
    problems: list[str] = []
    for where, cells in rows:
        if len(facts) + len(problems) >= MAX_FACTS:
            raise UserError(
                f"{file} has more than {MAX_FACTS:,} facts; keep the facts that answers mention"
            )
        row_problems: list[str] = []
        for part, column in columns.items():
            problem = _find_problem(part, cells.get(part, ""))
            if problem:
                row_problems.append(f"{where}: column {column!r:.80} {problem}")
        if row_problems:
            problems += row_problems
        else:
            facts.append(_build_fact(where, cells))
    if problems:
        more = len(problems) - MAX_PROBLEMS
        problems = problems[:MAX_PROBLEMS]
        if more > 0:
            problems.append(f"and {more:,} more")
        raise ManyProblems(problems)
    if not facts:
        raise UserError(f"{file} holds no facts; add rows, or leave the table out")
    return FactTable(facts=tuple(facts))


def _find_problem(part: str, cell: str) -> str | None:
    """Return the problem of a cell and its correction, or None."""
    if part in _NEEDED and not cell:
        return "is empty; fill it in, or remove the row"
    if len(cell) > MAX_CELL_CHARS:
        return (
            f"has {len(cell):,} characters, at most {MAX_CELL_CHARS} are allowed; a fact has one"
            " value"
        )
    if has_lone_surrogate(cell):
        return "holds a lone surrogate; write the character itself"
    if "\0" in cell:
        return "holds a BLOB or a NUL character; write a text"
    if part == "date" and cell and not parse_periods(cell):
        return (
            f"has a date that cannot be read ({cell!r:.60}); write 2024, 2024-03, 2024-03-31 or Q1"
            " 2024"
        )
    return None


def _build_fact(where: str, cells: _Cells) -> KnownFact:
    fields: dict[str, Any] = {part: to_nfc(cell) for part, cell in cells.items() if cell}
    try:
        return KnownFact(**{"source": where[-MAX_CELL_CHARS:], **fields})
    except UserError as error:  # an internal error: the cells were checked
        raise AssertionError(f"a checked row is not a fact: {where}") from error


def _iterate_text_rows(
    file: Path, columns: Mapping[str, str], named_parts: set[str]
) -> Generator[_Placed, None, None]:
    """Yield the rows of a text file.

    Args:
        named_parts: the parts whose columns the user named.
    """
    allowed = "a .csv or .tsv with a header, or a SQLite file"
    text = read_text(
        file, MAX_BYTES, if_larger="keep the facts that answers mention", allowed=allowed
    )
    delimiter = DELIMITERS.get(file.suffix.lower())
    if delimiter is None:
        raise UserError(f"{file} is not a table; give {allowed}")
    for line, row in iterate_rows(file, text, delimiter):
        cells: dict[str, str] = {}
        for part, column in columns.items():
            if column in row:
                cells[part] = row[column].strip()
            elif part in _NEEDED or part in named_parts:
                raise _build_missing_column_error(file, column, part, row)
        yield f"{file.name}:{line}", cells


def _build_missing_column_error(
    file: Path, column: str, part: str, present_columns: Iterable[str]
) -> UserError:
    advice = suggest_name(
        column, present_columns, otherwise=f"name the column of the {part} under `columns`"
    )
    return UserError(f"{file} has no column {column!r:.80}: {advice}")


def _iterate_database_rows(
    file: Path, table: str, columns: Mapping[str, str], named_parts: set[str]
) -> Generator[_Placed, None, None]:
    """Yield the rows of a table in a SQLite file, at most one more than `MAX_FACTS`.

    Args:
        named_parts: the parts whose columns the user named.
    """
    for name in (table, *columns.values()):
        if not _NAME.fullmatch(name):
            raise UserError(
                f"{file}: {name!r:.80} is not a name of a table or a column; use letters, digits,"
                " spaces and _ $ . -"
            )
    until = time.monotonic() + MAX_READING_S
    uri = f"{file.resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BYTES)
            database.set_progress_handler(lambda: time.monotonic() > until, 10_000)
            parts = _read_stored_parts(file, database, table, columns, named_parts)
            database.set_authorizer(_create_authorizer(table))
            selected = ", ".join(f'"{table}"."{columns[part]}"' for part in parts)
            cursor = database.execute(f'SELECT {selected} FROM "{table}" LIMIT {MAX_FACTS + 1}')  # noqa: S608 (names are checked above)
            for number, row in enumerate(cursor, start=1):
                cells = {part: _format_cell(value) for part, value in zip(parts, row, strict=True)}
                yield f"{file.name}, {table}, row {number}", cells
    except sqlite3.Error as error:
        problem = str(error).replace("interrupted", f"it takes longer than {MAX_READING_S:.0f} s")
        raise UserError(
            f"{file}: table {table!r:.80} cannot be read ({problem:.200}); name a plain table and"
            " its columns"
        ) from error


def _read_stored_parts(
    file: Path,
    database: sqlite3.Connection,
    table: str,
    columns: Mapping[str, str],
    named_parts: set[str],
) -> list[str]:
    """Return the parts for which the table has stored columns.

    Computed columns do not count, so that the file's own expressions do not run.

    Raises:
        UserError: there is no such plain table, or a column that is needed or named is missing.
    """
    entries = database.execute(
        "SELECT type, sql FROM sqlite_schema WHERE name = ? COLLATE NOCASE", (table,)
    )
    kind, statement = entries.fetchone() or ("", "")
    if kind != "table" or not _CREATES_TABLE.match(statement or ""):
        raise UserError(
            f"{file}: {table!r:.80} is not a plain table; name a table that stores its rows"
        )
    stored_columns: list[str] = []
    for _, name, _, _, _, _, hidden in database.execute(f'PRAGMA table_xinfo("{table}")'):
        if not hidden:
            stored_columns.append(name)
    stored_lowercase = {name.casefold() for name in stored_columns}
    parts: list[str] = []
    for part, column in columns.items():
        if column.casefold() in stored_lowercase:
            parts.append(part)
        elif part in _NEEDED or part in named_parts:
            raise _build_missing_column_error(file, column, part, stored_columns)
    return parts


def _create_authorizer(table: str) -> Any:
    """Return an authorizer for SQLite that allows SELECT of the columns of one table and
    denies functions, other tables and writes.
    """

    def authorize(
        action: int, of: str | None, _column: str | None, _database: str | None, _by: str | None
    ) -> int:
        if action == sqlite3.SQLITE_SELECT:
            return sqlite3.SQLITE_OK
        is_own_table = of is not None and of.casefold() == table.casefold()
        if action == sqlite3.SQLITE_READ and is_own_table:
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_DENY

    return authorize


def _format_cell(value: object) -> str:
    """Return a value as text. NULL is '', and a BLOB is a NUL character, which is not valid."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return "\0"
    return str(value).strip()
