"""decide(state, seen, now) -> commands: everything that a job can do next is here, and nowhere else."""

from __future__ import annotations

from typing import assert_never

from shared.wire.events import AnswerMethod, JobStatus
from shared.wire.ids import StepId
from shared.wire.limits import OnLimit
from supervisor.lifecycle.answering import choose_method
from supervisor.lifecycle.approving import after_rejection, asked_first, released, while_asked
from supervisor.lifecycle.beginning import ask_role, plan, route
from supervisor.lifecycle.commands import AbandonSteps, AskUser, ChooseAnswer, Command, EndJob, IssueGroup, SkipReview, TryAgain
from supervisor.lifecycle.disputes import look_into
from supervisor.lifecycle.ending import NOTHING_USABLE, after_the_end, end_now, leave, why_over
from supervisor.lifecycle.failing import second_chances
from supervisor.lifecycle.gates import may_send_back
from supervisor.lifecycle.recovering import recoveries
from supervisor.lifecycle.seen import Seen
from supervisor.lifecycle.state import JobState, Phase, StepStatus

MOST_NEEDS_ANSWERED = 2
"""How often the planner answers one step's needs before the step is given up."""
MOST_FRUITLESS = 3
"""Results of roles in a row that nothing followed from. The next one would be paid for, and come to nothing, too."""
MOST_IN_A_CHORD = 500
"""Handoffs: publishing 1,000 takes a second, and other jobs wait meanwhile."""


def decide(state: JobState, seen: Seen, now: float) -> tuple[Command, ...]:
    """What is to be done now. Nothing: wait for the next event, or for `next_due`."""
    if state.ended:
        return after_the_end(state, now)
    if state.cancel_requested:
        return (EndJob(JobStatus.CANCELLED, "cancelled by the user"),)
    if state.fruitless >= MOST_FRUITLESS:
        return (EndJob(JobStatus.FAILED, f"a defect of ours: nothing followed from {state.fruitless} results of the supervisor's roles"),)
    return _carry_on(state, seen, now)


def _carry_on(state: JobState, seen: Seen, now: float) -> tuple[Command, ...]:
    if state.question:
        return (*recoveries(state, seen, now), *while_asked(state, state.question, now))
    if state.rejected:
        return after_rejection(state, state.rejected)
    if now >= state.deadline and (late := end_now(state, f"the job's {state.submitted.limits.max_seconds} s are over")):
        return released(state, late)
    on_limit = state.submitted.limits.on_limit if state.spent else None
    if on_limit is OnLimit.STOP and (at_once := end_now(state, why_over(state))):
        return released(state, at_once)
    what_next = _ask(state) if on_limit is OnLimit.ASK else asked_first(state, _next(state, seen, now))
    return (*recoveries(state, seen, now), *what_next)


def _ask(state: JobState) -> tuple[Command, ...]:
    return () if state.asked else (AskUser(why_over(state)),)


def _next(state: JobState, seen: Seen, now: float) -> tuple[Command, ...]:
    match state.phase:
        case Phase.ROUTING:
            return route(state, seen)
        case Phase.PLANNING:
            return plan(state, seen)
        case Phase.WORKING:
            return _work(state, seen, now)
        case Phase.SYNTHESISING:
            return _synthesise(state, now)
        case Phase.ANSWERING:
            return (leave(state, may_send_back=may_send_back(state, now)),)
        case Phase.ENDED:
            return ()
        case _:
            assert_never(state.phase)


def _work(state: JobState, seen: Seen, now: float) -> tuple[Command, ...]:
    if chances := second_chances(state, seen, now):
        return (TryAgain(chances),)
    hopeless = _hopeless(state)
    if hopeless:
        return (AbandonSteps(hopeless, "everything that it depends on failed"),)
    if state.spent is not None:
        unbegun = tuple(step_id for step_id, step in state.steps.items() if step.status in (StepStatus.WAITING, StepStatus.IN_NEED))
        if unbegun:
            return (AbandonSteps(unbegun, why_over(state)),)
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
        first = look_into(state, now)
        return first if first is not None else (_review(state, now),) if state.is_reviewed else _synthesise(state, now)
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
    return ask_role(state, "planner")


def _review(state: JobState, now: float) -> Command:
    if not any(step.usable for step in state.steps.values()):
        return SkipReview(NOTHING_USABLE)
    if now >= state.working_deadline:
        return SkipReview("no time was left for a review")
    return ask_role(state, "assessor")


def _synthesise(state: JobState, now: float) -> tuple[Command, ...]:
    if state.has_open("synthesizer"):
        return ()
    method = choose_method(state)
    if method is AnswerMethod.SYNTHESIZED and now < state.working_deadline:
        return (ask_role(state, "synthesizer"),)
    return (ChooseAnswer(AnswerMethod.MERGED if method is AnswerMethod.SYNTHESIZED else method),)


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
