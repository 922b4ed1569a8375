"""An event loop in a thread of its own, for threads that wait for what comes over hundreds of connections."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any

CLOSE_WITHIN_S = 5.0
"""What is left of the work when a process ends; it is dropped after that."""


class EventLoop:
    """Begins with the first piece of work, in the process that has it, and ends with `close`, or with the process."""

    def __init__(self, name: str, close: Callable[[], Awaitable[None]]) -> None:
        """`name`: the thread's; `close`: what gives back, in the loop, whatever was opened there."""
        self._name = name
        self._close = close
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Have the loop do this, in the caller's context. Who cancels what is given back cancels the work at once."""
        with self._lock:
            loop = self._loop or self._begun()
        return asyncio.run_coroutine_threadsafe(work, loop)

    def close(self) -> None:
        """Cancel what is still at work, and end the thread."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        atexit.unregister(self.close)
        asyncio.run_coroutine_threadsafe(self._end(), loop).add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
        thread.join(CLOSE_WITHIN_S)
        if not thread.is_alive():
            loop.close()

    def _begun(self) -> asyncio.AbstractEventLoop:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
        self._thread.start()
        atexit.register(self.close)
        return self._loop

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._close()
