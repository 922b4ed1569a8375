"""A thread that reads the new events of all followed jobs and passes them to asyncio
followers.

A follower holds no thread and no connection to Redis. The reader thread waits with one `XREAD` for
the versions of all followed jobs. It parses each event once, and passes the event to every follower
of its job.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import (
    HandoffError,
    MalformedMessage,
    StoreUnavailable,
    UnknownJob,
)
from handoff_queue.shared.types.events import RecordedEvent
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.journal_follower import RECONNECT_EVERY_S, ReconnectLimit

READ_S = 0.25
"""The longest wait of one read, in seconds. The reader adds a new follower after at most this."""
GATHER_S = 0.02
"""Pause after a read that brought events, in seconds: events of busy jobs share a read."""
CHECK_EVERY_S = 5.0
"""Seconds between two checks whether quiet jobs have ended or were deleted."""
MAX_JOBS_A_CHECK = 500
"""Most jobs in one round trip of such a check."""
BACKLOG = 1_000
"""Most unread events of one follower. A slower follower loses the oldest events, and reads the
journal again.
"""
CLOSED = "the client was closed"

log = get_log(__name__)


class FollowingEnded(HandoffError):
    """The client was closed, so it follows no job any more."""


class Subscription:
    """The new events of one job, for one follower on one event loop."""

    def __init__(self, job_id: JobId, loop: asyncio.AbstractEventLoop) -> None:
        self.job_id = job_id
        self.loop = loop
        self.has_ended = False
        """True if a check of the job's status found that the job has ended."""
        self._error: HandoffError | None = None
        self._events: deque[RecordedEvent] = deque(maxlen=BACKLOG)
        self._has_news = asyncio.Event()

    def deliver(
        self,
        events: Iterable[RecordedEvent],
        has_ended: bool,
        error: HandoffError | None,
    ) -> None:
        """Add events, the end of the job, or an error. Call it on the follower's event loop."""
        self._events.extend(events)
        self.has_ended = self.has_ended or has_ended
        self._error = error or self._error
        self._has_news.set()

    async def wait_for_news(self, wait_s: float | None) -> list[RecordedEvent]:
        """Wait up to `wait_s` seconds for events, and return the unread events. None: no
        limit.

        The list is empty when the time is over, or when a check found that the job has ended.
        Versions may have a gap: a full backlog drops the oldest events.

        Raises:
            HandoffError: the job can no longer be followed.
        """
        try:
            async with asyncio.timeout(wait_s):
                await self._has_news.wait()
        except TimeoutError:
            return []
        self._has_news.clear()
        if self._error is not None:
            raise self._error
        events = list(self._events)
        self._events.clear()
        return events


class EventHub:
    """Reads journals for all followers of a process. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._change_condition = threading.Condition()
        self._followers: dict[JobId, list[Subscription]] = {}
        self._positions: dict[JobId, int] = {}
        self._reader: threading.Thread | None = None
        self._is_closed = False

    def subscribe(self, job_id: JobId, version: int) -> Subscription:
        """Return a subscription to the job's new events, for the running event loop.

        Args:
            version: where the reader starts if the job has no other follower.

        Raises:
            FollowingEnded: the client was closed.
        """
        subscription = Subscription(job_id, asyncio.get_running_loop())
        with self._change_condition:
            if self._is_closed:
                raise FollowingEnded(CLOSED)
            self._followers.setdefault(job_id, []).append(subscription)
            self._positions.setdefault(job_id, version)
            if self._reader is None:
                self._reader = threading.Thread(target=self._run, name="events", daemon=True)
                self._reader.start()
            self._change_condition.notify()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget a subscription. The reader stops reading a job without followers."""
        with self._change_condition:
            followers = self._followers.get(subscription.job_id, [])
            if subscription in followers:
                followers.remove(subscription)
            if not followers:
                self._followers.pop(subscription.job_id, None)
                self._positions.pop(subscription.job_id, None)

    def close(self) -> None:
        """End the reader thread. Every follower that still waits gets an error."""
        with self._change_condition:
            self._is_closed = True
            self._change_condition.notify()
            reader = self._reader
            job_ids = list(self._followers)
        if reader is not None:
            reader.join()
        self._tell(job_ids, error=FollowingEnded(CLOSED))

    def _run(self) -> None:
        """Read until the hub is closed. An error of a read reaches the followers, never the
        thread.
        """
        patience = ReconnectLimit()
        check_at = time.monotonic() + CHECK_EVERY_S
        while True:
            positions = self._wait_for_followers()
            if positions is None:
                return
            try:
                has_read = self._read(positions)
                if time.monotonic() >= check_at:
                    self._check(list(positions))
                    check_at = time.monotonic() + CHECK_EVERY_S
                patience.reset()
                self._pause(GATHER_S if has_read else 0.0)
            except StoreUnavailable as error:
                self._wait_for_redis(patience, error)
            except HandoffError as error:
                self._tell(positions, error=error)
            except Exception as error:  # a thread that dies would leave every follower waiting
                log.exception("the event reader failed")
                self._tell(positions, error=HandoffError(f"internal error: {type(error).__name__}"))

    def _wait_for_followers(self) -> Mapping[JobId, int] | None:
        """Return job -> version of all followed jobs, or None when the hub is closed."""
        with self._change_condition:
            self._change_condition.wait_for(lambda: self._positions or self._is_closed)
            if self._is_closed:
                return None
            return dict(self._positions)

    def _read(self, positions: Mapping[JobId, int]) -> bool:
        """Wait for new events and pass them to the followers. Return whether there were any."""
        new = self._store.journal.follow_each(positions, READ_S)
        self._deliver(new)
        return bool(new)

    def _deliver(self, new: Mapping[JobId, list[RecordedEvent] | MalformedMessage]) -> None:
        """Pass new events to the followers."""
        for job_id, events in new.items():
            if isinstance(events, MalformedMessage):
                self._tell([job_id], error=events)
                continue
            with self._change_condition:
                if job_id in self._positions:
                    self._positions[job_id] = events[-1].version
            self._tell([job_id], events)

    def _check(self, job_ids: Sequence[JobId]) -> None:
        """Tell followers of jobs that have ended, and of jobs that were deleted. Also read the
        events of jobs whose versions did not wake the reader, because a worker has written wrong
        ones.
        """
        for start in range(0, len(job_ids), MAX_JOBS_A_CHECK):
            slice_ = job_ids[start : start + MAX_JOBS_A_CHECK]
            deleted_jobs = set(slice_)
            job_infos = self._store.jobs.read(slice_)
            unread: dict[JobId, int] = {}
            for info in job_infos:
                deleted_jobs.discard(info.job_id)
                position = self._get_position(info.job_id)
                if position is not None and position < info.version:
                    unread[info.job_id] = position
            if unread:
                self._deliver(self._store.journal.read_each(unread))
            for info in job_infos:
                if info.status.has_ended:
                    self._tell([info.job_id], has_ended=True)
            for job_id in deleted_jobs:
                self._tell([job_id], error=UnknownJob.for_job(job_id))

    def _get_position(self, job_id: JobId) -> int | None:
        """Return the last version that was read; None: the job has no follower."""
        with self._change_condition:
            return self._positions.get(job_id)

    def _wait_for_redis(self, patience: ReconnectLimit, error: StoreUnavailable) -> None:
        """Wait before the next try. After `RECONNECT_FOR_S`, every follower gets the error."""
        try:
            patience.record_failure(error)
            self._pause(RECONNECT_EVERY_S)
        except StoreUnavailable:
            with self._change_condition:
                job_ids = list(self._positions)
            self._tell(job_ids, error=error)

    def _pause(self, seconds: float) -> None:
        if seconds:
            with self._change_condition:
                self._change_condition.wait_for(lambda: self._is_closed, seconds)

    def _tell(
        self,
        job_ids: Iterable[JobId],
        events: Sequence[RecordedEvent] = (),
        has_ended: bool = False,
        error: HandoffError | None = None,
    ) -> None:
        """Deliver news to all followers of the jobs, each on the follower's event loop.

        A follower that gets an error is unsubscribed.
        """
        followers: list[Subscription] = []
        with self._change_condition:
            for job_id in job_ids:
                followers += self._followers.get(job_id, [])
        for follower in followers:
            try:
                follower.loop.call_soon_threadsafe(follower.deliver, events, has_ended, error)
            except RuntimeError:  # its event loop is closed
                self.unsubscribe(follower)
            if error is not None:
                self.unsubscribe(follower)
