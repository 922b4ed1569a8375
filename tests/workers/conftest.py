"""Fixtures of the workers' tests: every opened database is closed, on every version of Python.
Python itself warns only from 3.13.
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
    """Set up first, so that it checks last, after the fixtures that close databases."""
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
