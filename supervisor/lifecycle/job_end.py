"""The end of a job: complete, with gaps, or without an answer; and the work after the end."""

from __future__ import annotations

from typing import assert_never

from handoff_queue.shared.types.events import BY_SCHEDULE, AnswerMethod, JobStatus
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.ids import HandoffId
from handoff_queue.shared.types.job_options import OnTimeout
from handoff_queue.supervisor.lifecycle.answer import find_usable_sinks, list_parts
from handoff_queue.supervisor.lifecycle.commands import (
    AbandonSteps,
    CheckGates,
    ChooseAnswer,
    Command,
    DeliverWebhook,
    EndJob,
    SendEndTask,
    SkipReview,
    TellParent,
)
from handoff_queue.supervisor.lifecycle.fact_gate import end_checking, is_doubted
from handoff_queue.supervisor.lifecycle.job_budget import explain_spent_budget
from handoff_queue.supervisor.lifecycle.job_retry import answer_stands
from handoff_queue.supervisor.lifecycle.joins import find_next_join_end
from handoff_queue.supervisor.lifecycle.observations import Observations
from handoff_queue.supervisor.lifecycle.review_arbitration import is_accepted
from handoff_queue.supervisor.lifecycle.state import Delivery, JobState, Phase, Question

WEBHOOK_BACKOFF_S = (0.0, 5.0, 30.0, 120.0, 600.0, 3_600.0)
"""Seconds before each attempt to deliver a webhook or to send the end task. After the last
attempt the supervisor gives up.
"""
WEBHOOK_GIVEN_UP_AFTER_S = 30.0
"""Seconds after which an attempt without an outcome counts as lost with its supervisor. It is
longer than the timeout of the webhook's POST.
"""
TELL_AGAIN_AFTER_S = 5.0
"""Seconds after which an ended child job reports to its parent again. A repeated report does
no harm.
"""
NOTHING_USABLE = "no step has a usable result"
NOTHING_MET = "every step was skipped: no condition was met"
NOBODY_THERE_S = (2.0, 30.0)
"""Least and most seconds to the next evaluation of a job that cannot be routed or planned yet,
because no worker announces a specialist. Between them it is a quarter of the job's age. 10,000
such jobs need at least 333 evaluations a second.
"""


def explain_cancel(state: JobState) -> str:
    """Return in words who cancelled the job."""
    if state.cancelled_by == "user":
        return "cancelled by the user"
    if str(state.cancelled_by).startswith(BY_SCHEDULE):
        return f"cancelled by {state.cancelled_by} for its next slot"
    return f"{state.cancelled_by} does not wait for it any more"


def check_or_end(state: JobState, *, may_send_back: bool) -> Command:
    """Return the command that checks the gates of a made answer, or else the command that ends
    the job.
    """
    is_unchecked = (
        state.submitted.gates is not None and state.gated is None and state.synthesized is not None
    )
    if is_unchecked and list_parts(state):
        return CheckGates(may_send_back)
    return end(state)


def end(state: JobState) -> EndJob:
    """Return the command that ends the job with its answer, or with the reason why there is
    none. The status is `ok` if the plan, all steps, the review, the answer and its checks
    succeeded.
    """
    if not state.usable_steps:
        return _fail(state)
    status = JobStatus.OK if _is_whole(state) else JobStatus.PARTIAL
    return EndJob(status, explain_spent_budget(state) or None)


def _is_whole(state: JobState) -> bool:
    """Return whether the plan, all steps, the review, the answer and its checks succeeded."""
    is_planned = state.plan is not None and state.plan.degraded is None
    if not is_planned or state.incomplete_steps:
        return False
    if state.is_reviewed and not is_accepted(state):
        return False
    is_made = state.synthesized is not None and state.synthesized.problem is None
    is_vetoed = state.gated is not None and state.gated.vetoes
    return is_made and not is_vetoed and not is_doubted(state)


def _fail(state: JobState) -> EndJob:
    """Return the command that ends the job as failed. It names the first failed step without
    dependencies, and the specialists that failed at the step. The failures of other steps may
    follow from this one.
    """
    if state.spent is not None:
        return EndJob(JobStatus.FAILED, f"{explain_spent_budget(state)}, and {NOTHING_USABLE}")
    skipped_count = 0
    for step_id, step in state.steps.items():
        if step.is_skipped:
            skipped_count += 1
        elif step.problem_result and not step.outline.depends_on:
            ended_itself = step.stop_reason in (None, StopReason.FINISHED)
            outcome = step.result_status if ended_itself else step.stop_reason
            specialists = " and ".join(step.tried or (step.specialist,))
            why = f"{NOTHING_USABLE} ({step_id} by {specialists}: {outcome})"
            return EndJob(JobStatus.FAILED, why, step.problem_result)
    if skipped_count and skipped_count == len(state.steps):
        return EndJob(JobStatus.FAILED, NOTHING_MET)
    return EndJob(JobStatus.FAILED, NOTHING_USABLE)


def end_now(state: JobState, why: str) -> tuple[Command, ...]:
    """Return the next command that ends the job with the results so far, without further
    questions. Empty if the job has ended.
    """
    match state.phase:
        case Phase.ROUTING | Phase.PLANNING:
            return (EndJob(JobStatus.FAILED, f"{why}, and there was no plan yet"),)
        case Phase.WORKING:
            return (_stop_working(state, why),)
        case Phase.SYNTHESIZING:
            return (_build_answer_by_code(state),)
        case Phase.ANSWERING:
            return end_checking(state, why) or (check_or_end(state, may_send_back=False),)
        case Phase.ENDED:
            return ()
        case _:
            assert_never(state.phase)


def _stop_working(state: JobState, why: str) -> Command:
    unsettled = state.unsettled_steps
    if unsettled:
        return AbandonSteps(unsettled, why)
    if answer_stands(state):
        return check_or_end(state, may_send_back=False)
    if state.is_reviewed and not state.review_over:
        return SkipReview(why)
    return _build_answer_by_code(state)


def _build_answer_by_code(state: JobState) -> ChooseAnswer:
    """Return the command that makes the answer without a synthesizer."""
    method = AnswerMethod.MERGED if find_usable_sinks(state) else AnswerMethod.NONE
    return ChooseAnswer(method)


def build_commands_after_end(state: JobState, now: float) -> tuple[Command, ...]:
    """Return the commands that report the end: to the parent job, or else to the end task and
    the webhook whose next attempt is due.
    """
    if state.submitted.parent:
        if state.parent_told:
            return ()
        return (TellParent(),)
    task_due, webhook_due = _get_end_task_due(state), _get_webhook_due(state)
    commands: list[Command] = []
    if task_due is not None and task_due <= now:
        commands.append(SendEndTask(state.end_task.attempts + 1))
    if webhook_due is not None and webhook_due <= now:
        commands.append(DeliverWebhook(state.webhook.attempts + 1))
    return tuple(commands)


def _get_end_task_due(state: JobState) -> float | None:
    if state.submitted.on_end is None:
        return None
    return _compute_next_attempt_at(state.end_task)


def _get_webhook_due(state: JobState) -> float | None:
    if state.submitted.webhook_url is None:
        return None
    return _compute_next_attempt_at(state.webhook)


def _compute_next_attempt_at(delivery: Delivery) -> float | None:
    """Return when the next attempt is due, as a Unix time in seconds. None: no attempt is
    left, or none is needed.
    """
    if delivery.under_way:
        return delivery.tried_at + WEBHOOK_GIVEN_UP_AFTER_S
    if delivery.delivered or delivery.attempts >= len(WEBHOOK_BACKOFF_S):
        return None
    return delivery.tried_at + WEBHOOK_BACKOFF_S[delivery.attempts]


def get_question_due(state: JobState, question: Question) -> float:
    """Return the time of the next reminder, or of the default answer if that comes first. Unix
    time in seconds.
    """
    approvals = state.submitted.approvals
    if approvals.on_timeout is not OnTimeout.REMIND or approvals.timeout_s is None:
        return question.until
    reminded_after_s = approvals.timeout_s * float(2 ** (question.reminders + 1) - 1)
    return min(question.until, question.at + reminded_after_s)


def waits_for_specialist(state: JobState) -> bool:
    """Return whether a job without further decisions waits until a worker announces a specialist
    that the job may use.
    """
    is_unplanned = state.phase in (Phase.ROUTING, Phase.PLANNING)
    return is_unplanned and not state.open and not state.question


def compute_next_due(
    state: JobState, now: float, claim_within_s: float, observations: Observations | None = None
) -> float | None:
    """Return the time at which the sweeper must evaluate the job if no event comes before;
    None: never. Unix time in seconds.

    Args:
        claim_within_s: seconds within which a role's new handoff must be claimed, or a child
            must begin, unless it waits without a message.
    """
    if state.ended:
        return _compute_report_time(state, now)
    if waits_for_specialist(state):
        shortest_s, longest_s = NOBODY_THERE_S
        quarter_of_age_s = (now - state.started_at) / 4
        wait_s = min(max(shortest_s, quarter_of_age_s), longest_s)
        return min(now + wait_s, max(state.deadline, now + 1.0))
    until = _compute_next_time_limit(state, now)
    if not _find_handoffs_without_claim(state, observations).issuperset(
        state.step_index.outside_chords
    ):
        return min(now + claim_within_s, until)
    return max(until, now + 1.0)


def _compute_next_time_limit(state: JobState, now: float) -> float:
    """Return the next time at which a question, the job's time limit or a join needs a decision.
    Unix time in seconds.
    """
    times: list[float] = []
    if state.question:
        times.append(get_question_due(state, state.question))
    for call in state.open_calls:
        times.append(get_question_due(state, call))
    does_time_run = state.question is None or (state.asks_about_steps and not state.is_only_asking)
    if does_time_run:
        times.append(state.deadline)
    if does_time_run and state.phase is Phase.WORKING:
        join_ends_at = find_next_join_end(state, now)
        if join_ends_at is not None:
            times.append(join_ends_at)
    return min(times)


def _compute_report_time(state: JobState, now: float) -> float | None:
    """Return the time at which an ended job next reports its end: to the parent job, or else to
    the end task and the webhook. None: never.
    """
    if state.submitted.parent:
        if state.parent_told:
            return None
        return max(now, state.as_of) + TELL_AGAIN_AFTER_S
    times = [_get_end_task_due(state), _get_webhook_due(state)]
    return min((time for time in times if time is not None), default=None)


def _find_handoffs_without_claim(
    state: JobState, observations: Observations | None
) -> set[HandoffId]:
    """Return the observed handoffs that wait without a message, or whose child jobs have begun."""
    handoff_ids: set[HandoffId] = set()
    if observations is None:
        return handoff_ids
    for handoff_id, observed in observations.handoffs.items():
        issued = state.open.get(handoff_id)
        is_begun_child = issued is not None and issued.child and observed.state == "running"
        if observed.waits or is_begun_child:
            handoff_ids.add(handoff_id)
    return handoff_ids
