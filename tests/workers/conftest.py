"""Fixtures of the workers' tests. A test fails if it leaves an SQLite connection open.

Python warns about such connections only from version 3.13.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.workers.index.index import DocumentIndex

_opened: list[sqlite3.Connection] = []


def _record_connection(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "sqlite3.connect/handle":
        _opened.append(arguments[0])


sys.addaudithook(_record_connection)


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        return connection.total_changes >= 0
    except sqlite3.ProgrammingError:
        return False


@pytest.fixture(autouse=True)
def every_database_is_closed() -> Iterator[None]:
    """Fail if the test leaves a database open. This fixture starts first and so checks last."""
    _opened.clear()
    yield
    still_open, _opened[:] = [connection for connection in _opened if _is_open(connection)], []
    for connection in still_open:
        connection.close()
    assert not still_open, "a test left databases open: take `index` or `indexes`"


@pytest.fixture
def indexes() -> Iterator[Callable[[Path], DocumentIndex]]:
    """Yield a function that makes an index in a folder. The indexes close with the test."""
    made: list[DocumentIndex] = []

    def make(folder: Path) -> DocumentIndex:
        made.append(DocumentIndex(folder))
        return made[-1]

    yield make
    for index in made:
        index.close()


@pytest.fixture
def index(tmp_path: Path, indexes: Callable[[Path], DocumentIndex]) -> DocumentIndex:
    return indexes(tmp_path)
