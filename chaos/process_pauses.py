"""Pauses of processes by SIGSTOP and SIGCONT, with their real durations. On a busy machine a
pause lasts longer than planned.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace

from handoff_queue.chaos.strikes import Strike


@dataclass(slots=True)
class Stops:
    """The current pauses. `strikes` holds each pause with its planned duration until it ends,
    and then with its real duration.
    """

    strikes: list[Strike]
    _by_pid: dict[int, Strike] = field(default_factory=dict)

    @property
    def targets(self) -> set[str]:
        """Names of the paused processes."""
        return {strike.target for strike in self._by_pid.values()}

    def add(self, pid: int, strike: Strike) -> None:
        """Note that this strike stopped a process."""
        self._by_pid[pid] = strike
        self.strikes.append(strike)

    def wake(self, *, only_due: bool = False) -> None:
        """Continue paused processes with SIGCONT.

        Args:
            only_due: True to continue only processes whose planned pause is over.
        """
        for pid, strike in list(self._by_pid.items()):
            if not only_due or time.time() >= strike.at + strike.lasts_s:
                del self._by_pid[pid]
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
                self.strikes[self.strikes.index(strike)] = replace(
                    strike, lasts_s=time.time() - strike.at
                )
