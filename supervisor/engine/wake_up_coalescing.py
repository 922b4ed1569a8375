"""Coalescing of a job's wake-ups: one thread evaluates the job, one thread waits, and later
wake-ups join the waiting thread.

The events behind a wake-up are in the journal before the wake-up is sent. The waiting thread
has not read the journal yet, so it will read them. If its process dies, the sweeper wakes the
job, as after any lost wake-up. Only the reading, the first decision and its messages happen
one after the other. While the first thread runs a role, other threads may evaluate the job.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from handoff_queue.shared.types.ids import HandoffId, JobId

MAX_S = 5.0
"""Most seconds that a thread waits for its turn. After that it evaluates the job in parallel,
and the store keeps the writes consistent.
"""


@dataclass(slots=True)
class _Line:
    """Wake-ups of one job."""

    evaluating: threading.Lock = field(default_factory=threading.Lock)
    waiting: dict[HandoffId, None] | None = None
    """Suspects of the waiting wake-up and of the wake-ups that joined it; None if no thread
    waits.
    """


class WakeUpTicket:
    """The turn of a thread that evaluates a job, until `end`."""

    def __init__(
        self,
        coalescer: WakeUpCoalescer,
        job_id: JobId,
        line: _Line,
        suspects: Sequence[HandoffId],
        *,
        holds: bool,
    ) -> None:
        self.suspects = suspects
        self._coalescer = coalescer
        self._job_id = job_id
        self._line = line
        self._holds = holds

    def end(self) -> None:
        """End the turn, so that the waiting thread begins. A second call has no effect."""
        if self._holds:
            self._holds = False
            self._coalescer.end_turn(self._job_id, self._line)


class WakeUpCoalescer:
    """Coalesces the wake-ups of one process."""

    def __init__(self, most_s: float = MAX_S) -> None:
        self._most_s = most_s
        self._lines: dict[JobId, _Line] = {}
        self._lock = threading.Lock()

    @contextmanager
    def turn(
        self, job_id: JobId, suspects: Sequence[HandoffId] = ()
    ) -> Iterator[WakeUpTicket | None]:
        """Wait until no other thread evaluates the job, or for `most_s` seconds, and yield the
        turn.

        Yield None at once if another thread waits already. That thread evaluates the job with
        these suspects, too.
        """
        with self._lock:
            line = self._lines.setdefault(job_id, _Line())
            joins = line.waiting is not None
            line.waiting = (line.waiting or {}) | dict.fromkeys(suspects)
        if joins:
            yield None
            return
        holds = False
        try:
            holds = line.evaluating.acquire(timeout=self._most_s)
        finally:
            with self._lock:
                all_suspects, line.waiting = tuple(line.waiting or ()), None
                # The other thread ended its turn just after the timeout of this thread.
                if not holds and not line.evaluating.locked():
                    self._lines.pop(job_id, None)
        ticket = WakeUpTicket(self, job_id, line, all_suspects, holds=holds)
        try:
            yield ticket
        finally:
            ticket.end()

    def end_turn(self, job_id: JobId, line: _Line) -> None:
        """End the turn of a thread that holds the lock, and wake the waiting thread."""
        with self._lock:
            if line.waiting is None:
                del self._lines[job_id]
            line.evaluating.release()

    @property
    def jobs(self) -> int:
        """Return the number of jobs under evaluation."""
        return len(self._lines)
