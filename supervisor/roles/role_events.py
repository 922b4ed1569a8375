"""Conversion of a role's answer to an event. A failed role has an event, too: the job
continues without its answer and reports that.

The event refers to the role's result, which holds the text of the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, assert_never

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
    Synthesized,
)
from handoff_queue.shared.types.handoff import (
    BUDGETS,
    AgentHandoff,
    BlobRef,
    HandoffResult,
    ResultStatus,
    find_answers,
    list_own_dependencies,
    make_ref,
)
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import OnLimit
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.names import Role
from handoff_queue.shared.types.origins import DOCUMENT, Origin, union
from handoff_queue.shared.types.plan import Plan, Resolution, Resolutions
from handoff_queue.shared.types.plan_validation import find_steps_after_review
from handoff_queue.shared.types.review import Rulings, Settlements, Side, Verdict
from handoff_queue.shared.types.step import HIDDEN_TITLE, Step
from handoff_queue.supervisor.lifecycle.answer import find_usable_sinks
from handoff_queue.supervisor.lifecycle.origins import find_task_origins
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.side_effects import with_effects_after_review
from handoff_queue.supervisor.lifecycle.state import JobState, StepState
from handoff_queue.supervisor.roles.input_requests import find_schema_steps
from handoff_queue.supervisor.roles.judge import find_schema_points
from handoff_queue.supervisor.roles.planner import (
    build_fallback_plan,
    find_plan_specialists,
    with_request,
)
from handoff_queue.supervisor.roles.router import Route
from handoff_queue.supervisor.text.markdown import cut_title
from handoff_queue.supervisor.text.orders_to_assessor import TELLS_ASSESSOR
from handoff_queue.supervisor.text.task_similarity import asks_the_same

if TYPE_CHECKING:
    from handoff_queue.shared.types.review import Revision


MessageType = TypeVar("MessageType", bound=Message)


def build_outcome(  # noqa: PLR0911 (one case a role)
    handoff: AgentHandoff,
    state: JobState,
    result: HandoffResult,
    request: str,
    texts: ResultTexts,
    acting: Collection[str] = (),
) -> tuple[tuple[Event, ...], tuple[str, ...]]:
    """Return the events that follow from a role's result, and the payloads that they refer to.

    Without events, the result has no effect yet. The user is asked about a spent budget first, or
    the next decision applies the patch of a replanner.

    Args:
        request: text of the job's request.
        texts: payloads of `list_earlier_results` and, for a planner, of the job's plan.
        acting: the specialists that have tools with effects.

    Raises:
        HandoffError: the handoff is not a role's.
    """
    if result.stop_reason in BUDGETS and state.submitted.limits.on_limit is OnLimit.ASK:
        return (), ()  # the role runs again when the user has decided
    schema = handoff.expected_output_format
    result_ref = make_ref(result.to_json())
    match handoff.assigned_to:
        case Role.ROUTER:
            return (_make_routed_event(result, result_ref),), ()
        case Role.PLANNER if state.plan is None:
            known_specialists = find_plan_specialists(schema)
            event, text = _make_plan_or_fallback_event(
                state, result, result_ref, request, known_specialists, acting
            )
            return (hide_titles(state, event),), (text,)
        case Role.PLANNER:
            resolved, new_plan = _make_needs_resolved_event(
                state, find_schema_steps(schema), result, result_ref, texts
            )
            return (hide_titles(state, resolved),), new_plan
        case Role.JUDGE if find_schema_points(schema):
            return (_make_arbitrated_event(result, result_ref),), ()
        case Role.JUDGE:
            return (_make_judged_event(result, result_ref),), ()
        case Role.REPLANNER:
            return (), ()  # the next decision applies the patch to the plan of that time
        case Role.ASSESSOR:
            return (_make_reviewed_event(state, result, result_ref, texts),), ()
        case Role.SYNTHESIZER:
            return (_make_synthesized_event(state, result, result_ref),), ()
        case role:
            raise HandoffError(f"{role} is not a role that has consequences")


def _make_plan_or_fallback_event(
    state: JobState,
    result: HandoffResult,
    result_ref: BlobRef,
    request: str,
    known_specialists: tuple[str, ...],
    acting: Collection[str],
) -> tuple[PlanMade, str]:
    """Return the event of the planner's plan, and the payload of the plan. After a failed
    planner, one step gets the whole request.

    Args:
        result_ref: reference to `result`.
        known_specialists: the specialists in the schema of the handoff.
    """
    plan = _parse_answer(result, Plan)
    if plan is None:
        fallback = build_fallback_plan(
            request, known_specialists, find_answers(state.submitted.given)
        )
        fallback = with_effects_after_review(fallback, acting)
        return make_plan_event(
            fallback, result_ref, is_reviewed=_has_review(state, fallback), acting=acting
        )
    plan = with_effects_after_review(with_request(plan, request), acting)
    event, text = make_plan_event(
        plan, is_reviewed=_has_review(state, plan), acting=acting, origins=find_task_origins(result)
    )
    if result.notes:
        event = event.model_copy(update={"noted": result_ref})
    return event, text


def _has_review(state: JobState, plan: Plan) -> bool:
    """Return whether a planned job is reviewed: always if a step waits for the review."""
    return state.submitted.is_reviewed or bool(find_steps_after_review(plan.steps))


def _make_judged_event(result: HandoffResult, ref: BlobRef) -> Judged:
    """Return the event of the judge's decisions about conflicts, or of its failure."""
    answer = _parse_answer(result, Settlements)
    if answer is None:
        return Judged(result=ref, problem="the judge failed")
    settled = [settlement.conflict for settlement in answer.settlements if settlement.stands]
    return Judged(result=ref, settled=tuple(settled))


def _make_arbitrated_event(result: HandoffResult, ref: BlobRef) -> Arbitrated:
    """Return the event of the judge's rulings between writers and the assessor, or of its
    failure.
    """
    answer = _parse_answer(result, Rulings)
    if answer is None:
        return Arbitrated(result=ref, problem="the judge failed")
    writer = [ruling.step for ruling in answer.rulings if ruling.right is Side.WRITER]
    assessor = [ruling.step for ruling in answer.rulings if ruling.right is Side.ASSESSOR]
    return Arbitrated(result=ref, writer=tuple(writer), assessor=tuple(assessor))


def _make_routed_event(result: HandoffResult, ref: BlobRef) -> Routed:
    """Return the event of the router's decision. After a failed router, a team gets the job."""
    route = _parse_answer(result, Route)
    if route is None:
        return Routed(mode=Mode.TEAM, result=ref, problem="the router failed")
    if route.team:
        return Routed(mode=Mode.TEAM, result=ref)
    return Routed(mode=Mode.SINGLE, specialist=route.specialist, result=ref)


def make_plan_event(
    plan: Plan,
    degraded: BlobRef | None = None,
    *,
    is_reviewed: bool = True,
    acting: Collection[str] = (),
    origins: tuple[Origin, ...] | None = None,
) -> tuple[PlanMade, str]:
    """Return the event of a plan, and the payload of the plan.

    Args:
        degraded: result of the failed planner, if this is the fallback plan.
        is_reviewed: True if the assessor reviews the results.
        acting: the specialists that have tools with effects.
        origins: see `StepOutline.origins`.
    """
    text = plan.to_json()
    event = PlanMade(
        plan=make_ref(text),
        steps=tuple(build_outline(step, plan.given, acting, origins) for step in plan.steps),
        synthesis=plan.synthesis,
        join=plan.join,
        is_reviewed=is_reviewed,
        degraded=degraded,
    )
    return event, text


def hide_titles(state: JobState, event: MessageType) -> MessageType:
    """Return an event without the titles of steps, if the title of the job is hidden. The payload
    of the plan, which is encrypted, has them.
    """
    if state.submitted.title != HIDDEN_TITLE:
        return event
    changes: dict[str, tuple[StepOutline, ...]] = {}
    for name in ("steps", "added", "changed"):
        outlines = getattr(event, name, ())
        if outlines and isinstance(outlines[0], StepOutline):
            hidden = {"title": HIDDEN_TITLE, "is_titled": False}
            changes[name] = tuple(outline.model_copy(update=hidden) for outline in outlines)
    return event.model_copy(update=changes)


def build_outline(
    step: Step,
    given_ids: Collection[StepId],
    acting: Collection[str] = (),
    origins: tuple[Origin, ...] | None = None,
) -> StepOutline:
    """Return the outline of a step, which lacks the text of its task.

    Args:
        given_ids: inputs that the job has from the beginning.
        acting: the specialists that have tools with effects.
        origins: see `StepOutline.origins`. The item of a repeated step comes from a file, so it
            counts as a document.
    """
    if step.row is not None:
        origins = union(origins or (), (DOCUMENT,))
    return StepOutline(
        id=step.id,
        specialist=step.specialist,
        depends_on=list_own_dependencies(step.depends_on, given_ids),
        given=tuple(dependency for dependency in step.depends_on if dependency in given_ids),
        title=step.title or cut_title(step.task),
        is_titled=step.title is not None,
        on_failure=step.on_failure,
        join=step.join,
        after=step.after,
        approve=step.approve,
        acts=step.specialist in acting or None,
        when=step.when is not None or None,
        origins=origins,
    )


def _parse_answer(result: HandoffResult, kind: type[MessageType]) -> MessageType | None:
    """Return the answer of a role, or None if the role failed."""
    if result.status is not ResultStatus.OK:
        return None
    try:
        return kind.from_value(result.output)
    except HandoffError:
        return None


def _make_needs_resolved_event(
    state: JobState,
    needy_steps: tuple[str, ...],
    result: HandoffResult,
    ref: BlobRef,
    texts: ResultTexts,
) -> tuple[NeedsResolved, tuple[str, ...]]:
    """Return the event of the planner's resolutions, and the payload of the plan if it has new
    helper steps. A step that asks the same question again is given up.

    Args:
        needy_steps: steps in need.
        texts: payloads of the results of `_list_results_with_questions`, and of the job's plan.
    """
    resolutions: dict[StepId, Resolution] = {}
    answer = _parse_answer(result, Resolutions)
    if answer is not None:
        resolutions = {resolution.step: resolution for resolution in answer.resolutions}
    repeats: list[StepId] = []
    answered_steps: list[StepId] = []
    given_up: list[StepId] = []
    by: dict[StepId, Step] = {}
    for step_id in map(StepId, needy_steps):
        resolution = resolutions.get(step_id, Resolution(step=step_id))
        is_repeat = _needs_again(state, step_id, texts)
        if is_repeat:
            repeats.append(step_id)
        if resolution.by and not is_repeat:
            by[step_id] = resolution.by
        elif resolution.answer and not is_repeat:
            answered_steps.append(step_id)
        else:
            given_up.append(step_id)
    event = NeedsResolved(
        result=ref, answered=tuple(answered_steps), given_up=tuple(given_up), repeats=tuple(repeats)
    )
    if by and state.plan:
        plan = texts.plan(state.plan.plan)
        return with_helpers(state, event, plan, by, find_task_origins(result))
    return event, ()


def with_helpers(
    state: JobState,
    event: NeedsResolved,
    plan: Plan,
    by: Mapping[StepId, Step],
    origins: tuple[Origin, ...] | None = None,
) -> tuple[NeedsResolved, tuple[str, ...]]:
    """Return the event with the helper steps in the plan, and the payload of the new plan.

    Args:
        by: helper steps by the step in need. Several steps may have the same helper.
        origins: see `StepOutline.origins`.
    """
    helpers = {helper.id: helper for helper in by.values()}
    steps: list[Step] = []
    for step in plan.steps:
        if step.id in by:
            depends_on = (*step.depends_on, by[step.id].id)
            steps.append(step.model_copy(update={"depends_on": depends_on}))
        else:
            steps.append(step)
    steps += helpers.values()
    new_plan = Plan(
        steps=tuple(steps), synthesis=plan.synthesis, join=plan.join, given=plan.given, why=plan.why
    )
    payload = new_plan.to_json()
    added_steps = [
        build_outline(helper, given_ids=(), origins=origins) for helper in helpers.values()
    ]
    changed_steps: list[StepOutline] = []
    for step_id, helper in by.items():
        changed_steps.append(_with_helper(state.steps[step_id].outline, helper.id))
    added_to = None
    if state.plan:
        added_to = state.plan.plan
    update = {
        "added_to": added_to,
        "plan": make_ref(payload),
        "added": tuple(added_steps),
        "changed": tuple(changed_steps),
    }
    return event.model_copy(update=update), (payload,)


def _with_helper(outline: StepOutline, helper: StepId) -> StepOutline:
    """Return the outline of a step that also depends on a helper step."""
    update = {
        "depends_on": (*outline.depends_on, helper),
        "helpers": (*outline.helpers, helper),
    }
    return outline.model_copy(update=update)


def _needs_again(state: JobState, step_id: StepId, texts: ResultTexts) -> bool:
    """Return whether the question of a step was answered before: another answer would not help."""
    questions: list[str] = []
    for result_ref in _list_results_with_questions(state, step_id):
        questions.append(texts.get_result(result_ref).needs or "")
    return any(asks_the_same(question, questions[0]) for question in questions[1:])


def _list_results_with_questions(state: JobState, step_id: StepId) -> list[BlobRef]:
    """Return the result with the question of a step, and then the earlier results with answered
    questions. The planner or a usable helper step has answered them.
    """
    step = state.steps[step_id]
    refs: list[BlobRef] = []
    if step.result:
        refs.append(step.result)
    for remark in step.remarks:
        if remark.author != "planner" or remark.previous is None:
            continue
        if remark.helper is None or _has_helped(state, step, remark.helper):
            refs.append(remark.previous)
    return refs


def _has_helped(state: JobState, step: StepState, helper: StepId) -> bool:
    """Return whether a helper of the step has a usable result."""
    return (
        helper in step.outline.helpers and helper in state.steps and state.steps[helper].is_usable
    )


def list_earlier_results(handoff: AgentHandoff, state: JobState) -> tuple[BlobRef, ...]:
    """Return the results that the answer of a role is compared with, to find repeated faults
    and questions.
    """
    match handoff.assigned_to:
        case Role.ASSESSOR:
            return list_rounds_sent_back(state)
        case Role.PLANNER if state.plan is not None:
            asking = find_schema_steps(handoff.expected_output_format)
            results: list[BlobRef] = []
            for step_id in asking:
                results += _list_results_with_questions(state, StepId(step_id))
            return tuple(results)
        case _:
            return ()


def list_rounds_sent_back(state: JobState) -> tuple[BlobRef, ...]:
    """Return the results of the reviews that sent work back since the submission or the latest
    retry.
    """
    rounds: list[BlobRef] = []
    for review in state.rounds_now:
        if review.result and review.steps:
            rounds.append(review.result)
    return tuple(rounds)


def _find_repeated_steps(
    state: JobState, verdict: Verdict, texts: ResultTexts
) -> tuple[StepId, ...]:
    """Return the steps that the verdict sends back for a fault that an earlier review named. Code
    sends a step back if its result tells the assessor what to decide. Such a result could persuade
    the judge, too, so the judge is not asked.
    """
    before: list[Revision] = []
    for result in list_rounds_sent_back(state):
        before += Verdict.from_value(texts.get_result(result).output).revisions
    repeats: list[StepId] = []
    for new in verdict.revisions:
        if TELLS_ASSESSOR in new.problem:
            continue
        earlier_problems = [old.problem for old in before if old.step == new.step]
        if any(asks_the_same(problem, new.problem) for problem in earlier_problems):
            repeats.append(new.step)
    return tuple(repeats)


def _make_reviewed_event(
    state: JobState, result: HandoffResult, ref: BlobRef, texts: ResultTexts
) -> Reviewed:
    """Return the event of the assessor's verdict. Without a decision: the assessor failed."""
    number = len(state.rounds) + 1
    with suppress(HandoffError):
        if result.status is ResultStatus.OK:
            verdict = Verdict.from_value(result.output)
            return Reviewed(
                round=number,
                decision=verdict.verdict,
                result=ref,
                steps=tuple(revision.step for revision in verdict.revisions),
                repeats=_find_repeated_steps(state, verdict, texts),
                open_points=len(verdict.open_points),
            )
    return Reviewed(round=number, decision=None, result=ref, problem="the assessor failed")


def _make_synthesized_event(state: JobState, result: HandoffResult, ref: BlobRef) -> Synthesized:
    """Return the event of the synthesizer's answer. After a failed synthesizer, code merges
    the usable results.
    """
    match result.status:
        case ResultStatus.OK | ResultStatus.PARTIAL if result.output not in (None, ""):
            partial = None
            if result.status is not ResultStatus.OK:
                partial = "the synthesis is not whole"
            return Synthesized(method=AnswerMethod.SYNTHESIZED, result=ref, problem=partial)
        case (
            ResultStatus.OK
            | ResultStatus.PARTIAL
            | ResultStatus.FAILED
            | ResultStatus.NEEDS_INPUT
            | ResultStatus.SKIPPED
        ):
            method = AnswerMethod.MERGED if find_usable_sinks(state) else AnswerMethod.NONE
            return Synthesized(method=method, result=ref, problem="the synthesizer failed")
        case _:
            assert_never(result.status)
