"""An event loop in a separate thread, which reads hundreds of connections for other threads."""

from __future__ import annotations

import asyncio
import atexit
import selectors
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from math import inf
from typing import Any, NamedTuple

END_WITHIN_S = 5.0
"""Seconds that the end of a process waits for cancelled coroutines."""
POLL_DELAY_S = 0.0004
"""Seconds between two polls for each connection that had data. With 500 streams, each stream
is read five times a second, and not for each word.
"""
MAX_POLL_DELAY_S = 0.2
"""Longest time between two polls in seconds. More frequent words would not be shown."""


class BatchingSelector(selectors.DefaultSelector):
    """A selector that polls less often when more connections have data. One read then takes
    all words that have arrived on a connection: ten words cost little more than one. With one
    connection it polls at once.
    """

    def __init__(
        self, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__()
        self._now, self._sleep = now, sleep
        self._not_before = -inf

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the ready connections as any selector does, at most `MAX_POLL_DELAY_S`
        later.
        """
        breath_s = self._not_before - self._now()
        if timeout is not None:
            breath_s = min(breath_s, timeout)
            timeout -= max(0.0, breath_s)
        if breath_s > 0:
            self._sleep(breath_s)
        ready = super().select(timeout)
        if len(ready) > 1:
            # After a read the loop polls again at once. The few results of that poll must not
            # shorten the delay.
            next_poll = self._now() + min(MAX_POLL_DELAY_S, POLL_DELAY_S * len(ready))
            self._not_before = max(self._not_before, next_poll)
        return ready


class _RunningLoop(NamedTuple):
    """An event loop and the thread that runs it."""

    loop: asyncio.AbstractEventLoop
    thread: threading.Thread


class EventLoop:
    """An event loop whose thread starts with the first coroutine and ends with the process.
    After a fork, the child process starts a new thread.

    A process uses one event loop. With greenlets it cannot use more: they all run in one
    thread, and one thread can run one loop.
    """

    def __init__(self, name: str) -> None:
        """Store the name of the thread. `run` starts the thread."""
        self._name = name
        self._lock = threading.Lock()
        self._running: _RunningLoop | None = None

    def run(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Run the coroutine in the loop, in the caller's context. If the caller cancels the
        future, the coroutine is cancelled at once.

        Raises:
            RuntimeError: the system cannot start another thread.
        """
        with self._lock:
            # A forked process has no threads of its parent.
            if self._running is None or not self._running.thread.is_alive():
                try:
                    self._running = self._start()
                except RuntimeError:
                    work.close()
                    raise
            return asyncio.run_coroutine_threadsafe(work, self._running.loop)

    def _start(self) -> _RunningLoop:
        loop = asyncio.SelectorEventLoop(BatchingSelector())
        thread = threading.Thread(target=loop.run_forever, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            loop.close()
            raise
        atexit.unregister(self._end)
        atexit.register(self._end)
        return _RunningLoop(loop, thread)

    def _end(self) -> None:
        """Cancel the running coroutines, and end the thread."""
        with self._lock:
            running, self._running = self._running, None
        if running is None or not running.thread.is_alive():
            return
        loop, thread = running
        asyncio.run_coroutine_threadsafe(_cancel_all(), loop).add_done_callback(
            lambda _: loop.call_soon_threadsafe(loop.stop)
        )
        thread.join(END_WITHIN_S)
        if not thread.is_alive():
            loop.close()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
