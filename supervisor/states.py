"""Where supervisors get a job's state from: folded on from the last version that this process knows, never from the beginning again."""

from __future__ import annotations

import threading
from collections import OrderedDict

from shared.ledger.journal import Journal
from shared.wire.ids import JobId
from supervisor.lifecycle.evolve import fold
from supervisor.lifecycle.state import JobState

KEPT = 2_000
"""Jobs whose states a process remembers."""


class States:
    """The newest known state of the jobs that this process has looked at."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: OrderedDict[JobId, JobState] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, job_id: JobId) -> JobState | None:
        """The state as the journal tells it now; None: there is no such job."""
        with self._lock:
            known = self._known.get(job_id)
        events = self._journal.read(job_id, after=known.version if known else 0)
        if known and events and events[0].version != known.version + 1:
            known, events = None, self._journal.read(job_id)  # the journal is not the one that was known: begin again
        return self.remember(fold(job_id, known, events))

    def remember(self, state: JobState | None) -> JobState | None:
        if state is not None:
            with self._lock:
                known = self._known.get(state.job_id)
                if known is None or known.version < state.version:
                    self._known[state.job_id] = state
                self._known.move_to_end(state.job_id)
                while len(self._known) > KEPT:
                    self._known.popitem(last=False)
        return state

    def forget(self, job_id: JobId) -> None:
        with self._lock:
            self._known.pop(job_id, None)
