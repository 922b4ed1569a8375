"""The guard of journals: a supervisor folds only events with valid signatures, and records the
refused ones as dead letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.store.journal_signature_check import (
    JournalCheck,
    RefusedEvent,
    SeenBatches,
    iterate_whole_batches,
    read_ends,
    read_ends_of,
)
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import EventRefused, RecordedEvent
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.lifecycle.reduce import fold_pages
from handoff_queue.supervisor.lifecycle.state import JobState

JOURNAL = "journal"
"""The queue of a dead letter that comes from a journal."""

MAX_LETTERS = 20
"""Dead letters of one check of a journal, besides one for all further refused events."""

log = get_log(__name__)


class JournalGuard:
    """Checks journals, and records refused events."""

    def __init__(self, store: Store, keep_s: int) -> None:
        """Check the journals of this store.

        Args:
            keep_s: seconds for which the store remembers that a refusal is recorded.
        """
        self._store = store
        self._keep_s = keep_s

    def check(
        self,
        job_id: JobId,
        state: JobState | None,
        seen: SeenBatches,
        pages: Iterable[Sequence[RecordedEvent]],
    ) -> tuple[JobState | None, SeenBatches]:
        """Return the state after the events, without the refused ones, and the batches that are
        seen then. Without a keyring all events are valid.

        Args:
            state: state before the events; None: they are the first ones of the journal.
            pages: the events, which are checked in parts. So a worker that writes many long events
                takes little memory of a supervisor.

        Raises:
            MalformedMessage: this version cannot read an event. After a cancel or the deadline, an
                event of a worker is refused in place of this error, so that the job ends.
        """
        if not self._store.trust.is_on:
            return fold_pages(job_id, state, pages), seen
        check = JournalCheck(self._store.trust, job_id, {}, seen)
        if state is not None:
            known_state = state

            def open_agent(handoff_id: HandoffId) -> str | None:
                issued = known_state.open.get(handoff_id)
                return None if issued is None else issued.assigned_to

            check.open_agent = open_agent
        later = fold_pages(job_id, state, self._iterate_checked_parts(check, pages))
        if check.unread is not None and later and not self._is_late(later):
            raise check.unread
        if state is None and later is not None and self._is_first_decision_refused(check):
            later = later.model_copy(update={"has_lost_decisions": True})
        self._record(job_id, check.refused_events)
        return later, check.seen

    def _is_first_decision_refused(self, check: JournalCheck) -> bool:
        """Return whether the first decision about a job is refused: its key is not valid any
        more. The refused events of workers do not matter.
        """
        if not check.refused_events:
            return False
        first = self._store.refused_events.read_first_decision(check.job_id)
        return any(event.version == first for event in check.refused_events)

    def _iterate_checked_parts(
        self, check: JournalCheck, pages: Iterable[Sequence[RecordedEvent]]
    ) -> Iterator[Sequence[RecordedEvent]]:
        """Yield the events with `EventRefused` in the place of refused ones. Yield nothing if the
        job has no valid submission.
        """
        is_begun = check.open_agent is not None
        for events in iterate_whole_batches(pages):
            check.ends = read_ends(self._store.connection, check.job_id, events)
            check.read(events)
            checked, check.checked = check.checked, []
            is_begun = is_begun or not isinstance(checked[0].event, EventRefused)
            if is_begun:
                yield _without_refused(checked)

    def _is_late(self, state: JobState) -> bool:
        """Return whether the job has ended, or must end now."""
        if state.ended is not None or state.cancelled_by is not None:
            return True
        return self._store.connection.now() >= state.deadline

    def _record(self, job_id: JobId, refused_events: Sequence[RefusedEvent]) -> None:
        """Record refused events as dead letters and in the audit stream. Many refused
        events have one letter together, so that a flood takes little time of a supervisor.
        """
        if not refused_events:
            return
        known = self._store.refused_events.read_recorded_version(job_id)
        new = [event for event in refused_events if event.version > known]
        if not new:
            return
        for refused_event in new[:MAX_LETTERS]:
            self._refuse(
                job_id,
                f"event {refused_event.version} of {job_id} ({refused_event.type}) is not used:"
                f" {refused_event.reason}",
                refused_event,
            )
        if rest := new[MAX_LETTERS:]:
            last = rest[-1]
            self._refuse(
                job_id,
                f"{len(rest):,} more events of {job_id} up to {last.version} are not used;"
                f" the last one: {last.reason}",
                last,
            )
        self._reopen(job_id, new)
        versions = [event.version for event in new]
        self._store.refused_events.record(job_id, versions, self._keep_s)

    def _refuse(self, job_id: JobId, reason: str, refused_event: RefusedEvent) -> None:
        log.warning("an event of a journal was refused", job_id=job_id, why=reason)
        text = refused_event.text.decode(errors="replace")
        self._store.refuse(job_id, JOURNAL, reason, text)

    def _reopen(self, job_id: JobId, refused_events: Sequence[RefusedEvent]) -> None:
        """Open the handoffs again that refused events have ended in the store, so that honest
        workers end them.
        """
        unknown: dict[HandoffId, None] = {}
        for event in refused_events:
            if event.handoff_id is not None and event.end is None:
                unknown[event.handoff_id] = None
        ends = read_ends_of(self._store.connection, job_id, list(unknown))
        for event in refused_events:
            if event.handoff_id is None:
                continue
            end = event.end or ends.get(event.handoff_id)
            if end is not None and end.version == event.version:
                self._store.refused_events.reopen_handoff(job_id, event.handoff_id, event.version)


def _without_refused(events: Sequence[RecordedEvent]) -> list[RecordedEvent]:
    """Return the events without refused ones, which only change the version of the state. The last
    event stays.
    """
    valid_events = [event for event in events[:-1] if not isinstance(event.event, EventRefused)]
    return [*valid_events, events[-1]]
