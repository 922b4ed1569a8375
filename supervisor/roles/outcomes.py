"""How a role's answer becomes an event. A role that failed has consequences too: the job goes on without it, and says so.

What the role has written stays in its result; the event refers to that.
"""

from __future__ import annotations

from contextlib import suppress
from typing import assert_never

from shared.wire.conflicts import Settlements
from shared.wire.errors import HandoffError
from shared.wire.events import AnswerMethod, Event, Judged, NeedsResolved, PlanMade, Reviewed, Routed, StepOutline, Synthesised
from shared.wire.handoff import BUDGETS, AgentHandoff, BlobRef, HandoffResult, ResultStatus, ref
from shared.wire.ids import StepId
from shared.wire.limits import OnLimit
from shared.wire.mode import Mode
from shared.wire.plan import Plan
from shared.wire.resolutions import Resolutions
from shared.wire.verdict import Verdict
from supervisor.lifecycle.answering import usable_sinks
from supervisor.lifecycle.likeness import asks_the_same
from supervisor.lifecycle.state import JobState
from supervisor.lifecycle.words import Words
from supervisor.roles.needs import steps_asked_in
from supervisor.roles.planner import degraded_plan, specialists_offered_in
from supervisor.roles.router import Route

TITLE_CHARS = 80


def outcome_of(  # noqa: PLR0911 (one case a role)
    handoff: AgentHandoff, state: JobState, result: HandoffResult, request: str, words: Words
) -> tuple[tuple[Event, ...], tuple[str, ...]]:
    """The events that follow from the result of a role's handoff, and the payloads that they refer to. `words`: of `asked_before`."""
    if result.stop_reason in BUDGETS and state.submitted.limits.on_limit is OnLimit.ASK:
        return (), ()  # the role is asked again when the job may go on
    schema, written = handoff.expected_output_format, ref(result.to_json())
    match handoff.assigned_to:
        case "router":
            return (_routed(result, written),), ()
        case "planner" if state.plan is None:
            plan = _plan(result)
            event, text = plan_made(plan or degraded_plan(request, specialists_offered_in(schema)), None if plan else written)
            return (event,), (text,)
        case "planner":
            return (_resolved(state, steps_asked_in(schema), result, written, words),), ()
        case "judge":
            return (_judged(result, written),), ()
        case "assessor":
            return (_reviewed(state, result, written, words),), ()
        case "synthesizer":
            return (_synthesised(state, result, written),), ()
        case role:
            raise HandoffError(f"{role} is not a role that has consequences")


def _judged(result: HandoffResult, ref: BlobRef) -> Judged:
    with suppress(HandoffError):
        if result.status is ResultStatus.OK:
            settlements = Settlements.of(result.output).settlements
            return Judged(result=ref, settled=tuple(one.conflict for one in settlements if one.stands))
    return Judged(result=ref, problem="the judge failed")


def _routed(result: HandoffResult, ref: BlobRef) -> Routed:
    with suppress(HandoffError):
        if result.status is ResultStatus.OK:
            route = Route.of(result.output)
            mode, who = (Mode.TEAM, None) if route.team else (Mode.SINGLE, route.specialist)
            return Routed(mode=mode, specialist=who, result=ref)
    return Routed(mode=Mode.TEAM, result=ref, problem="the router failed")


def plan_made(plan: Plan, degraded: BlobRef | None = None, *, is_reviewed: bool = True) -> tuple[PlanMade, str]:
    """The event of a plan, and the plan's payload. `degraded`: the planner's result, if this is not its plan."""
    text = plan.to_json()
    outlines = tuple(
        StepOutline(
            id=step.id,
            specialist=step.specialist,
            depends_on=step.depends_on,
            title=title_of(step.task),
            on_failure=step.on_failure,
        )
        for step in plan.steps
    )
    return PlanMade(plan=ref(text), steps=outlines, synthesis=plan.synthesis, is_reviewed=is_reviewed, degraded=degraded), text


def title_of(text: str) -> str:
    """The first words, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"


def _plan(result: HandoffResult) -> Plan | None:
    with suppress(HandoffError):
        return Plan.of(result.output) if result.status is ResultStatus.OK else None
    return None


def _resolved(state: JobState, asked: tuple[str, ...], result: HandoffResult, ref: BlobRef, words: Words) -> NeedsResolved:
    answered, steps = set[StepId](), [StepId(step) for step in asked]
    with suppress(HandoffError):
        if result.status is ResultStatus.OK:
            answered = {item.step for item in Resolutions.of(result.output).resolutions if item.answer}
    again = tuple(step for step in steps if _needs_again(state, step, words))
    return NeedsResolved(
        result=ref,
        answered=tuple(step for step in steps if step in answered and step not in again),
        given_up=tuple(step for step in steps if step not in answered or step in again),
        repeats=again,
    )


def _needs_again(state: JobState, step_id: StepId, words: Words) -> bool:
    """Whether what it needs was answered before: another answer would not help it."""
    now, *before = [words.result(ref).needs or "" for ref in _needs_of(state, step_id)] or [""]
    return any(asks_the_same(need, now) for need in before)


def _needs_of(state: JobState, step_id: StepId) -> list[BlobRef]:
    """The result that says what it needs, and those that the planner has answered."""
    step = state.steps[step_id]
    return [ref for ref in (step.result, *(one.previous for one in step.remarks if one.author == "planner")) if ref]


def asked_before(handoff: AgentHandoff, state: JobState) -> tuple[BlobRef, ...]:
    """The results that an answer of this role is held against: what was asked for already."""
    match handoff.assigned_to:
        case "assessor":
            return sent_back_before(state)
        case "planner" if state.plan is not None:
            asking = steps_asked_in(handoff.expected_output_format)
            return tuple(ref for step_id in asking for ref in _needs_of(state, StepId(step_id)))
        case _:
            return ()


def sent_back_before(state: JobState) -> tuple[BlobRef, ...]:
    """The results of the rounds that sent something back, since the submission or the latest retry."""
    return tuple(review.result for review in state.rounds_now if review.result and review.steps)


def _repeats(state: JobState, verdict: Verdict, words: Words) -> tuple[StepId, ...]:
    before = [revision for ref in sent_back_before(state) for revision in Verdict.of(words.result(ref).output).revisions]
    return tuple(
        new.step for new in verdict.revisions if any(old.step == new.step and asks_the_same(old.problem, new.problem) for old in before)
    )


def _reviewed(state: JobState, result: HandoffResult, ref: BlobRef, words: Words) -> Reviewed:
    number = len(state.rounds) + 1
    with suppress(HandoffError):
        if result.status is ResultStatus.OK:
            verdict = Verdict.of(result.output)
            named = tuple(revision.step for revision in verdict.revisions)
            again, points = _repeats(state, verdict, words), len(verdict.open_points)
            return Reviewed(round=number, decision=verdict.verdict, result=ref, steps=named, repeats=again, open_points=points)
    return Reviewed(round=number, decision=None, result=ref, problem="the assessor failed")


def _synthesised(state: JobState, result: HandoffResult, ref: BlobRef) -> Synthesised:
    match result.status:
        case ResultStatus.OK | ResultStatus.PARTIAL if result.output not in (None, ""):
            partial = None if result.status is ResultStatus.OK else "the synthesis is not whole"
            return Synthesised(method=AnswerMethod.SYNTHESIZED, result=ref, problem=partial)
        case ResultStatus.OK | ResultStatus.PARTIAL | ResultStatus.FAILED | ResultStatus.NEEDS_INPUT:
            method = AnswerMethod.MERGED if usable_sinks(state) else AnswerMethod.NONE
            return Synthesised(method=method, result=ref, problem="the synthesizer failed")
        case _:
            assert_never(result.status)
