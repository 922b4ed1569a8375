"""The watchdog of a process: it ends the process if it freezes. The parent process starts it again.

The scripts that recover the work of a frozen process (`job_evaluation_lease.py`) use the same
limit, `FROZEN_AFTER_LEASES`.
"""

from __future__ import annotations

import faulthandler

from handoff_queue.shared.store.job_evaluation_lease import FROZEN_AFTER_LEASES


class Watchdog:
    """Ends the process unless a thread calls `reset` in time. A thread that holds the interpreter
    lock for too long prevents this call.
    """

    def __init__(self, lease_s: float, reset_every_s: float) -> None:
        """Make a watchdog that does not run before the first `reset`.

        Args:
            reset_every_s: longest time in seconds between two calls of `reset`.
        """
        self._limit_s = lease_s * FROZEN_AFTER_LEASES + reset_every_s

    def reset(self) -> None:
        """Start the watchdog's time again. `faulthandler` ends the process when the time is
        over, and writes the stacks of all threads to standard error.
        """
        faulthandler.dump_traceback_later(self._limit_s, exit=True)

    def stop(self) -> None:
        faulthandler.cancel_dump_traceback_later()
