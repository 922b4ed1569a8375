"""How a role's answer becomes an event. A role that failed has consequences too: the job goes on without it, and says so."""

from __future__ import annotations

from typing import assert_never

from shared.wire.errors import HandoffError
from shared.wire.events import AnswerMethod, Event, NeedsResolved, PlanMade, Resolution, Reviewed, StepOutline, Synthesised
from shared.wire.handoff import AgentHandoff, BlobRef, HandoffResult, ResultStatus
from shared.wire.ids import StepId
from shared.wire.message import digest_of
from shared.wire.plan import Plan
from supervisor.lifecycle.answering import usable_sinks
from supervisor.lifecycle.state import JobState
from supervisor.roles.assessment import verdict_of
from supervisor.roles.needs import resolutions_of, steps_asked_in
from supervisor.roles.planner import degraded_plan, plan_of, specialists_offered_in

TITLE_CHARS = 80


def outcome_of(handoff: AgentHandoff, state: JobState, result: HandoffResult, request: str) -> tuple[tuple[Event, ...], tuple[str, ...]]:
    """The events that follow from the result of a role's handoff, and the payloads that they refer to."""
    schema = handoff.expected_output_format
    match handoff.assigned_to:
        case "planner" if state.plan is None:
            plan, degraded = _plan(result, request, specialists_offered_in(schema))
            event, text = plan_made(plan, degraded)
            return (event,), (text,)
        case "planner":
            return (_resolved(steps_asked_in(schema), result),), ()
        case "assessor":
            return (_reviewed(state, result),), ()
        case "synthesizer":
            return (_synthesised(state, result),), ()
        case role:
            raise HandoffError(f"{role} is not a role that has consequences")


def plan_made(plan: Plan, degraded: str | None) -> tuple[PlanMade, str]:
    """The event of a plan, and the plan's payload."""
    text = plan.to_json()
    outlines = tuple(
        StepOutline(id=step.id, specialist=step.specialist, depends_on=step.depends_on, title=title_of(step.task)) for step in plan.steps
    )
    ref = BlobRef(digest=digest_of(text), size=len(text))
    return PlanMade(plan=ref, steps=outlines, synthesis=plan.synthesis, degraded=degraded), text


def title_of(text: str) -> str:
    """The first words, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"


def _plan(result: HandoffResult, request: str, specialists: tuple[str, ...]) -> tuple[Plan, str | None]:
    try:
        if result.status is ResultStatus.OK:
            return plan_of(result.output), None
        why = result.error or result.stop_reason.value
    except HandoffError as error:
        why = str(error)
    return degraded_plan(request, specialists), " ".join(why.split())[:300]


def _resolved(asked: tuple[str, ...], result: HandoffResult) -> NeedsResolved:
    try:
        answers = {item.step: item.answer for item in resolutions_of(result.output)} if result.status is ResultStatus.OK else {}
    except HandoffError:
        answers = {}
    return NeedsResolved(resolutions=tuple(Resolution(step=StepId(step), answer=answers.get(StepId(step))) for step in asked))


def _reviewed(state: JobState, result: HandoffResult) -> Reviewed:
    number = len(state.rounds) + 1
    try:
        if result.status is ResultStatus.OK:
            return Reviewed(round=number, verdict=verdict_of(result.output))
        problem = result.error or result.stop_reason.value
    except HandoffError as error:
        problem = str(error)
    return Reviewed(round=number, verdict=None, problem=" ".join(problem.split())[:300])


def _synthesised(state: JobState, result: HandoffResult) -> Synthesised:
    match result.status:
        case ResultStatus.OK | ResultStatus.PARTIAL if result.output not in (None, ""):
            text = result.to_json()
            partial = (
                None if result.status is ResultStatus.OK else f"the synthesis is not whole: {result.error or result.stop_reason.value}"
            )
            ref = BlobRef(digest=digest_of(text), size=len(text))
            return Synthesised(method=AnswerMethod.SYNTHESIZED, result=ref, problem=partial)
        case ResultStatus.OK | ResultStatus.PARTIAL | ResultStatus.FAILED | ResultStatus.NEEDS_INPUT:
            why = result.error or result.needs or result.stop_reason.value
            method = AnswerMethod.MERGED if usable_sinks(state) else AnswerMethod.NONE
            return Synthesised(method=method, problem=f"the synthesizer failed ({' '.join(why.split())[:300]})")
        case _:
            assert_never(result.status)
