"""Wake-ups of one job that come close upon one another: one looks, one waits for that, and
whoever comes meanwhile goes with that one.

What a wake-up speaks of stands in the journal before it is sent, and who waits has not read
the journal yet: it will see that, too. Should its process die, the job is due, as where a
wake-up was taken and nothing came of it. Only reading, the first decision and its messages are
done one after the other: while one that has decided has a role think, others look.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from handoff_queue.shared.types.ids import HandoffId, JobId

MOST_S = 5.0
"""Who waits for longer looks beside the other one: the store holds apart what they write."""


@dataclass(slots=True)
class _Line:
    """Those of one job."""

    looking: threading.Lock = field(default_factory=threading.Lock)
    waiting: dict[HandoffId, None] | None = None
    """The suspects of who waits, and of those who go with it; None: nobody waits."""


class WakeUpTicket:
    """Of one that looks, until `over`. Said again, that does nothing."""

    def __init__(
        self,
        together: WakeUpCoalescer,
        job_id: JobId,
        line: _Line,
        suspects: Sequence[HandoffId],
        *,
        holds: bool,
    ) -> None:
        self.suspects = suspects
        self._together = together
        self._job_id = job_id
        self._line = line
        self._holds = holds

    def over(self) -> None:
        """What is done from here on, nobody needs to wait for."""
        if self._holds:
            self._holds = False
            self._together.go_on(self._job_id, self._line)


class WakeUpCoalescer:
    """Those of one process."""

    def __init__(self, most_s: float = MOST_S) -> None:
        self._most_s = most_s
        self._lines: dict[JobId, _Line] = {}
        self._lock = threading.Lock()

    @contextmanager
    def place(
        self, job_id: JobId, suspects: Sequence[HandoffId] = ()
    ) -> Iterator[WakeUpTicket | None]:
        """When nobody else looks. None: somebody will who has only waited so far, with these
        suspects, too.
        """
        with self._lock:
            line = self._lines.setdefault(job_id, _Line())
            goes_with = line.waiting is not None
            line.waiting = (line.waiting or {}) | dict.fromkeys(suspects)
        if goes_with:
            yield None
            return
        holds = False
        try:
            holds = line.looking.acquire(timeout=self._most_s)
        finally:
            with self._lock:
                wanted, line.waiting = tuple(line.waiting or ()), None
                if (
                    not holds and not line.looking.locked()
                ):  # the other one has just gone, and left the line to who waited
                    self._lines.pop(job_id, None)
        place = WakeUpTicket(self, job_id, line, wanted, holds=holds)
        try:
            yield place
        finally:
            place.over()

    def go_on(self, job_id: JobId, line: _Line) -> None:
        """Whoever waits."""
        with self._lock:
            if line.waiting is None:
                del self._lines[job_id]
            line.looking.release()

    @property
    def jobs(self) -> int:
        """At which somebody looks."""
        return len(self._lines)
