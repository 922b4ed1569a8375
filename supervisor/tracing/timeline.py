"""A job's handoffs on one time axis: when each ran, its predecessors, and the critical path.
Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from typing import Any, NamedTuple

from handoff_queue.shared.store.handoff_info import HandoffInfo, PastClaim
from handoff_queue.shared.types.events import (
    ConditionsChecked,
    Fork,
    HandoffFinished,
    HandoffIssued,
    JobEnded,
    JobStatus,
    JobSubmitted,
    RecordedEvent,
    RetryRequested,
    StepsAbandoned,
)
from handoff_queue.shared.types.handoff import AgentHandoff, describe_shared_run
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId
from handoff_queue.shared.types.names import Role
from handoff_queue.shared.types.usage import to_usd
from handoff_queue.supervisor.client.job_outline import find_end
from handoff_queue.supervisor.client.job_record import JobRecord

STOPPED = "stopped"
"""State of a handoff that the job abandoned before it had ended."""
GIVEN_UP, NOT_BEGUN, KEPT = "given up", "not begun", "kept"
"""States of a step without a handoff."""
PLANNERS = (Role.PLANNER, Role.REPLANNER)
"""The roles that a step without dependencies comes after."""
PLANNED = "plan/"
"""Prefix of the name of a step without a handoff. No id of a handoff has a slash."""


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """A handoff as a bar. Times are Unix seconds by Redis's clock; None: not yet, or never."""

    handoff_id: HandoffId
    step_id: StepId
    attempt: int
    agent: str
    state: str
    """`ok`, `partial`, `failed` or `needs_input`; without a result `running`, `queued` or
    `STOPPED`.
    """
    issued_at: float
    began_at: float | None
    ended_at: float | None
    """End of the handoff, or time of its abandonment."""
    after: tuple[HandoffId, ...]
    """The predecessors: handoffs that had to end before this handoff was issued."""
    payload: str
    """Digest of the AgentHandoff."""
    result: str | None
    """Digest of the HandoffResult. None: there is no result."""
    worker: str
    model: str | None
    stop_reason: str | None
    claims: int
    """Claims since the handoff last made progress."""
    lost_claims: int
    """Claims that were lost with their process."""
    past_claims: tuple[PastClaim, ...]
    """All claims with their times, also the claim that holds or that ended with a result.
    Between two claims the handoff waited.
    """
    turns: int
    tokens: int
    usd: float | None
    """None if a price is unknown."""
    at_most: bool
    """True if the tokens and the cost are an upper bound, because a call was cut off."""
    child: JobId | None
    """The child job that does the handoff."""
    is_critical: bool = False
    """True if the handoff is on the critical path."""

    def compute_seconds_with_claim(self, now: float) -> float:
        """Return the seconds with a claim, so far."""
        return sum(past_claim.compute_duration_s(now) for past_claim in self.past_claims)

    def compute_seconds_without_claim(self, now: float) -> float:
        """Return the seconds without a claim so far: before the first claim, and between claims."""
        until = now
        if self.ended_at is not None:
            until = self.ended_at
        return max(0.0, until - self.issued_at - self.compute_seconds_with_claim(now))


@dataclass(frozen=True, slots=True)
class UnstartedStep:
    """A step of the plan without a handoff."""

    handoff_id: str
    """Name of the step in `after`, in place of the id of a handoff."""
    step_id: StepId
    agent: str
    state: str
    """`not begun`, `given up`, `skipped`, `failed` if its condition could not be decided, or
    `kept` if a fork has its result from another job.
    """
    why: str
    """Reason of the state; empty if there is none."""
    after: tuple[str, ...]
    """The steps that it depends on: the latest handoff of each, or the name of a planned step."""
    is_critical: bool = False


@dataclass(frozen=True, slots=True)
class Timeline:
    """All handoffs, in the order of their issue."""

    begins_at: float
    ends_at: float
    """Time of the end of an ended job, or the time of the record of a running job."""
    bars: tuple[TimelineBar, ...]


def build_timeline(record: JobRecord) -> Timeline:
    """Return the timeline of a job's record."""
    bars = _build_bars(record)
    _, end = find_end(record.job, record.journal, record.at)
    cancelled_at = None
    if record.job.status is JobStatus.CANCELLED:
        cancelled_at = end
    path = find_critical_path(bars, cancelled_at)
    marked_bars = tuple(replace(bar, is_critical=bar.handoff_id in path) for bar in bars)
    return Timeline(record.journal[0].at, end, marked_bars)


def find_steps_without_handoff(
    journal: Sequence[RecordedEvent],
    steps: Sequence[Mapping[str, Any]],
    bars: Sequence[TimelineBar],
) -> tuple[UnstartedStep, ...]:
    """Return the steps of a plan that have no handoff, each after the steps that it depends on,
    or else after the planner.

    Args:
        steps: the steps of the plan, as `JobResult.plan` has them.
        bars: the handoffs of the job.
    """
    latest: dict[str, str] = {bar.step_id: bar.handoff_id for bar in bars}
    steps_by_id = {step["id"]: step for step in steps if step["id"] not in latest}
    ends = _find_ends_without_handoff(journal)
    names = dict(latest)
    sorter = TopologicalSorter[str]()
    for step_id, step in steps_by_id.items():
        names[step_id] = f"{PLANNED}{step_id}"
        sorter.add(step_id, *[name for name in step["depends_on"] if name in steps_by_id])
    planned_steps: list[UnstartedStep] = []
    for step_id in sorter.static_order():
        step = steps_by_id[step_id]
        end = ends.get(step_id, _End(NOT_BEGUN, ""))
        before = step["depends_on"] or PLANNERS
        after = tuple(names[name] for name in before if name in names)
        planned_steps.append(
            UnstartedStep(
                handoff_id=names[step_id],
                step_id=StepId(step_id),
                agent=step["specialist"],
                state=end.state,
                why=end.why,
                after=after,
            )
        )
    return tuple(planned_steps)


class _End(NamedTuple):
    """The end of a step without a handoff: see `UnstartedStep`."""

    state: str
    why: str


def _find_ends_without_handoff(journal: Sequence[RecordedEvent]) -> dict[str, _End]:
    """Return the end of each step that ended without a handoff. A retry of the job plans these
    steps again.
    """
    kept_steps: dict[str, _End] = {}
    ended_steps: dict[str, _End] = {}
    for recorded in journal:
        match recorded.event:
            case JobSubmitted(fork=Fork() as fork):
                for kept_step in fork.kept:
                    kept_steps[kept_step.step] = _End(KEPT, f"its result is from {fork.job_id}")
            case StepsAbandoned(steps=steps, why=why):
                for step in steps:
                    ended_steps[step.step] = _End(GIVEN_UP, why)
            case ConditionsChecked(skipped=skipped, undecided=undecided):
                for step in skipped:
                    ended_steps[step.step] = _End("skipped", "its condition is not met")
                for step in undecided:
                    ended_steps[step.step] = _End("failed", "its condition could not be decided")
            case RetryRequested():
                ended_steps.clear()
            case _:
                pass
    return {**kept_steps, **ended_steps}


def find_critical_path(
    bars: Sequence[TimelineBar], cancelled_at: float | None = None
) -> frozenset[HandoffId]:
    """Return the critical path: the chain from the handoff that ended last back to the
    beginning, through the predecessor that ended last. Abandoned handoffs are not predecessors.

    Args:
        cancelled_at: time at which the job was cancelled, or None. A handoff that ran until then
            can be the last one.
    """
    by_id: dict[HandoffId, TimelineBar] = {}
    candidates: list[TimelineBar] = []
    for bar in bars:
        by_id[bar.handoff_id] = bar
        is_abandoned = bar.state == STOPPED and bar.ended_at != cancelled_at
        if bar.began_at is not None and not is_abandoned:
            candidates.append(bar)
    path: set[HandoffId] = set()
    last = max(candidates, key=_get_end_time, default=None)
    while last is not None and last.handoff_id not in path:
        path.add(last.handoff_id)
        predecessors = [by_id[handoff_id] for handoff_id in last.after]
        last = max(predecessors, key=_get_end_time, default=None)
    return frozenset(path)


def _get_end_time(bar: TimelineBar) -> float:
    """Return the end of a handoff. A handoff without an end comes last."""
    if bar.ended_at is not None:
        return bar.ended_at
    return float("inf")


@dataclass(slots=True)
class _EndedHandoffs:
    """Handoffs that had ended at one place of the journal."""

    latest_of_step: dict[StepId, HandoffId] = field(default_factory=dict)
    latest_of_roles: HandoffId | None = None
    without_successor: dict[HandoffId, None] = field(default_factory=dict)
    ended_before: dict[HandoffId, int] = field(default_factory=dict)
    """For each ended handoff, the number of handoffs that had ended before it."""
    ended_at_issue: dict[HandoffId, int] = field(default_factory=dict)
    """For each handoff of a role, the number of handoffs that had ended when it was issued."""

    def add(self, issued: HandoffIssued) -> None:
        """Add a handoff that has ended."""
        self.latest_of_step[issued.step_id] = issued.handoff_id
        self.without_successor[issued.handoff_id] = None
        self.ended_before[issued.handoff_id] = len(self.ended_before)
        if issued.is_role_handoff:
            self.latest_of_roles = issued.handoff_id

    def find_predecessors(
        self, issued: HandoffIssued, depends_on: Sequence[StepId]
    ) -> tuple[HandoffId, ...]:
        """Return the predecessors of a handoff. They have a successor from this call on.

        A step follows the steps that it depends on, or else the role that requested it. A role
        follows all handoffs without a successor. Another attempt follows the handoffs that
        ended since the previous attempt: its dependencies, a role that saw the previous
        attempt, or else that attempt.
        """
        cause = self.latest_of_roles
        if issued.is_role_handoff:
            self.ended_at_issue[issued.handoff_id] = len(self.ended_before)
            after = list(self.without_successor)
        else:
            previous = self.latest_of_step.get(issued.step_id)
            after = self._list_dependencies_since(previous, depends_on)
            if previous is not None and not self._has_role_seen(previous):
                cause = previous
        if not after and cause:
            after = [cause]
        for handoff_id in after:
            self.without_successor.pop(handoff_id, None)
        return tuple(after)

    def _list_dependencies_since(
        self, previous: HandoffId | None, depends_on: Sequence[StepId]
    ) -> list[HandoffId]:
        """Return the latest handoffs of some steps that ended after the previous attempt.

        Args:
            previous: None: there was no attempt, and all handoffs count.
        """
        after: list[HandoffId] = []
        for step_id in depends_on:
            latest = self.latest_of_step.get(step_id)
            if latest is None:
                continue
            if previous is None or self.ended_before[latest] > self.ended_before[previous]:
                after.append(latest)
        return after

    def _has_role_seen(self, handoff_id: HandoffId) -> bool:
        """Return whether a handoff had ended when the latest role was issued."""
        if self.latest_of_roles is None:
            return False
        return self.ended_at_issue.get(self.latest_of_roles, 0) > self.ended_before[handoff_id]


def _build_bars(record: JobRecord) -> list[TimelineBar]:
    """Return the bar of each handoff, in the order of their issue.

    The order of the journal decides which handoffs had ended before a handoff was issued.
    """
    issued: dict[HandoffId, HandoffIssued] = {}
    finished: dict[HandoffId, HandoffFinished] = {}
    for recorded in record.journal:
        if isinstance(recorded.event, HandoffIssued):
            issued[recorded.event.handoff_id] = recorded.event
        elif isinstance(recorded.event, HandoffFinished):
            finished[recorded.event.handoff_id] = recorded.event
    ended = _EndedHandoffs()
    bars: list[TimelineBar] = []
    for recorded in record.journal:
        match recorded.event:
            case HandoffFinished(handoff_id=handoff_id) if handoff_id in issued:
                ended.add(issued[handoff_id])
            case HandoffIssued(handoff_id=handoff_id) as event:
                handoff = AgentHandoff.from_json(record.payloads[event.handoff.digest])
                info = record.handoffs.get(handoff_id) or HandoffInfo("issued")
                after = ended.find_predecessors(event, handoff.depends_on)
                bars.append(_build_bar(event, recorded.at, info, finished.get(handoff_id), after))
            case StepsAbandoned(steps=steps):
                abandoned_steps = {item.step for item in steps}
                _end_stopped(bars, recorded.at, abandoned_steps)
            case JobEnded():
                _end_stopped(bars, recorded.at)
    return bars


def _end_stopped(
    bars: list[TimelineBar], at: float, steps: Collection[StepId] | None = None
) -> None:
    """End the stopped bars without an end, and their open claims, at a time.

    Args:
        steps: only the bars of these steps; None: all bars.
    """
    for place, bar in enumerate(bars):
        is_meant = steps is None or bar.step_id in steps
        if is_meant and bar.state == STOPPED and bar.ended_at is None:
            bars[place] = _with_end(bar, at)


def _with_end(bar: TimelineBar, at: float) -> TimelineBar:
    """Return the bar with its end and the end of its open claim at a time."""
    past_claims: list[PastClaim] = []
    for past_claim in bar.past_claims:
        if past_claim.ended_at is None:
            past_claims.append(replace(past_claim, ended_at=at))
        else:
            past_claims.append(past_claim)
    return replace(bar, ended_at=at, past_claims=tuple(past_claims))


def _describe_models(finished: HandoffFinished) -> str | None:
    """Return the model of a handoff. With several models, each name has its number of replies. A
    copied result names its origin.
    """
    if finished.shared is not None:
        return f"{finished.model} ({describe_shared_run(finished.shared)})"
    if finished.replies_by_model is None:
        return finished.model
    parts = [f"{name} ({finished.replies_by_model.get(name, 0)})" for name in finished.models]
    return ", ".join(parts)


def _list_all_claims(info: HandoffInfo) -> tuple[PastClaim, ...]:
    """Return all claims, also the claim that holds or that ended with a result."""
    if info.past_claims or info.claimed_at is not None:
        began_at = info.claimed_at
    else:
        began_at = info.started_at
    if began_at is None:
        return info.past_claims
    return (*info.past_claims, PastClaim(info.worker, began_at, info.finished_at))


def _build_bar(
    event: HandoffIssued,
    at: float,
    info: HandoffInfo,
    finished: HandoffFinished | None,
    after: tuple[HandoffId, ...],
) -> TimelineBar:
    """Return the bar of a handoff.

    Args:
        at: time of the event, for a handoff whose own time is not known.
        finished: the event of its result; None: there is no result.
        after: the handoffs before it.
    """
    result = model = stop_reason = None
    if finished:
        result = finished.result.digest
        model = _describe_models(finished)
        stop_reason = finished.stop_reason.value
    return TimelineBar(
        handoff_id=event.handoff_id,
        step_id=event.step_id,
        attempt=event.attempt,
        agent=event.assigned_to,
        state=_get_state(info, finished),
        issued_at=info.issued_at or at,
        began_at=info.started_at,
        ended_at=info.finished_at,
        after=after,
        payload=event.handoff.digest,
        result=result,
        worker=info.worker,
        model=model,
        stop_reason=stop_reason,
        claims=info.claims,
        lost_claims=info.lost_claims,
        past_claims=_list_all_claims(info),
        turns=info.turns,
        tokens=info.input_tokens + info.output_tokens,
        usd=to_usd(info.cost_microusd),
        at_most=info.cut_calls > 0,
        child=event.child.job_id if event.child else None,
    )


def _get_state(info: HandoffInfo, finished: HandoffFinished | None) -> str:
    """Return the status of the result, or else `running`, `stopped` or `queued`."""
    if finished is not None:
        return finished.status.value
    match info.state:
        case "running" | "done":
            return "running"
        case "dropped":
            return STOPPED
        case _:
            return "queued"
