"""Long work releases the interpreter lock between its items."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from threading import Event, Thread

import pytest

from handoff_queue.shared.broker.gil_yielding import AT_A_TIME, with_pauses


@pytest.fixture
def long_switch_interval() -> Iterator[None]:
    """Let a thread keep the interpreter lock until it releases the lock."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(60)
    yield
    sys.setswitchinterval(before)


def test_all_items_come_in_their_order() -> None:
    assert list(with_pauses(range(3 * AT_A_TIME + 1))) == list(range(3 * AT_A_TIME + 1))


@pytest.mark.usefixtures("long_switch_interval")
def test_another_thread_runs_before_the_last_item() -> None:
    may_go, has_gone = Event(), Event()

    def go() -> None:
        may_go.wait()
        has_gone.set()

    other = Thread(target=go)
    other.start()
    may_go.set()

    is_seen = any(has_gone.is_set() for _ in with_pauses(range(10_000 * AT_A_TIME)))

    other.join()
    assert is_seen, "while there were items left"
