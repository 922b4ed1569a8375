"""Fixtures of the workers' tests. A test fails if it leaves an SQLite connection open.

Python warns about such connections only from version 3.13.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.workers.index.index import DocumentIndex


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        return connection.total_changes >= 0
    except sqlite3.ProgrammingError:
        return False


@pytest.fixture(autouse=True)
def every_database_is_closed() -> Iterator[None]:
    """Fail if the test leaves a database open. This fixture starts first and so checks last.

    An audit hook would see each connection, too. But it stays, and slows down all later tests.
    """
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def connect_and_record(*arguments: Any, **more: Any) -> sqlite3.Connection:
        opened.append(connect(*arguments, **more))
        return opened[-1]

    with pytest.MonkeyPatch.context() as changes:
        changes.setattr(sqlite3, "connect", connect_and_record)
        yield
    still_open = [connection for connection in opened if _is_open(connection)]
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
