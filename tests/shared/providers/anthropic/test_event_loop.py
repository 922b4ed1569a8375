"""Calls run on an event loop in its own thread. A new thread replaces a dead one."""

from __future__ import annotations

import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from handoff_queue.shared.providers.anthropic.event_loop import (
    MAX_POLL_DELAY_S,
    BatchingSelector,
    EventLoop,
)
from handoff_queue.shared.types.model import compute_progress_interval_s

IN_A_CHILD = """
import os
from handoff_queue.shared.providers.anthropic.event_loop import EventLoop

async def work():
    pass

loop = EventLoop("reading")
loop.run(work()).result(10)
if child := os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
loop.run(work()).result(10)
os._exit(7)
"""


@pytest.fixture
def no_more_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        yield patched


def test_submitted_work_runs_once_a_thread_can_start_again(
    no_more_threads: pytest.MonkeyPatch,
) -> None:
    loop, results = EventLoop("reading"), list[str]()

    async def work() -> None:
        results.append("it")

    with pytest.raises(RuntimeError):
        loop.run(work())
    no_more_threads.undo()
    loop.run(work()).result(10)

    assert results == ["it"]


@pytest.mark.slow
def test_a_child_of_a_fork_has_a_separate_loop() -> None:
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IN_A_CHILD],
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )

    assert (process.returncode, process.stderr) == (7, "")


class SleepClock:
    """Clock that advances only while a caller sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.taken = list[float]()

    def sleep(self, seconds: float) -> None:
        self.taken.append(seconds)
        self.now += seconds


@pytest.fixture
def sleep_clock() -> SleepClock:
    return SleepClock()


@pytest.fixture
def selector_with(sleep_clock: SleepClock) -> Iterator[Callable[[int], BatchingSelector]]:
    """Yield a function that returns a selector with this number of readable connections."""
    with ExitStack() as stack:

        def connected(connections: int) -> BatchingSelector:
            selector = stack.enter_context(
                BatchingSelector(lambda: sleep_clock.now, sleep_clock.sleep)
            )
            reader, writer = map(stack.enter_context, socket.socketpair())
            for _ in range(connections):
                selector.register(stack.enter_context(reader.dup()), selectors.EVENT_READ)
            writer.send(b"word")
            return selector

        yield connected


def test_a_loop_with_one_ready_connection_polls_again_at_once(
    sleep_clock: SleepClock, selector_with: Callable[[int], BatchingSelector]
) -> None:
    selector = selector_with(1)

    counts = [len(selector.select(1.0)) for _ in range(3)]

    assert (counts, sleep_clock.taken) == ([1, 1, 1], [])


def test_a_loop_with_many_ready_connections_waits_before_it_polls_again(
    sleep_clock: SleepClock, selector_with: Callable[[int], BatchingSelector]
) -> None:
    selector = selector_with(50)

    counts = [len(selector.select(1.0)) for _ in range(2)]

    assert counts == [50, 50]
    assert sleep_clock.taken == pytest.approx([0.02])


def test_a_poll_with_few_ready_connections_does_not_shorten_the_wait(
    sleep_clock: SleepClock, selector_with: Callable[[int], BatchingSelector]
) -> None:
    selector = selector_with(50)
    many = list(selector.get_map().values())

    selector.select(1.0)
    for key in many[2:]:
        selector.unregister(key.fileobj)
    counts = [len(selector.select(0.0)), len(selector.select(1.0))]

    assert counts == [2, 2]
    assert sleep_clock.taken == pytest.approx([0.02])


def test_the_loop_never_waits_longer_than_its_timeout(
    sleep_clock: SleepClock, selector_with: Callable[[int], BatchingSelector]
) -> None:
    selector = selector_with(50)

    selector.select(1.0)
    counts = [len(selector.select(seconds)) for seconds in (0.001, 0.0, -1.0)]

    assert (counts, sleep_clock.taken) == ([50, 50, 50], [0.001])


def test_the_wait_of_the_loop_is_bounded_for_any_number_of_connections(
    sleep_clock: SleepClock, selector_with: Callable[[int], BatchingSelector]
) -> None:
    selector = selector_with(600)

    selector.select(None)
    selector.select(None)

    assert sleep_clock.taken == [MAX_POLL_DELAY_S]


@pytest.mark.parametrize(("waiting", "seconds"), [(1, 0.25), (125, 0.25), (500, 1.0), (5_000, 2.0)])
def test_more_waiting_calls_poll_less_often(waiting: int, seconds: float) -> None:
    assert compute_progress_interval_s(waiting) == pytest.approx(seconds)
