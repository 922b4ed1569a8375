"""Follow the journal of a job, also across a restart of Redis."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import StoreUnavailable, UnverifiedEnd
from handoff_queue.shared.types.events import (
    EventRefused,
    JobEnded,
    JobStatus,
    RecordedEvent,
    RetryRequested,
)
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.job_lookup import get_job_info

RECONNECT_FOR_S = 30.0
"""Seconds for which a client tries to reconnect. A restart of Redis takes a few seconds."""
RECONNECT_EVERY_S = 0.5
"""Seconds between two tries."""


class ReconnectLimit:
    """The time for which a client waits for a Redis that is away. A reply of Redis resets it."""

    def __init__(
        self, for_s: float = RECONNECT_FOR_S, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._for_s = for_s
        self._now = now
        self._away_since: float | None = None

    @property
    def is_away(self) -> bool:
        """True if the last call had no reply."""
        return self._away_since is not None

    def reset(self) -> None:
        """Record a reply of Redis."""
        self._away_since = None

    def record_failure(self, error: StoreUnavailable) -> None:
        """Record a call without a reply.

        Raises:
            StoreUnavailable: Redis has been away for too long.
        """
        if self._away_since is None:
            self._away_since = self._now()
        if self._now() - self._away_since > self._for_s:
            raise error


FOLLOW_S = 5.0
"""Longest time in seconds for which one read of new events blocks."""


def iterate_events(
    store: Store, job_id: JobId, after: int, *, follow: bool
) -> Iterator[RecordedEvent]:
    """See `Client.events`."""
    get_job_info(store, job_id)
    is_over = False
    while True:
        if follow:
            events = store.journal.follow(job_id, after, FOLLOW_S)
        else:
            events = store.journal.read(job_id, after)
        yield from events
        if events:
            after = events[-1].version
            is_over = is_over_after(events, was_over=is_over)
        if not follow or is_over:
            return
        if not events and get_job_info(store, job_id).status.has_ended:
            return


def is_over_after(events: Iterable[RecordedEvent], *, was_over: bool) -> bool:
    """Return whether a job has ended after these events. A retry continues an ended job.

    Args:
        was_over: True if the job had ended before these events.
    """
    is_over = was_over
    for recorded in events:
        if isinstance(recorded.event, JobEnded):
            is_over = True
        elif isinstance(recorded.event, RetryRequested):
            is_over = False
    return is_over


def find_refusal(events: Iterable[RecordedEvent]) -> str:
    """Return why the newest refused event is not used; empty: no event is refused."""
    reason = ""
    for recorded in events:
        if isinstance(recorded.event, EventRefused):
            reason = recorded.event.reason
    return reason


def check_end(info: JobInfo, version: int, refusal: str, *, is_over: bool) -> None:
    """Check that the journal of an ended job has an event of its end which this process trusts.

    A commit writes the end and the status at once. So after the version of the job, no other event
    of the end follows.

    Args:
        version: version of the journal that was read.
        refusal: see `find_refusal`.
        is_over: whether the job has ended after the trusted events.

    Raises:
        UnverifiedEnd: the event of the end was refused.
    """
    if refusal and not is_over and info.status.has_ended and info.version <= version:
        raise UnverifiedEnd.for_job(info.job_id, info.status, refusal)


def find_unverified_end(info: JobInfo, journal: Sequence[RecordedEvent]) -> UnverifiedEnd | None:
    """Return the error of `check_end` about a whole journal; None: there is no error."""
    is_over = is_over_after(journal, was_over=False)
    try:
        check_end(info, journal[-1].version, find_refusal(journal), is_over=is_over)
    except UnverifiedEnd as error:
        return error
    return None


def wait_for_end(
    store: Store, job_id: JobId, wait_s: float, patience: ReconnectLimit | None = None
) -> JobStatus:
    """See `Client.wait`."""
    until = time.monotonic() + wait_s
    patience = patience or ReconnectLimit()
    info = get_job_info(store, job_id)
    status, version = info.status, info.version
    while not status.has_ended and (time.monotonic() < until or patience.is_away):
        left = max(0.0, until - time.monotonic())
        try:
            if patience.is_away:
                # after a reconnection, read the status at once: `follow` may block until the
                # next outage
                status = get_job_info(store, job_id).status
                patience.reset()
                continue
            new = store.journal.follow(job_id, version, min(left, FOLLOW_S))
            last = new[-1].event if new else None
            if isinstance(last, JobEnded):
                return last.status
            # events of the webhook may follow the event JobEnded
            if not new or any(isinstance(recorded.event, JobEnded) for recorded in new):
                status = get_job_info(store, job_id).status
        except StoreUnavailable as error:
            if patience.is_away and not left:
                raise
            patience.record_failure(error)
            time.sleep(max(0.0, min(until - time.monotonic(), RECONNECT_EVERY_S)))
            continue
        if new:
            version = new[-1].version
    return status
