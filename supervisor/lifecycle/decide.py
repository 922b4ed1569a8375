"""decide(state, seen, now) -> commands: everything that a job can do next is here, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from shared.wire.events import AnswerMethod, JobStatus
from shared.wire.handoff import ResultStatus, StopReason
from shared.wire.ids import HandoffId, StepId
from shared.wire.limits import OnLimit
from shared.wire.verdict import Decision
from supervisor.lifecycle.answering import choose_method, usable_sinks
from supervisor.lifecycle.budget import why_spent
from supervisor.lifecycle.commands import (
    AbandonSteps,
    AskUser,
    ChooseAnswer,
    Command,
    DeliverWebhook,
    EndJob,
    IssueGroup,
    IssueRole,
    PublishAgain,
    RunRole,
    SkipReview,
)
from supervisor.lifecycle.state import JobState, Phase, StepStatus

MOST_NEEDS_ANSWERED = 2
"""How often the planner answers one step's needs before the step is given up."""
WEBHOOK_BACKOFF_S = (0.0, 5.0, 30.0, 120.0, 600.0, 3_600.0)
"""Before each try to deliver a webhook; after the last it is left."""
WEBHOOK_GIVEN_UP_AFTER_S = 30.0
"""A try of which nothing was heard for so long died with its supervisor; longer than the POST's own timeout."""
NOTHING_USABLE = "no step has a usable result"
MOST_FRUITLESS = 3
"""Results of roles in a row that nothing followed from. The next one would be paid for, and come to nothing, too."""
MOST_IN_A_CHORD = 500
"""Handoffs: publishing 1,000 takes a second, and other jobs wait meanwhile."""
NOBODY_THERE_S = (2.0, 30.0)
"""Until the next look when no worker announces any specialist: a quarter of the job's age, within these; 10,000 jobs: 333 a second."""


@dataclass(frozen=True, slots=True)
class HandoffSeen:
    """How a handoff stands in the ledger."""

    state: str
    """issued | running | done | dropped"""
    lease_until: float | None = None
    """Unix time in seconds."""
    lost: bool = False
    """Published, never claimed, and its message is no longer in its queue."""
    queued: bool = False
    """Its message was sent to a queue. A role that was not is run where it was issued."""
    held: bool = False
    """Its role is paused, its message is a dead letter, or it waits for its provider. Whoever ends that has it found again."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the shell read outside the journal."""

    roles: frozenset[str] = frozenset()
    """Specialists that live workers announce."""
    handoffs: Mapping[HandoffId, HandoffSeen] = field(default_factory=dict)
    """Those that something may be wrong with, and every open handoff of a role."""


def decide(state: JobState, seen: Seen, now: float) -> tuple[Command, ...]:
    """What is to be done now. Nothing: wait for the next event, or for `next_due`."""
    if state.ended:
        return _after_the_end(state, now)
    if state.cancel_requested:
        return (EndJob(JobStatus.CANCELLED, "cancelled by the user"),)
    if state.fruitless >= MOST_FRUITLESS:
        return (EndJob(JobStatus.FAILED, f"a defect of ours: nothing followed from {state.fruitless} results of the supervisor's roles"),)
    if now >= state.deadline and (late := _end_now(state, f"the job's {state.submitted.limits.max_seconds} s are over")):
        return late
    on_limit = state.submitted.limits.on_limit if state.spent else None
    if on_limit is OnLimit.STOP and (at_once := _end_now(state, _why(state))):
        return at_once
    what_next = _ask(state) if on_limit is OnLimit.ASK else _next(state, seen, now)
    return (*_recoveries(state, seen, now), *what_next)


def _ask(state: JobState) -> tuple[Command, ...]:
    return () if state.asked else (AskUser(_why(state)),)


def _why(state: JobState) -> str:
    assert state.spent is not None
    return why_spent(state.spent)


def _next(state: JobState, seen: Seen, now: float) -> tuple[Command, ...]:
    match state.phase:
        case Phase.PLANNING:
            if state.has_open("planner") or not seen.roles:
                return ()
            return (_role(state, "planner"),)
        case Phase.WORKING:
            return _work(state, now)
        case Phase.SYNTHESISING:
            return _synthesise(state, now)
        case Phase.ANSWERING:
            return (_end(state),)
        case Phase.ENDED:
            return ()
        case _:
            assert_never(state.phase)


def _work(state: JobState, now: float) -> tuple[Command, ...]:
    hopeless = _hopeless(state)
    if hopeless:
        return (AbandonSteps(hopeless, "everything that it depends on failed"),)
    if state.spent is not None:
        unbegun = tuple(step_id for step_id, step in state.steps.items() if step.status in (StepStatus.WAITING, StepStatus.IN_NEED))
        if unbegun:
            return (AbandonSteps(unbegun, _why(state)),)
    commands: list[Command] = []
    ready = [
        step_id for step_id, step in state.steps.items() if step.status is StepStatus.WAITING and _dependencies_settled(state, step_id)
    ]
    room = max(0, state.submitted.limits.max_handoffs - state.handoffs)
    if ready and not room:
        return (AbandonSteps(tuple(ready), f"the job's limit of {state.submitted.limits.max_handoffs} handoffs is reached"),)
    commands += _groups(state, ready[:room])
    needy = [step_id for step_id, step in state.steps.items() if step.status is StepStatus.IN_NEED]
    if needy and not state.has_open("planner"):
        commands.append(_answer_needs(state, needy))
    if not commands and all(step.status is StepStatus.SETTLED for step in state.steps.values()) and not state.has_open("assessor"):
        commands.append(_review(state, now))
    return tuple(commands)


def _groups(state: JobState, ready: list[StepId]) -> list[Command]:
    """Ready steps that the same steps wait for meet in one chord: unequal branches never wait for each other."""
    if not ready:
        return []
    dependents = state.dependents
    together: dict[frozenset[StepId], list[StepId]] = {}
    for step_id in ready:
        together.setdefault(dependents[step_id], []).append(step_id)
    slices = [steps[i : i + MOST_IN_A_CHORD] for steps in together.values() for i in range(0, len(steps), MOST_IN_A_CHORD)]
    return [IssueGroup(f"g{state.groups + n}", tuple(steps)) for n, steps in enumerate(slices, start=1)]


def _answer_needs(state: JobState, needy: list[StepId]) -> Command:
    asked_too_often = tuple(
        step_id for step_id in needy if sum(item.author == "planner" for item in state.steps[step_id].remarks) >= MOST_NEEDS_ANSWERED
    )
    if asked_too_often:
        return AbandonSteps(asked_too_often, f"still needs something after {MOST_NEEDS_ANSWERED} answers of the planner")
    return _role(state, "planner")


def _review(state: JobState, now: float) -> Command:
    if not any(step.usable for step in state.steps.values()):
        return SkipReview(NOTHING_USABLE)
    if now >= state.working_deadline:
        return SkipReview("no time was left for a review")
    return _role(state, "assessor")


def _synthesise(state: JobState, now: float) -> tuple[Command, ...]:
    if state.has_open("synthesizer"):
        return ()
    method = choose_method(state)
    if method is AnswerMethod.SYNTHESIZED and now < state.working_deadline:
        return (_role(state, "synthesizer"),)
    return (ChooseAnswer(AnswerMethod.MERGED if method is AnswerMethod.SYNTHESIZED else method),)


def _end(state: JobState) -> EndJob:
    if not any(step.usable for step in state.steps.values()):
        return _fail(state)
    planned = state.plan is not None and state.plan.degraded is None
    whole = all(step.result_status is ResultStatus.OK for step in state.steps.values())
    accepted = state.last_round is not None and state.last_round.decision is Decision.PASS
    settled = state.synthesised is not None and state.synthesised.problem is None
    why = _why(state) if state.spent else None
    return EndJob(JobStatus.OK if planned and whole and accepted and settled else JobStatus.PARTIAL, why)


def _fail(state: JobState) -> EndJob:
    """With the first step that failed by itself: the cause, not what it led to."""
    if state.spent is not None:
        return EndJob(JobStatus.FAILED, f"{_why(state)}, and {NOTHING_USABLE}")
    roots = ((step_id, step) for step_id, step in state.steps.items() if step.trouble and not step.outline.depends_on)
    step_id, step = next(roots, (None, None))
    if step is None:
        return EndJob(JobStatus.FAILED, NOTHING_USABLE)
    ended_itself = step.stop_reason in (None, StopReason.FINISHED)
    how = step.result_status if ended_itself else step.stop_reason
    return EndJob(JobStatus.FAILED, f"{NOTHING_USABLE} ({step_id}: {how})", step.trouble)


def _end_now(state: JobState, why: str) -> tuple[Command, ...]:
    """The job ends with what it has, and nobody is asked any more."""
    match state.phase:
        case Phase.PLANNING:
            return (EndJob(JobStatus.FAILED, f"{why}, and there was no plan yet"),)
        case Phase.WORKING:
            unsettled = tuple(step_id for step_id, step in state.steps.items() if step.status is not StepStatus.SETTLED)
            return (AbandonSteps(unsettled, why),) if unsettled else (SkipReview(why),)
        case Phase.SYNTHESISING:
            return (ChooseAnswer(AnswerMethod.MERGED if usable_sinks(state) else AnswerMethod.NONE),)
        case Phase.ANSWERING:
            return (_end(state),)
        case Phase.ENDED:
            return ()
        case _:
            assert_never(state.phase)


def _recoveries(state: JobState, seen: Seen, now: float) -> tuple[Command, ...]:
    again: list[HandoffId] = []
    commands: list[Command] = []
    for handoff_id, found in seen.handoffs.items():
        issued = state.open.get(handoff_id)
        if issued is None or found.held:
            continue
        abandoned = found.state == "running" and (found.lease_until or 0.0) < now
        if issued.group is None:
            if abandoned or (found.state == "issued" and (found.lost or not found.queued)):
                commands.append(RunRole(handoff_id))
        elif abandoned or (found.state == "issued" and found.lost):
            again.append(handoff_id)
    return (PublishAgain(tuple(again)), *commands) if again else tuple(commands)  # running a role takes as long as its model does


def _after_the_end(state: JobState, now: float) -> tuple[Command, ...]:
    due = _webhook_due(state)
    return (DeliverWebhook(state.webhook_attempts + 1),) if due is not None and due <= now else ()


def _webhook_due(state: JobState) -> float | None:
    if state.submitted.webhook_url is None or state.webhook_delivered or state.webhook_attempts >= len(WEBHOOK_BACKOFF_S):
        return None
    if state.webhook_under_way:
        return state.webhook_tried_at + WEBHOOK_GIVEN_UP_AFTER_S
    return state.webhook_tried_at + WEBHOOK_BACKOFF_S[state.webhook_attempts]


def next_due(state: JobState, now: float, claim_within_s: float, seen: Seen = Seen()) -> float | None:
    """When the sweeper must look at the job, if nothing happens before; None: never. Unix time in seconds.

    `claim_within_s`: how soon a role's handoff that was just issued must have been claimed, unless it is held.
    """
    if state.ended:
        return _webhook_due(state)
    if state.phase is Phase.PLANNING and not state.open:
        soonest_s, latest_s = NOBODY_THERE_S
        return min(now + min(max(soonest_s, (now - state.started_at) / 4), latest_s), max(state.deadline, now + 1.0))
    held = {handoff_id for handoff_id, found in seen.handoffs.items() if found.held}
    if any(handoff.group is None and handoff_id not in held for handoff_id, handoff in state.open.items()):
        return min(now + claim_within_s, state.deadline)
    return max(state.deadline, now + 1.0)


def _role(state: JobState, role: str) -> IssueRole:
    return IssueRole(role, state.role_attempts.get(role, 0) + 1)


def _dependencies_settled(state: JobState, step_id: StepId) -> bool:
    return all(state.steps[dependency].status is StepStatus.SETTLED for dependency in state.steps[step_id].outline.depends_on)


def _hopeless(state: JobState) -> tuple[StepId, ...]:
    """Steps that would have nothing at all to build on."""
    return tuple(
        step_id
        for step_id, step in state.steps.items()
        if step.status is StepStatus.WAITING
        and step.outline.depends_on
        and _dependencies_settled(state, step_id)
        and not any(state.steps[dependency].usable for dependency in step.outline.depends_on)
    )
