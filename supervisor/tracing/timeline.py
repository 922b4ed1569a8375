"""A job's handoffs on one time axis: when each ran, its predecessors, and the critical path. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from handoff_queue.shared.store.claim_history import PastClaim
from handoff_queue.shared.store.jobs import HandoffStanding
from handoff_queue.shared.types.events import (
    HandoffFinished,
    HandoffIssued,
    JobEnded,
    StepsAbandoned,
)
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId
from handoff_queue.shared.types.usage import cost_usd
from handoff_queue.supervisor.client.report import JobRecord

STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """A handoff. Times are Unix seconds by Redis's clock; None: not yet, or never."""

    handoff_id: HandoffId
    step_id: StepId
    attempt: int
    who: str
    state: str
    """`ok`, `partial`, `failed`, `needs_input`; `running`, `queued`; `STOPPED`: it was given
    up before it had ended.
    """
    issued_at: float
    began_at: float | None
    ended_at: float | None
    """End of the handoff, or time of its abandonment."""
    after: tuple[HandoffId, ...]
    """Handoffs that had to end before it could be issued."""
    payload: str
    """Digest of the AgentHandoff."""
    result: str | None
    """Digest of the HandoffResult."""
    worker: str
    model: str | None
    stop_reason: str | None
    claims: int
    """Claims since it last made progress."""
    lost_claims: int
    """Claims that were lost with their process."""
    stints: tuple[PastClaim, ...]
    """Claims without a result, with their times. Between two claims the handoff waited."""
    turns: int
    tokens: int
    usd: float | None
    """None if a price is unknown."""
    at_most: bool
    """True if its figures are an upper bound, because a call was cut off."""
    child: JobId | None
    """The job that did it, if a sub-supervisor was asked."""
    is_critical: bool = False
    """True if the job would have ended sooner without it."""

    def worked_s(self, now: float) -> float:
        """Return the seconds with a claim, so far."""
        return sum(stint.lasted_s(now) for stint in self.stints)

    def waited_s(self, now: float) -> float:
        """Return the seconds without a claim so far: before the first claim, and between claims."""
        if self.ended_at is not None:
            until = self.ended_at
        else:
            until = now
        return max(0.0, until - self.issued_at - self.worked_s(now))


@dataclass(frozen=True, slots=True)
class Timeline:
    """All handoffs, in the order of their issue."""

    begins_at: float
    ends_at: float
    """End of the job. For a running job it is the time of the record."""
    bars: tuple[TimelineBar, ...]


def timeline_of(record: JobRecord) -> Timeline:
    """Return the timeline of a job's record."""
    until = _end(record)
    bars = _placed(record)
    chain = critical(bars)
    return Timeline(
        record.journal[0].at,
        until,
        tuple(replace(bar, is_critical=bar.handoff_id in chain) for bar in bars),
    )


def critical(bars: Sequence[TimelineBar]) -> frozenset[HandoffId]:
    """Return the critical path: the chain from the handoff that ended last back to the beginning,
    through the predecessor that ended last. Abandoned handoffs are no predecessors.
    """
    by_id = {bar.handoff_id: bar for bar in bars}
    chain: dict[HandoffId, None] = {}
    last = max(
        (bar for bar in bars if bar.began_at is not None and bar.state != STOPPED),
        key=_until,
        default=None,
    )
    while last is not None and last.handoff_id not in chain:
        chain[last.handoff_id] = None
        last = max((by_id[handoff_id] for handoff_id in last.after), key=_until, default=None)
    return frozenset(chain)


def _until(bar: TimelineBar) -> float:
    if bar.ended_at is not None:
        return bar.ended_at
    return float("inf")


def _end(record: JobRecord) -> float:
    if record.job.status.ended:
        return record.journal[-1].at
    return record.at


@dataclass(slots=True)
class _Past:
    """Handoffs that had ended at one place of the journal."""

    by_step: dict[StepId, HandoffId] = field(default_factory=dict)
    """The latest of each step."""
    since: dict[HandoffId, None] = field(default_factory=dict)
    """Ended handoffs without a successor."""
    role: HandoffId | None = None
    """The last one of a role."""
    place: dict[HandoffId, int] = field(default_factory=dict)
    """Number of handoffs that had ended before it."""
    seen: dict[HandoffId, int] = field(default_factory=dict)
    """Number of handoffs that had ended when a role's handoff was issued."""

    def end(self, issued: HandoffIssued) -> None:
        self.by_step[issued.step_id] = issued.handoff_id
        self.since[issued.handoff_id] = None
        self.place[issued.handoff_id] = len(self.place)
        if issued.is_of_a_role:
            self.role = issued.handoff_id

    def behind(self, issued: HandoffIssued, needed: Sequence[StepId]) -> tuple[HandoffId, ...]:
        """Return the predecessors of a handoff.

        A step follows the steps that it depends on, or else the role that requested it. A role
        follows all handoffs without a successor. Another attempt follows the handoffs that ended
        since the previous attempt: its dependencies, a role that saw the previous attempt, or else
        that attempt.
        """
        earlier = self.by_step.get(issued.step_id)
        steps = []
        for step in needed:
            if step in self.by_step:
                steps.append(self.by_step[step])
        cause = self.role
        if issued.is_of_a_role:
            self.seen[issued.handoff_id] = len(self.place)
            steps = list(self.since)
        elif earlier is not None:
            steps = [one for one in steps if self.place[one] > self.place[earlier]]
            if self.role and self.seen.get(self.role, 0) > self.place[earlier]:
                cause = self.role
            else:
                cause = earlier
        after = tuple(steps) or ((cause,) if cause else ())
        for one in after:
            self.since.pop(one, None)
        return after


def _placed(record: JobRecord) -> list[TimelineBar]:
    """Return each handoff with its predecessors: the handoffs that had ended, by the order of the
    journal.
    """
    issued = {
        recorded.event.handoff_id: recorded.event
        for recorded in record.journal
        if isinstance(recorded.event, HandoffIssued)
    }
    finished = {
        recorded.event.handoff_id: recorded.event
        for recorded in record.journal
        if isinstance(recorded.event, HandoffFinished)
    }
    past, bars = _Past(), list[TimelineBar]()
    for recorded in record.journal:
        match recorded.event:
            case HandoffFinished(handoff_id=handoff_id) if handoff_id in issued:
                past.end(issued[handoff_id])
            case HandoffIssued(handoff_id=handoff_id) as event:
                needed = AgentHandoff.from_json(record.payloads[event.handoff.digest]).depends_on
                standing = record.handoffs.get(handoff_id) or HandoffStanding("issued")
                bars.append(
                    _bar(
                        event,
                        recorded.at,
                        standing,
                        finished.get(handoff_id),
                        past.behind(event, needed),
                    )
                )
            case StepsAbandoned(steps=steps):
                bars = [
                    _given_up(bar, recorded.at)
                    if bar.step_id in {item.step for item in steps}
                    else bar
                    for bar in bars
                ]
            case JobEnded():
                bars = [_given_up(bar, recorded.at) for bar in bars]
    return bars


def _given_up(bar: TimelineBar, at: float) -> TimelineBar:
    """Return the bar with its open claim ended at this time."""
    if bar.state != STOPPED or bar.ended_at is not None:
        return bar
    return replace(
        bar,
        ended_at=at,
        stints=tuple(
            replace(past_claim, ended_at=at) if past_claim.ended_at is None else past_claim
            for past_claim in bar.stints
        ),
    )


def _stints(standing: HandoffStanding) -> tuple[PastClaim, ...]:
    """Return all claims, including the one that holds or that ended with a result."""
    if standing.stints or standing.claimed_at is not None:
        began_at = standing.claimed_at
    else:
        began_at = standing.started_at
    if began_at is None:
        return standing.stints
    return (*standing.stints, PastClaim(standing.worker, began_at, standing.finished_at))


def _bar(
    event: HandoffIssued,
    at: float,
    standing: HandoffStanding,
    done: HandoffFinished | None,
    after: tuple[HandoffId, ...],
) -> TimelineBar:
    return TimelineBar(
        handoff_id=event.handoff_id,
        step_id=event.step_id,
        attempt=event.attempt,
        who=event.assigned_to,
        state=_state(standing, done),
        issued_at=standing.issued_at or at,
        began_at=standing.started_at,
        ended_at=standing.finished_at,
        after=after,
        payload=event.handoff.digest,
        result=done.result.digest if done else None,
        worker=standing.worker,
        model=done.model if done else None,
        stop_reason=done.stop_reason.value if done else None,
        claims=standing.claims,
        lost_claims=standing.lost_claims,
        stints=_stints(standing),
        turns=standing.turns,
        tokens=standing.input_tokens + standing.output_tokens,
        usd=cost_usd(standing.cost_microusd),
        at_most=standing.cut_calls > 0,
        child=event.child.job_id if event.child else None,
    )


def _state(standing: HandoffStanding, done: HandoffFinished | None) -> str:
    if done is not None:
        return done.status.value
    return {"running": "running", "done": "running", "dropped": STOPPED}.get(
        standing.state, "queued"
    )
