"""The guard of journals: a supervisor folds only events with valid signatures, and records the
refused ones as dead letters.
"""

from __future__ import annotations

from collections.abc import Sequence

from handoff_queue.shared.observability.logs import log_of
from handoff_queue.shared.store.journal_signature_check import (
    JournalCheck,
    RefusedEvent,
    SeenBatches,
    read_ends,
)
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import HandoffFinished, RecordedEvent
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.lifecycle.state import JobState

JOURNAL = "journal"
"""The queue of a dead letter that comes from a journal."""

log = log_of(__name__)


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
        events: Sequence[RecordedEvent],
    ) -> tuple[Sequence[RecordedEvent], SeenBatches]:
        """Return the events, with `EventRefused` in the place of refused ones, and the batches that
        are seen then. Without a keyring all events are valid.

        Args:
            state: state before the events; None: they are the first ones of the journal.
        """
        if not self._store.trust.is_on or not events:
            return events, seen
        ends = read_ends(self._store.connection, job_id, events)
        check = JournalCheck(self._store.trust, job_id, ends, seen)
        if state is not None:
            begun = state

            def open_role(handoff_id: HandoffId) -> str | None:
                issued = begun.open.get(handoff_id)
                return None if issued is None else issued.assigned_to

            check.open_role = open_role
        check.read(events)
        self._record(job_id, check.refused)
        return check.checked, check.seen

    def _record(self, job_id: JobId, refused: Sequence[RefusedEvent]) -> None:
        """Record refused events as dead letters and in the audit stream. If a refused event has
        ended a handoff in the store, open the handoff again, so that an honest worker ends it.
        """
        for refused_event in refused:
            event = refused_event.recorded.event
            version = refused_event.recorded.version
            if self._store.refused_events.is_recorded(job_id, version):
                continue
            reason = (
                f"event {version} of {job_id} ({event.type}) is not used: {refused_event.reason}"
            )
            log.warning("event refused", job_id=job_id, version=version, why=refused_event.reason)
            text = refused_event.recorded.raw.decode(errors="replace")
            self._store.refuse(job_id, JOURNAL, reason, text)
            if isinstance(event, HandoffFinished):
                self._store.refused_events.reopen_handoff(job_id, event.handoff_id, version)
            self._store.refused_events.record(job_id, version, refused_event.reason, self._keep_s)
