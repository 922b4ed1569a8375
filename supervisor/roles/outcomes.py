"""Conversion of a role's answer to an event. A failed role has an event, too: the job continues
without its answer and reports that.

The role's text stays in its result, and the event refers to the result.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, assert_never

from handoff_queue.shared.types.errors import HandoffError
from handoff_queue.shared.types.events import (
    AnswerMethod,
    Arbitrated,
    Event,
    Judged,
    NeedsResolved,
    PlanMade,
    Reviewed,
    Routed,
    StepOutline,
    Synthesised,
)
from handoff_queue.shared.types.handoff import (
    BUDGETS,
    AgentHandoff,
    BlobRef,
    HandoffResult,
    ResultStatus,
    answers_in,
    own,
    ref,
)
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import OnLimit
from handoff_queue.shared.types.plan import Plan, Resolution, Resolutions, Step
from handoff_queue.shared.types.review import Rulings, Settlements, Side, Verdict
from handoff_queue.supervisor.lifecycle.answer import usable_sinks
from handoff_queue.supervisor.lifecycle.effects import with_effects_after_review
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.roles.disputed_review import points_of_schema
from handoff_queue.supervisor.roles.input_requests import steps_of_schema
from handoff_queue.supervisor.roles.planner import fallback_plan, specialists_of_plan_schema
from handoff_queue.supervisor.roles.router import Route
from handoff_queue.supervisor.text.markdown import title_of
from handoff_queue.supervisor.text.task_similarity import asks_the_same

if TYPE_CHECKING:
    from handoff_queue.shared.types.review import Revision
    from handoff_queue.supervisor.lifecycle.attempt_feedback import AttemptFeedback


def outcome_of(  # noqa: PLR0911 (one case a role)
    handoff: AgentHandoff,
    state: JobState,
    result: HandoffResult,
    request: str,
    words: ResultTexts,
    acting: Collection[str] = (),
) -> tuple[tuple[Event, ...], tuple[str, ...]]:
    """Return the events that follow from a role's result, and the payloads that they refer to.

    `words`: of `earlier_results`. `acting`: the specialists that have tools with effects.
    """
    if result.stop_reason in BUDGETS and state.submitted.limits.on_limit is OnLimit.ASK:
        return (), ()  # the role is asked again when the job may go on
    schema, written = handoff.expected_output_format, ref(result.to_json())
    match handoff.assigned_to:
        case "router":
            return (_routed(result, written),), ()
        case "planner" if state.plan is None:
            plan = _plan(result)
            made = plan or fallback_plan(
                request, specialists_of_plan_schema(schema), answers_in(state.submitted.given)
            )
            made = with_effects_after_review(made, acting)
            event, text = make_plan_event(made, None if plan else written, acting=acting)
            return (
                event.model_copy(update={"noted": written if plan and result.notes else None}),
            ), (text,)
        case "planner":
            resolved, new_plan = _resolved(state, steps_of_schema(schema), result, written, words)
            return (resolved,), new_plan
        case "judge" if points_of_schema(schema):
            return (_arbitrated(result, written),), ()
        case "judge":
            return (_judged(result, written),), ()
        case "replanner":
            return (), ()  # the next decision applies it to the plan of that time
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
            return Judged(
                result=ref,
                settled=tuple(
                    settlement.conflict for settlement in settlements if settlement.stands
                ),
            )
    return Judged(result=ref, problem="the judge failed")


def _arbitrated(result: HandoffResult, ref: BlobRef) -> Arbitrated:
    with suppress(HandoffError):
        if result.status is ResultStatus.OK:
            rulings = Rulings.of(result.output).rulings
            writer, reviewer = (
                tuple(ruling.step for ruling in rulings if ruling.right is side)
                for side in (Side.WRITER, Side.REVIEWER)
            )
            return Arbitrated(result=ref, writer=writer, reviewer=reviewer)
    return Arbitrated(result=ref, problem="the judge failed")


def _routed(result: HandoffResult, ref: BlobRef) -> Routed:
    with suppress(HandoffError):
        if result.status is ResultStatus.OK:
            route = Route.of(result.output)
            if route.team:
                mode, who = (Mode.TEAM, None)
            else:
                mode, who = (Mode.SINGLE, route.specialist)
            return Routed(mode=mode, specialist=who, result=ref)
    return Routed(mode=Mode.TEAM, result=ref, problem="the router failed")


def make_plan_event(
    plan: Plan,
    degraded: BlobRef | None = None,
    *,
    is_reviewed: bool = True,
    acting: Collection[str] = (),
) -> tuple[PlanMade, str]:
    """Return the event of a plan, and the plan's payload.

    `degraded`: the planner's result, if the plan is not from the planner. `acting`: the specialists
    that have tools with effects.
    """
    text = plan.to_json()
    outlines, join = tuple(outline_of(step, plan.given, acting) for step in plan.steps), plan.join
    made = PlanMade(
        plan=ref(text),
        steps=outlines,
        synthesis=plan.synthesis,
        join=join,
        is_reviewed=is_reviewed,
        degraded=degraded,
    )
    return made, text


def outline_of(step: Step, given: Collection[StepId], acting: Collection[str] = ()) -> StepOutline:
    """Return the step without its text.

    `given`: the results that are there from the beginning. `acting`: the specialists that have
    tools with effects.
    """
    return StepOutline(
        id=step.id,
        specialist=step.specialist,
        depends_on=own(step.depends_on, given),
        given=tuple(dependency for dependency in step.depends_on if dependency in given),
        title=step.title or title_of(step.task),
        is_titled=step.title is not None,
        on_failure=step.on_failure,
        join=step.join,
        after=step.after,
        approve=step.approve,
        acts=step.specialist in acting or None,
        when=step.when is not None or None,
    )


def _plan(result: HandoffResult) -> Plan | None:
    with suppress(HandoffError):
        if result.status is ResultStatus.OK:
            return Plan.of(result.output)
        return None
    return None


def _resolved(
    state: JobState, asked: tuple[str, ...], result: HandoffResult, ref: BlobRef, words: ResultTexts
) -> tuple[NeedsResolved, tuple[str, ...]]:
    """Return the event, and the plan's payload if there is a new plan."""
    resolutions, steps = dict[StepId, Resolution](), [StepId(step) for step in asked]
    with suppress(HandoffError):
        if result.status is ResultStatus.OK:
            resolutions = {}
            for resolution in Resolutions.of(result.output).resolutions:
                resolutions[resolution.step] = resolution
    again = tuple(step for step in steps if _needs_again(state, step, words))
    left = [resolutions[step] for step in steps if step in resolutions and step not in again]
    by = {item.step: item.by for item in left if item.by}
    answered = tuple(item.step for item in left if item.answer and item.step not in by)
    given_up = tuple(step for step in steps if step not in answered and step not in by)
    event = NeedsResolved(result=ref, answered=answered, given_up=given_up, repeats=again)
    if by and state.plan:
        return with_helpers(state, event, words.plan(state.plan.plan), by)
    return (event, ())


def with_helpers(
    state: JobState, event: NeedsResolved, plan: Plan, by: Mapping[StepId, Step]
) -> tuple[NeedsResolved, tuple[str, ...]]:
    """Return the event with the added steps, and its new payload.

    Args:
        by: steps in need, and their helper steps.
    """
    helpers = {step.id: step for step in by.values()}
    waiting = [
        one.model_copy(update={"depends_on": (*one.depends_on, by[one.id].id)})
        if one.id in by
        else one
        for one in plan.steps
    ]
    steps = (*waiting, *helpers.values())
    text = Plan(
        steps=steps, synthesis=plan.synthesis, join=plan.join, given=plan.given, why=plan.why
    ).to_json()
    changed = [(state.steps[step_id].outline, helper.id) for step_id, helper in by.items()]
    more = {
        "added_to": state.plan.plan if state.plan else None,
        "plan": ref(text),
        "added": tuple(outline_of(step, ()) for step in helpers.values()),
        "changed": tuple(
            one.model_copy(
                update={"depends_on": (*one.depends_on, helper), "helpers": (*one.helpers, helper)}
            )
            for one, helper in changed
        ),
    }
    return event.model_copy(update=more), (text,)


def _needs_again(state: JobState, step_id: StepId, words: ResultTexts) -> bool:
    """Return whether its question was answered before. Another answer would not help it."""
    now, *before = [words.result(ref).needs or "" for ref in _needs_of(state, step_id)] or [""]
    return any(asks_the_same(need, now) for need in before)


def _needs_of(state: JobState, step_id: StepId) -> list[BlobRef]:
    """Return the result with the step's question, and earlier results whose questions were
    answered.
    """
    step = state.steps[step_id]
    helped = {one for one in step.outline.helpers if one in state.steps and state.steps[one].usable}
    before: list[AttemptFeedback] = []
    for remark in step.remarks:
        if remark.author == "planner" and (remark.helper is None or remark.helper in helped):
            before.append(remark)
    return [ref for ref in (step.result, *(one.previous for one in before)) if ref]


def earlier_results(handoff: AgentHandoff, state: JobState) -> tuple[BlobRef, ...]:
    """Return the earlier results that this role's answer is compared with, to find repeats."""
    match handoff.assigned_to:
        case "assessor":
            return rounds_sent_back(state)
        case "planner" if state.plan is not None:
            asking = steps_of_schema(handoff.expected_output_format)
            results: list[BlobRef] = []
            for step_id in asking:
                results += _needs_of(state, StepId(step_id))
            return tuple(results)
        case _:
            return ()


def rounds_sent_back(state: JobState) -> tuple[BlobRef, ...]:
    """Return the results of the reviews that sent work back since the submission or the latest
    retry.
    """
    rounds: list[BlobRef] = []
    for review in state.rounds_now:
        if review.result and review.steps:
            rounds.append(review.result)
    return tuple(rounds)


def _repeats(state: JobState, verdict: Verdict, words: ResultTexts) -> tuple[StepId, ...]:
    before: list[Revision] = []
    for result in rounds_sent_back(state):
        before += Verdict.of(words.result(result).output).revisions
    repeats: list[StepId] = []
    for new in verdict.revisions:
        if any(old.step == new.step and asks_the_same(old.problem, new.problem) for old in before):
            repeats.append(new.step)
    return tuple(repeats)


def _reviewed(state: JobState, result: HandoffResult, ref: BlobRef, words: ResultTexts) -> Reviewed:
    number = len(state.rounds) + 1
    with suppress(HandoffError):
        if result.status is ResultStatus.OK:
            verdict = Verdict.of(result.output)
            named = tuple(revision.step for revision in verdict.revisions)
            again, points = _repeats(state, verdict, words), len(verdict.open_points)
            return Reviewed(
                round=number,
                decision=verdict.verdict,
                result=ref,
                steps=named,
                repeats=again,
                open_points=points,
            )
    return Reviewed(round=number, decision=None, result=ref, problem="the assessor failed")


def _synthesised(state: JobState, result: HandoffResult, ref: BlobRef) -> Synthesised:
    match result.status:
        case ResultStatus.OK | ResultStatus.PARTIAL if result.output not in (None, ""):
            partial = None
            if result.status is not ResultStatus.OK:
                partial = "the synthesis is not whole"
            return Synthesised(method=AnswerMethod.SYNTHESIZED, result=ref, problem=partial)
        case (
            ResultStatus.OK
            | ResultStatus.PARTIAL
            | ResultStatus.FAILED
            | ResultStatus.NEEDS_INPUT
            | ResultStatus.SKIPPED
        ):
            if usable_sinks(state):
                method = AnswerMethod.MERGED
            else:
                method = AnswerMethod.NONE
            return Synthesised(method=method, result=ref, problem="the synthesizer failed")
        case _:
            assert_never(result.status)
