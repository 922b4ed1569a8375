"""The state of a job that the live display shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.types.errors import StoreUnavailable, UnknownJob
from handoff_queue.shared.types.events import HandoffFinished, HandoffIssued, RecordedEvent
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.client.job_lookup import read_job_info
from handoff_queue.supervisor.client.journal_follower import (
    RECONNECT_EVERY_S,
    RECONNECT_FOR_S,
    ReconnectLimit,
    check_end,
    find_refusal,
)
from handoff_queue.supervisor.client.waiting_reasons import (
    CHECK_EVERY_S,
    WaitingReason,
    read_waiting_reasons,
)
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts, list_refs_with_texts
from handoff_queue.supervisor.lifecycle.state import JobState

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.client import Client


TICK_S = 0.2
"""Seconds between two reads of the running handoffs. Events arrive at once."""
_SETTLED = frozenset({"done", "dropped"})


@dataclass(frozen=True)
class FinishedUsage:
    """Usage of an ended handoff."""

    turns: int
    tokens: int
    is_upper_bound: bool


@dataclass(frozen=True)
class JobView:
    """State of a job and its child jobs at one moment. Times are Unix seconds of Redis's clock."""

    job_id: JobId
    now: float = 0.0
    state: JobState | None = None
    job: JobInfo | None = None
    issued: tuple[HandoffIssued, ...] = ()
    finished: Mapping[HandoffId, HandoffFinished] = field(default_factory=dict)
    handoffs: Mapping[HandoffId, HandoffInfo] = field(default_factory=dict)
    waiting_reasons: tuple[WaitingReason, ...] = ()
    """The processes and the people that the job waits for."""
    texts: ResultTexts = field(default_factory=ResultTexts)
    """The texts that the events refer to."""
    children: Mapping[JobId, JobView] = field(default_factory=dict)
    """The child jobs."""

    @property
    def version(self) -> int:
        if self.state:
            return self.state.version
        return 0

    @property
    def has_ended(self) -> bool:
        return self.state is not None and self.state.ended is not None

    @property
    def child_handoffs(self) -> Mapping[JobId, HandoffIssued]:
        """Return the child jobs, each with its latest handoff."""
        child_handoffs: dict[JobId, HandoffIssued] = {}
        for event in self.issued:
            if event.child:
                child_handoffs[event.child.job_id] = event
        return child_handoffs

    def apply_events(self, events: Sequence[RecordedEvent]) -> JobView:
        """Return the view after these events."""
        issued = list(self.issued)
        finished = dict(self.finished)
        for recorded in events:
            event = recorded.event
            if isinstance(event, HandoffIssued):
                issued.append(event)
            elif isinstance(event, HandoffFinished):
                finished[event.handoff_id] = event
        state = fold(self.job_id, self.state, events)
        return replace(self, state=state, issued=tuple(issued), finished=finished)

    def get_finished_usage(self, event: HandoffFinished) -> FinishedUsage:
        """Return the usage of an ended handoff by the budget. A result does not count calls that
        were cut off by a kill.
        """
        info = self.handoffs.get(event.handoff_id)
        if info is None or info.state != "done":
            usage = event.usage
            return FinishedUsage(event.turns, usage.total_tokens, usage.cut_calls > 0)
        return FinishedUsage(info.turns, info.input_tokens + info.output_tokens, info.cut_calls > 0)


def with_events(jobs: Client, view: JobView, events: Sequence[RecordedEvent]) -> JobView:
    """Return the view after these events, with their texts.

    New texts take one round trip, and there is none without new texts.
    """
    new: dict[str, None] = {}
    for recorded in events:
        for ref in list_refs_with_texts(recorded.event):
            if ref.digest not in view.texts.texts:
                new[ref.digest] = None
    texts = view.texts
    if new:
        payloads = jobs.store.payloads.get(view.job_id, [], results=list(new))
        texts = ResultTexts({**view.texts.texts, **payloads})
    return replace(view.apply_events(events), texts=texts)


def with_fresh_info(jobs: Client, view: JobView) -> JobView:
    """Return the view with fresh information about the job and its open handoffs.

    `job` is None if the job was deleted.
    """
    open_ids: list[HandoffId] = []
    for event in view.issued:
        info = view.handoffs.get(event.handoff_id)
        if info is None or info.state not in _SETTLED:
            open_ids.append(event.handoff_id)
    handoffs = jobs.store.jobs.read_handoffs(view.job_id, open_ids)
    return replace(
        view,
        now=jobs.store.connection.now(),
        job=read_job_info(jobs.store, view.job_id),
        handoffs={**view.handoffs, **handoffs},
    )


@dataclass(frozen=True)
class JobUpdate:
    """New events of a job, and the view after these events."""

    view: JobView
    events: tuple[RecordedEvent, ...] = ()
    error: str | None = None
    """Error text while Redis is away. There are no new events then."""
    below: tuple[JobUpdate, ...] = ()
    """The updates of the child jobs."""


NewEvents = Mapping[JobId, Sequence[RecordedEvent]]
"""New events, by job."""


def build_update(view: JobView, new_events: NewEvents) -> JobUpdate:
    """Return the update of a job and of the child jobs in its view."""
    events = tuple(new_events.get(view.job_id, ()))
    below = tuple(build_update(child, new_events) for child in view.children.values())
    return JobUpdate(view, events, below=below)


def with_children(jobs: Client, view: JobView) -> tuple[JobView, NewEvents]:
    """Return the view with fresh child jobs, and the new events of the child jobs.

    Each child job that still runs takes three round trips, or four if there are new texts. A
    deleted child job keeps its last view.
    """
    children = dict(view.children)
    new_events: dict[JobId, Sequence[RecordedEvent]] = {}
    for job_id, event in view.child_handoffs.items():
        child = children.get(job_id, JobView(job_id))
        if child.has_ended and event.handoff_id in view.finished:
            continue
        events = jobs.store.journal.read(job_id, child.version)
        if not child.version and not events:
            continue
        fresh = with_fresh_info(jobs, with_events(jobs, child, events))
        fresh = replace(fresh, job=fresh.job or child.job)
        children[job_id], events_below = with_children(jobs, fresh)
        new_events[job_id] = events
        new_events |= events_below
    return replace(view, children=children), new_events


def with_waiting_reasons(jobs: Client, view: JobView) -> JobView:
    """Return the view with the reasons why the job and its child jobs wait."""
    if view.job is None:
        return view
    open_ids: list[HandoffId] = []
    for event in view.issued:
        if event.handoff_id not in view.finished:
            open_ids.append(event.handoff_id)
    children: dict[JobId, JobView] = {}
    for job_id, child in view.children.items():
        children[job_id] = with_waiting_reasons(jobs, child)
    reasons = read_waiting_reasons(jobs.store, view.job, open_ids)
    return replace(view, waiting_reasons=reasons, children=children)


def follow(
    jobs: Client,
    job_id: JobId,
    *,
    check: Callable[[], None] = lambda: None,
    reconnect_for_s: float = RECONNECT_FOR_S,
) -> Iterator[JobUpdate]:
    """Yield the updates of a job from its start to its end.

    While Redis is away, an update has the last view and the error.

    Args:
        check: called at each update. An exception ends the iteration.
        reconnect_for_s: seconds for which Redis may be away.

    Raises:
        UnknownJob: the job does not exist, or was deleted.
        UnverifiedEnd: the job has ended, and this process does not trust the event of its end.
        StoreUnavailable: Redis stays away for more than `reconnect_for_s` seconds.
    """
    jobs.info(job_id)
    view = JobView(job_id)
    patience = ReconnectLimit(reconnect_for_s)
    refusal = ""
    checked_at = float("-inf")  # time of the last read of the reasons to wait
    while not view.has_ended:
        check()
        try:
            events = jobs.store.journal.follow(job_id, view.version, TICK_S)
            fresh = with_fresh_info(jobs, with_events(jobs, view, events))
            fresh, new_events = with_children(jobs, fresh)
            job = fresh.job
            if job is None:
                raise UnknownJob.for_job(job_id)
            if time.monotonic() - checked_at >= CHECK_EVERY_S or fresh.has_ended:
                fresh = with_waiting_reasons(jobs, fresh)
                checked_at = time.monotonic()
            view = fresh  # set after all reads, so that a lost connection loses no events
        except StoreUnavailable as error:
            patience.record_failure(error)
            yield JobUpdate(view, error=str(error))
            time.sleep(RECONNECT_EVERY_S)
            continue
        patience.reset()
        yield build_update(view, {**new_events, job_id: events})
        refusal = find_refusal(events) or refusal
        check_end(job, view.version, refusal, is_over=view.has_ended)
