"""What tests of the workers share: whoever opens a database closes it, on every Python. Only
from 3.13 does Python itself say so.
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


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "sqlite3.connect/handle":
        _opened.append(arguments[0])


sys.addaudithook(_note)


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        return connection.total_changes >= 0
    except sqlite3.ProgrammingError:
        return False


@pytest.fixture(autouse=True)
def every_database_is_closed() -> Iterator[None]:
    """The first fixture to be set up, so the last to look: after those that close what a test used."""
    _opened.clear()
    yield
    left, _opened[:] = [connection for connection in _opened if _is_open(connection)], []
    for connection in left:
        connection.close()
    assert not left, "a test left databases open: take `index` or `indexes`"


@pytest.fixture
def indexes() -> Iterator[Callable[[Path], DocumentIndex]]:
    """Makes indexes in any folder; they are closed with the test."""
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
