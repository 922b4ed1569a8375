"""decide(state, observations, now) -> commands: the next commands of a job. All decisions about
a job start here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from handoff_queue.shared.types.events import AnswerMethod, JobStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.shared.types.limits import OnLimit
from handoff_queue.shared.types.names import Role
from handoff_queue.supervisor.lifecycle.answer import choose_method
from handoff_queue.supervisor.lifecycle.approval_policy import (
    ask_first,
    build_commands_after_rejection,
    decide_about_calls,
    decide_while_asked,
    release_question,
)
from handoff_queue.supervisor.lifecycle.child_jobs import separate_child_steps
from handoff_queue.supervisor.lifecycle.commands import (
    AbandonSteps,
    AskApproval,
    AskUser,
    CheckConditions,
    ChooseAnswer,
    Command,
    EndJob,
    IssueGroup,
    MakeQuote,
    PatchPlan,
    SkipReview,
    SkipSteps,
    TryAgain,
)
from handoff_queue.supervisor.lifecycle.conflict_resolution import settle_conflicts
from handoff_queue.supervisor.lifecycle.fact_gate import check_facts
from handoff_queue.supervisor.lifecycle.gates import has_revision_left
from handoff_queue.supervisor.lifecycle.handoffs import find_reassignments
from handoff_queue.supervisor.lifecycle.job_budget import explain_spent_budget
from handoff_queue.supervisor.lifecycle.job_end import (
    NOTHING_USABLE,
    build_commands_after_end,
    check_or_end,
    end_now,
    explain_cancel,
)
from handoff_queue.supervisor.lifecycle.job_retry import answer_stands, in_doubt
from handoff_queue.supervisor.lifecycle.joins import (
    FanIn,
    JoinState,
    abandon_late_steps,
    evaluate_join,
    get_fan_in,
    is_met,
)
from handoff_queue.supervisor.lifecycle.observations import Observations
from handoff_queue.supervisor.lifecycle.replanning import should_replan
from handoff_queue.supervisor.lifecycle.review_arbitration import arbitrate
from handoff_queue.supervisor.lifecycle.routing import ask_role, choose_route, plan
from handoff_queue.supervisor.lifecycle.side_effects import (
    ask_to_begin,
    find_blocked_steps,
    find_unapproved_steps,
    has_open_condition,
    is_ready_for_review,
    select_startable_steps,
)
from handoff_queue.supervisor.lifecycle.state import JobState, Phase, StepStatus
from handoff_queue.supervisor.lifecycle.step_failure import (
    QUEUE_IS_REFUSED,
    abandon_refused_steps,
    build_recoveries,
    describe_failure,
    find_step_retries,
    find_steps_to_ask_about,
)

MAX_NEEDS_ANSWERED = 2
"""Times that the planner answers the questions of one step before the step is abandoned."""
MAX_FRUITLESS = 3
"""Results of roles in a row without an effect after which the job fails. The next result would
cost money and have no effect either.
"""
MAX_HANDOFFS_A_DECISION = 500
"""Most handoffs of one decision. To publish 1,000 takes a second, and other jobs wait during
that time. The next decision issues the rest.
"""

MAX_CONDITIONS = 5_000
"""Most conditions that one decision checks: 100,000 rows take 20 decisions, within
`supervisor.engine.decision_maker.MAX_DECISIONS`.
"""
LOST_DECISIONS = (
    "its decisions are signed with a key that is not valid any more, and its steps may have acted:"
    " look at their effects, then submit it again"
)
ALL_SKIPPED = "the steps that it depends on were skipped"


def decide(state: JobState, observations: Observations, now: float) -> tuple[Command, ...]:
    """Return the next commands. If there are none, the caller waits for the next event or for
    `compute_next_due`.
    """
    if state.ended:
        return build_commands_after_end(state, now)
    if state.cancelled_by:
        return (EndJob(JobStatus.CANCELLED, explain_cancel(state)),)
    if state.has_lost_decisions:
        return (EndJob(JobStatus.FAILED, LOST_DECISIONS),)
    if state.fruitless >= MAX_FRUITLESS:
        why = (
            f"an internal error: {state.fruitless} results of the supervisor's roles had no effect"
        )
        return (EndJob(JobStatus.FAILED, why),)
    return _decide_open_job(state, observations, now)


def _decide_open_job(
    state: JobState, observations: Observations, now: float
) -> tuple[Command, ...]:
    """Return the commands for a job that has neither ended nor was cancelled."""
    recovered = build_recoveries(state, observations, now)
    about_calls = decide_about_calls(state, now)
    if about_calls:
        return (*recovered, *about_calls)
    if state.question is None:
        last_commands = _end_if_over(state, now)
        if last_commands:
            return last_commands
        return (*recovered, *_decide_next_work(state, observations, now))
    about_question = decide_while_asked(state, state.question, now)
    if about_question or not state.asks_about_steps:
        return (*recovered, *about_question)
    return (*recovered, *_decide_while_asking_about_steps(state, observations, now))


def _decide_while_asking_about_steps(
    state: JobState, observations: Observations, now: float
) -> tuple[Command, ...]:
    """Return the commands that are allowed while a person is asked about steps: all commands
    except other questions.

    The job's time stands still while it only waits for the answer.
    """
    clock = now
    if state.is_only_asking:
        clock = min(now, state.as_of)
    commands = _end_if_over(state, clock) or _decide_next_work(state, observations, clock)
    allowed_commands: list[Command] = []
    for command in commands:
        if not isinstance(command, AskApproval | AskUser):
            allowed_commands.append(command)
    return tuple(allowed_commands)


def _end_if_over(state: JobState, now: float) -> tuple[Command, ...]:
    """Return the commands that end a job after a rejection, after its time, or after its budget
    is spent; empty if it goes on.
    """
    limits = state.submitted.limits
    if state.rejected:
        return build_commands_after_rejection(state, state.rejected)
    if now >= state.deadline:
        return release_question(state, end_now(state, f"the job's {limits.max_seconds} s are over"))
    if state.spent and limits.on_limit is OnLimit.STOP:
        return release_question(state, end_now(state, explain_spent_budget(state)))
    return ()


def _decide_next_work(
    state: JobState, observations: Observations, now: float
) -> tuple[Command, ...]:
    """Return the commands that the job's phase needs next, or the question that a person must
    answer first. Empty while the job waits for a higher budget.
    """
    if state.spent is None or state.submitted.limits.on_limit is not OnLimit.ASK:
        return ask_first(state, _decide_in_phase(state, observations, now))
    if state.asked_at is None:
        return (AskUser(explain_spent_budget(state)),)
    return ()


def _decide_in_phase(  # noqa: PLR0911 (one case a phase)
    state: JobState, observations: Observations, now: float
) -> tuple[Command, ...]:
    """Return the commands that the phase of the job needs next."""
    match state.phase:
        case Phase.ROUTING | Phase.PLANNING if _may_use_refused_queues_only(state, observations):
            names = ", ".join(state.submitted.specialists)
            return (EndJob(JobStatus.FAILED, QUEUE_IS_REFUSED.format(names)),)
        case Phase.ROUTING:
            return choose_route(state, observations)
        case Phase.PLANNING:
            return plan(state, observations)
        case Phase.WORKING if state.patches.proposal is not None:
            return (PatchPlan(state.patches.proposal),)
        case Phase.WORKING:
            return _decide_about_steps(state, observations, now)
        case Phase.SYNTHESIZING:
            return _synthesize(state, now)
        case Phase.ANSWERING:
            first = check_facts(state, observations, now)
            if first is not None:
                return first
            return (check_or_end(state, may_send_back=has_revision_left(state, now)),)
        case Phase.ENDED:
            return ()
        case _:
            assert_never(state.phase)


def _may_use_refused_queues_only(state: JobState, observations: Observations) -> bool:
    """Return whether Redis refuses the queues of all specialists that the job may use."""
    specialists = state.submitted.specialists
    return bool(specialists) and observations.refused_queues.issuperset(specialists)


def _decide_about_steps(
    state: JobState, observations: Observations, now: float
) -> tuple[Command, ...]:
    """Return the commands of the working phase. Late and failed steps come first, then the steps
    that can begin. If no step is left, the job goes on to its review and its answer.
    """
    if state.submitted.is_quoted and state.quote is None:
        return (MakeQuote(),)
    is_replanning = state.has_open(Role.REPLANNER) or should_replan(state, now)
    settled_first = _settle_steps(state, observations, now, is_replanning=is_replanning)
    if settled_first is not None:
        return settled_first
    if state.spent is not None:
        unbegun = _find_steps_that_need_handoff(state)
        if unbegun:
            return (AbandonSteps(unbegun, explain_spent_budget(state)),)
    ready = select_startable_steps(state, find_ready_steps(state, now))
    to_approve = find_unapproved_steps(state, observations, ready)
    unapproved = set(to_approve)
    can_begin = [step_id for step_id in ready if step_id not in unapproved]
    handoffs_left = max(0, state.submitted.limits.max_handoffs - state.handoffs)
    abandoned = abandon_refused_steps(state, observations, can_begin)
    if not abandoned and not handoffs_left:
        abandoned = _abandon_at_handoff_limit(state, can_begin)
    if abandoned:
        return abandoned
    begin_now = can_begin[: min(handoffs_left, MAX_HANDOFFS_A_DECISION)]
    of_agents, commands = separate_child_steps(state, begin_now)
    commands += _group_ready_steps(state, of_agents, observations)
    needy = state.step_index.in_need
    if needy and not state.has_open(Role.PLANNER):
        commands.append(_ask_planner(state, needy))
    elif is_replanning and not state.has_open():
        commands.append(ask_role(state, Role.REPLANNER))
    if to_approve and state.question is None:
        commands.append(ask_to_begin(to_approve))
    is_done = not is_replanning and not to_approve and is_ready_for_review(state)
    if not commands and is_done and not state.has_open(Role.ASSESSOR):
        return _conclude(state, now)
    return tuple(commands)


def _abandon_at_handoff_limit(
    state: JobState, can_begin: Sequence[StepId]
) -> tuple[AbandonSteps, ...]:
    if not can_begin:
        return ()
    why = f"the job's limit of {state.submitted.limits.max_handoffs} handoffs is reached"
    return (AbandonSteps(tuple(can_begin), why),)


def _find_steps_that_need_handoff(state: JobState) -> tuple[StepId, ...]:
    """Return the steps that need another handoff before they can be settled."""
    step_ids: list[StepId] = []
    for step_id, step in state.steps.items():
        if step.status in (StepStatus.WAITING, StepStatus.IN_NEED):
            step_ids.append(step_id)
    return tuple(step_ids)


def _settle_steps(
    state: JobState, observations: Observations, now: float, *, is_replanning: bool
) -> tuple[Command, ...] | None:
    """Return the commands for steps that are late, failed, or cannot begin; None if there are
    none.
    """
    too_late = abandon_late_steps(state, now)
    if too_late:
        return too_late
    retries = find_step_retries(state, observations, now)
    if retries:
        return (TryAgain(retries),)
    failed_steps = find_steps_to_ask_about(state, observations, now)
    if failed_steps:
        question = _ask_about_failure(state, failed_steps)
        if question:
            return question
    elif not is_replanning:  # the replanner may still change hopeless steps
        hopeless = end_hopeless_steps(state, now)
        if hopeless:
            return hopeless
    blocked = _abandon_blocked_steps(state, now)
    if blocked is not None:
        return blocked
    return _check_conditions(state, now)


def _check_conditions(state: JobState, now: float) -> tuple[Command, ...] | None:
    """Return the command that checks the open conditions of steps that could begin. None:
    there are no such conditions.
    """
    if state.spent is not None or not _with_open_conditions(state, state.step_index.next):
        return None
    conditional = _with_open_conditions(
        state, select_startable_steps(state, find_ready_steps(state, now))
    )
    if conditional:
        return (CheckConditions(tuple(conditional[:MAX_CONDITIONS])),)
    return None


def _with_open_conditions(state: JobState, step_ids: Sequence[StepId]) -> list[StepId]:
    return [step_id for step_id in step_ids if has_open_condition(state.steps[step_id])]


def _ask_about_failure(state: JobState, steps: tuple[StepId, ...]) -> tuple[Command, ...]:
    """Return the question about steps that failed; empty while another question is open."""
    if state.question is not None:
        return ()
    return (AskApproval(ApprovalOf.FAILURE, describe_failure(state, steps), steps=steps),)


def _abandon_blocked_steps(state: JobState, now: float) -> tuple[Command, ...] | None:
    """Return the commands for steps that cannot begin because no review passed, because a
    person rejected them, or because they may have acted. None: there are no such steps.

    The judge rules first on a disagreement between the assessor and a writer.
    """
    steps = find_blocked_steps(state)
    judge_first = None
    if steps and state.review_over:
        judge_first = arbitrate(state, now)
    if judge_first is not None:
        return judge_first
    return steps or None


def _conclude(state: JobState, now: float) -> tuple[Command, ...]:
    """Return the commands after all steps that do not wait for the review are settled."""
    if answer_stands(state):
        return (check_or_end(state, may_send_back=False),)
    first = settle_conflicts(state, now)
    if first is not None:
        return first
    if state.is_reviewed and not state.review_over:
        return (_review_results(state, now),)
    return _synthesize(state, now)


def _group_ready_steps(
    state: JobState, ready: list[StepId], observations: Observations
) -> list[Command]:
    """Return chords of ready steps with the same dependents, so that unequal branches never
    wait for each other.
    """
    if not ready:
        return []
    dependents = state.dependents
    reassignments = find_reassignments(state, ready, observations)
    by_dependents: dict[frozenset[StepId], list[StepId]] = {}
    for step_id in ready:
        by_dependents.setdefault(dependents[step_id], []).append(step_id)
    groups: list[Command] = []
    for number, steps in enumerate(by_dependents.values(), start=state.groups + 1):
        replacements = tuple((step, reassignments[step]) for step in steps if step in reassignments)
        groups.append(IssueGroup(f"g{number}", tuple(steps), replacements))
    return groups


def _ask_planner(state: JobState, needy: Sequence[StepId]) -> Command:
    """Return the command that asks the planner about the questions of steps, or that abandons
    the steps whose questions the planner has answered too often.
    """
    asked_too_often: list[StepId] = []
    for step_id in needy:
        authors = [remark.author for remark in state.steps[step_id].remarks]
        if authors.count("planner") >= MAX_NEEDS_ANSWERED:
            asked_too_often.append(step_id)
    if asked_too_often:
        why = f"still needs something after {MAX_NEEDS_ANSWERED} answers of the planner"
        return AbandonSteps(tuple(asked_too_often), why)
    return ask_role(state, Role.PLANNER)


def _review_results(state: JobState, now: float) -> Command:
    if not state.usable_steps:
        return SkipReview(NOTHING_USABLE)
    if now >= state.working_deadline:
        return SkipReview("no time was left for a review")
    return ask_role(state, Role.ASSESSOR)


def _synthesize(state: JobState, now: float) -> tuple[Command, ...]:
    if state.has_open(Role.SYNTHESIZER):
        return ()
    rule_first = arbitrate(state, now)
    if rule_first is not None:
        return rule_first
    method = choose_method(state)
    if method is not AnswerMethod.SYNTHESIZED:
        return (ChooseAnswer(method),)
    if now < state.working_deadline:
        return (ask_role(state, Role.SYNTHESIZER),)
    return (ChooseAnswer(AnswerMethod.MERGED),)


def find_ready_steps(state: JobState, now: float) -> list[StepId]:
    """Return the steps that can begin. A step waits if the review may still send back a step that
    it depends on.
    """
    doubtful = in_doubt(state)
    step_ids: list[StepId] = []
    for step_id in state.step_index.next:
        is_certain = doubtful.isdisjoint(state.steps[step_id].outline.depends_on)
        if is_certain and is_met(state, get_fan_in(state, step_id), now):
            step_ids.append(step_id)
    return step_ids


def end_hopeless_steps(state: JobState, now: float) -> tuple[AbandonSteps | SkipSteps, ...]:
    """Return the commands that abandon or skip the steps that can never begin.

    A step is skipped if each dependency without a usable result was skipped.
    """
    broken_steps: dict[str, list[StepId]] = {}
    skipped_steps: list[StepId] = []
    for step_id in state.step_index.next:
        if state.steps[step_id].outline.depends_on:
            fan_in = get_fan_in(state, step_id)
            join, why = evaluate_join(state, fan_in, now)
            if join is JoinState.BROKEN and _lacks_only_skipped_parts(state, fan_in):
                skipped_steps.append(step_id)
            elif join is JoinState.BROKEN:
                broken_steps.setdefault(why, []).append(step_id)
    commands: list[AbandonSteps | SkipSteps] = []
    for why, steps in broken_steps.items():
        commands.append(AbandonSteps(tuple(steps), why))
    if skipped_steps:
        commands.append(SkipSteps(tuple(skipped_steps), ALL_SKIPPED))
    return tuple(commands)


def _lacks_only_skipped_parts(state: JobState, fan_in: FanIn) -> bool:
    """Return whether all settled parts without a usable result were skipped, and there is one."""
    has_skipped = False
    for part in fan_in.parts:
        step = state.steps[part]
        if step.is_settled and not step.is_usable:
            if not step.is_skipped:
                return False
            has_skipped = True
    return has_skipped
