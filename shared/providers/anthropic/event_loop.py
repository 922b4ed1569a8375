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
from typing import Any

END_WITHIN_S = 5.0
"""Seconds that running work may take at the end of a process; then it is dropped."""


BREATH_S = 0.0004
"""Delay in seconds for each connection that had data. With 500 streams, each is read five times a
second, and not for each word.
"""
LONGEST_BREATH_S = 0.2
"""Longest delay of a reply in seconds. Words are shown no more often than that."""


class BatchingSelector(selectors.DefaultSelector):
    """Polls less often when more connections have data, so that one read takes all words that
    arrived on a connection: ten words cost little more than one. With a few connections it polls
    at once.
    """

    def __init__(
        self, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__()
        self._now, self._sleep = now, sleep
        self._not_before = -inf

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Poll as all selectors do, at most `LONGEST_BREATH_S` later."""
        breath_s = self._not_before - self._now()
        if timeout is not None:
            breath_s = min(breath_s, timeout)
            timeout -= max(0.0, breath_s)
        if breath_s > 0:
            self._sleep(breath_s)
        ready = super().select(timeout)
        if (
            len(ready) > 1
            # after a read the loop polls again at once, and the few results of that poll must not end
            # the delay
        ):
            self._not_before = max(
                self._not_before, self._now() + min(LONGEST_BREATH_S, BREATH_S * len(ready))
            )
        return ready


class EventLoop:
    """Begins with the first piece of work, in the process that has it, and ends with the process.

    One is enough for a process, and the most where threads are greenlets: those are one
    thread, in which one loop can run.
    """

    def __init__(self, name: str) -> None:
        """Start the thread.

        Args:
            name: name of the thread.
        """
        self._name = name
        self._lock = threading.Lock()
        self._running: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None

    def run(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Run the coroutine in the loop, in the caller's context. Cancel the future to cancel the
        coroutine at once.

        Raises:
            RuntimeError: the limit of threads is reached.
        """
        with self._lock:
            if (
                self._running is None or not self._running[1].is_alive()
            ):  # as after a fork, which takes no threads along
                try:
                    self._running = self._begun()
                except RuntimeError:
                    work.close()
                    raise
            return asyncio.run_coroutine_threadsafe(work, self._running[0])

    def _begun(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        loop = asyncio.SelectorEventLoop(BatchingSelector())
        thread = threading.Thread(target=loop.run_forever, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            loop.close()
            raise
        atexit.unregister(self._end)
        atexit.register(self._end)
        return loop, thread

    def _end(self) -> None:
        """Cancel the running coroutines, and end the thread."""
        with self._lock:
            running, self._running = self._running, None
        if running is None or not running[1].is_alive():
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
