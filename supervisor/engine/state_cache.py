"""Cache of job states. A cached state is updated with the new events of the journal, instead
of a computation from the first event.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from handoff_queue.shared.store.journal import Journal
from handoff_queue.shared.store.journal_signature_check import (
    LONG_EVENT,
    NOTHING_SEEN,
    SeenBatches,
)
from handoff_queue.shared.types.events import RecordedEvent
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.engine.journal_signature_guard import JournalGuard
from handoff_queue.supervisor.lifecycle.reduce import fold_on, fold_pages
from handoff_queue.supervisor.lifecycle.state import JobState

MAX_STATES = 2_000
"""Most jobs whose states a process keeps. The least recently used state is dropped first."""


@dataclass(frozen=True, slots=True)
class _CachedState:
    """A state with its last event, and the batches before."""

    state: JobState | None = None
    last: RecordedEvent | None = None
    seen: SeenBatches = NOTHING_SEEN


_UNKNOWN = _CachedState()


class StateCache:
    """The newest known state of each job that this process has evaluated, with its last event."""

    def __init__(self, journal: Journal, guard: JournalGuard | None = None) -> None:
        """Cache states.

        Args:
            guard: checks the signatures of events before they change a state. None: no check.
        """
        self._journal = journal
        self._guard = guard
        self._cached_states: OrderedDict[JobId, _CachedState] = OrderedDict()
        self._lock = threading.Lock()

    def load(
        self,
        job_id: JobId,
        read_pages: Callable[[int], Iterator[list[RecordedEvent]]] | None = None,
    ) -> JobState | None:
        """Return the state of the job by the current journal, or None if there is no such job.

        The last known event is read again. If it has changed, the cached state is dropped:
        Redis was restored from older data, or the job was deleted and submitted again.

        Args:
            read_pages: returns the pages of the events after a version; by default
                `Journal.iterate_pages`.
        """
        with self._lock:
            cached = self._cached_states.get(job_id, _UNKNOWN)
        after = 0
        if cached.last:
            after = cached.last.version - 1
        pages = (read_pages or partial(self._journal.iterate_pages, job_id))(after)
        if cached.last is not None:
            first_page = next(pages, [])
            if first_page and _is_same(first_page[0], cached.last):
                pages = chain([first_page[1:]], pages)
            else:
                cached, pages = _UNKNOWN, self._journal.iterate_pages(job_id)
        last, seen = cached.last, cached.seen

        def iterate_pages() -> Iterator[list[RecordedEvent]]:
            nonlocal last
            for page in pages:
                if page:
                    last = replace(page[-1], raw=b"")  # the text may be long
                yield page

        if self._guard is not None:
            state, seen = self._guard.check(job_id, cached.state, seen, iterate_pages())
        else:
            state = fold_pages(job_id, cached.state, iterate_pages())
        if state is None or last is None:
            self.forget(job_id)
            return None
        return self._keep(_CachedState(state, last, seen))

    def fold_on(self, state: JobState, events: Sequence[RecordedEvent]) -> JobState | None:
        """Return the state after events that this process has just written. None: there are no
        events, or another process wrote in between, so that the journal must be read.
        """
        if not events or events[0].version != state.version + 1:
            return None
        with self._lock:
            seen = self._cached_states.get(state.job_id, _UNKNOWN).seen
        return self._keep(_CachedState(fold_on(state, events), events[-1], seen))

    def remember(self, state: JobState, last: RecordedEvent) -> JobState:
        """Keep the state after a decision of this process, whose last event is `last`. Return the
        state.
        """
        with self._lock:
            seen = self._cached_states.get(state.job_id, _UNKNOWN).seen
        if state.as_of != last.at:  # a decision computes its state before its commit
            state = state.model_copy(update={"as_of": last.at, "tip": last.at})
        return self._keep(_CachedState(state, last, replace(seen, decided=last.version)))

    def _keep(self, cached: _CachedState) -> JobState:
        """Keep a state with its last event, and return the state."""
        state = cached.state
        assert state is not None
        with self._lock:
            self._cached_states[state.job_id] = cached
            self._cached_states.move_to_end(state.job_id)
            while len(self._cached_states) > MAX_STATES:
                self._cached_states.popitem(last=False)
        return state

    def forget(self, job_id: JobId) -> None:
        with self._lock:
            self._cached_states.pop(job_id, None)


def _is_same(read_event: RecordedEvent, cached_event: RecordedEvent) -> bool:
    """Return whether an event of the journal is a known one. A long event is not parsed yet, so
    only its place and its time are compared. Two histories have different times.
    """
    if read_event.problem == LONG_EVENT:
        return (read_event.version, read_event.at) == (cached_event.version, cached_event.at)
    return read_event == cached_event
