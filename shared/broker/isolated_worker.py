"""The worker of our Celery apps, and the exit of its process.

Python waits for every thread that is not a daemon, and for every thread of an executor, before
a process ends. A user's tool may leave such a thread behind, for example an
`asyncio.to_thread` call that hangs. No job needs its result, so this worker does not wait.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from celery.apps.worker import Worker

LAST_S = 2.0
"""Seconds from the end of the main thread to the forced end of the process."""


def limit_wait_for_threads(exit_code: int) -> None:
    """Let this process, once its main thread ends, end within `LAST_S` seconds.

    Call this when the work of the process is done. A process that ends without its threads
    ends with `exit_code`.
    """
    # Python 3.12 starts no thread in the hook, so the thread starts now and waits for the hook
    main_thread_ended = threading.Event()
    threading.Thread(
        target=_end, args=(main_thread_ended, exit_code), name="end", daemon=True
    ).start()
    # Python has no public hook that runs before it waits for threads: `atexit` functions run
    # after that.
    threading._register_atexit(main_thread_ended.set)  # type: ignore[attr-defined]


def _end(main_thread_ended: threading.Event, exit_code: int) -> None:
    main_thread_ended.wait()
    time.sleep(LAST_S)
    os._exit(exit_code)


class IsolatedWorker(Worker):  # type: ignore[misc]
    """Celery's worker. It sets up our logging before its first line, and writes its number of slots
    into the app's settings. It ends even if a tool has left a thread behind.
    """

    def start(self) -> None:
        """Run until the worker is told to stop."""
        super().start()
        limit_wait_for_threads(self.exitcode or 0)

    def on_before_init(self, **options: Any) -> None:
        """Set up logging first, because Celery may warn here that the worker runs as root."""
        self.app.log.setup_logging_subsystem(
            options.get("loglevel"), options.get("logfile"), hostname=self.hostname
        )
        super().on_before_init(**options)

    def on_start(self) -> None:
        """Write the number of slots into the settings, for the announcements of this process
        and the supervisor's role slots.
        """
        self.app.conf.worker_concurrency = self.concurrency
        super().on_start()
