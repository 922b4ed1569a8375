"""Approval policy: when a person is asked before a job continues, and the default after a time
limit. Pure.

A question replaces the commands that need approval, so the modules that make these commands
need no rules about approvals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from handoff_queue.shared.types.events import AnsweredCall, JobStatus
from handoff_queue.shared.types.job_options import ApprovalOf, OnTimeout
from handoff_queue.shared.types.names import CLOSING_ROLES
from handoff_queue.shared.types.usage import format_dollars
from handoff_queue.supervisor.lifecycle.child_jobs import build_bill, format_bill
from handoff_queue.supervisor.lifecycle.commands import (
    AbandonSteps,
    ApproveOnTimeout,
    AskApproval,
    AskUser,
    CheckConditions,
    CheckGates,
    ChooseAnswer,
    Command,
    DeliverWebhook,
    EndJob,
    FindConflicts,
    IssueFactCheck,
    IssueGroup,
    IssueRole,
    IssueToChild,
    MakePlan,
    MakeQuote,
    PatchPlan,
    PublishAgain,
    RemindUser,
    RunRole,
    SendEndTask,
    SetMode,
    SkipFactCheck,
    SkipReview,
    SkipSteps,
    StartChild,
    TakeFactCheck,
    TellParent,
    TryAgain,
)
from handoff_queue.supervisor.lifecycle.job_budget import (
    explain_budget_decision,
    list_limits_to_raise,
)
from handoff_queue.supervisor.lifecycle.job_end import end_now, get_question_due
from handoff_queue.supervisor.lifecycle.state import (
    AskedCall,
    JobState,
    Question,
    StepState,
)


def ask_first(state: JobState, commands: tuple[Command, ...]) -> tuple[Command, ...]:
    """Return the commands, or the question that must be answered first."""
    wanted_subjects = {*state.submitted.approvals.what} - {*state.approved}
    if _costs_too_much(state):
        wanted_subjects.add(ApprovalOf.COST)
    if not wanted_subjects:
        return commands
    for command in commands:
        status = command.status if isinstance(command, EndJob) else None
        for subject in (*_find_approvals(command), *_find_end_approvals(state, command)):
            if subject in wanted_subjects:
                return (AskApproval(subject, _explain_question(state, subject), status),)
    return commands


def _find_approvals(command: Command) -> tuple[ApprovalOf, ...]:
    """Return the approvals that a command needs."""
    match command:
        case IssueGroup() | IssueToChild() | CheckConditions():
            return (ApprovalOf.PLAN, ApprovalOf.COST)
        case IssueRole(role) if role in CLOSING_ROLES:
            return (ApprovalOf.RESEARCH, ApprovalOf.COST)
        case IssueRole() | IssueFactCheck():
            return (ApprovalOf.COST,)
        case SkipReview() | ChooseAnswer():
            return (ApprovalOf.RESEARCH,)
        case EndJob(status=JobStatus.OK | JobStatus.PARTIAL):
            return (ApprovalOf.ANSWER,)
        case (
            SetMode()
            | MakePlan()
            | PatchPlan()
            | MakeQuote()
            | AbandonSteps()
            | SkipSteps()
            | TryAgain()
            | FindConflicts()
            | CheckGates()
            | TakeFactCheck()
            | SkipFactCheck()
            | EndJob()
            | AskUser()
            | ApproveOnTimeout()
            | AskApproval()
            | RemindUser()
            | PublishAgain()
            | RunRole()
            | StartChild()
            | TellParent()
            | DeliverWebhook()
            | SendEndTask()
        ):
            return ()
        case _:
            assert_never(command)


def _find_end_approvals(state: JobState, command: Command) -> tuple[ApprovalOf, ...]:
    """Return the further approvals that an end with an answer needs. An answer with results
    that a person rejected, and that could not be improved in time, needs an approval of the
    research.
    """
    if not isinstance(command, EndJob) or command.status not in (JobStatus.OK, JobStatus.PARTIAL):
        return ()
    for step in state.steps.values():
        if step.is_usable and _is_rejected_result(step):
            return (ApprovalOf.RESEARCH,)
    return ()


def _is_rejected_result(step: StepState) -> bool:
    """Return whether a user's remark is about the current result of the step."""
    for remark in step.remarks:
        is_rejected = remark.author == "user" and remark.previous == step.result
        if is_rejected:
            return True
    return False


def release_question(state: JobState, commands: Sequence[Command]) -> tuple[Command, ...]:
    """Return the commands for a job that can only come to its end, for lack of time or budget.
    The end with an answer becomes the question that must be answered first. Other commands
    need no approval.
    """
    released_commands: list[Command] = []
    for command in commands:
        if isinstance(command, EndJob):
            released_commands.extend(ask_first(state, (command,)))
        else:
            released_commands.append(command)
    return tuple(released_commands)


def _costs_too_much(state: JobState) -> bool:
    """Return whether the job has cost more than the amount from which a person must approve."""
    if ApprovalOf.COST in state.approved:
        return False
    cost = state.usage.cost_microusd
    above = state.submitted.approvals.above_microusd
    return cost is not None and above is not None and cost > above


def _explain_question(state: JobState, subject: ApprovalOf) -> str:
    """Return the reason for a question.

    Raises:
        AssertionError: the question is about steps, and brings its own reason.
    """
    match subject:
        case ApprovalOf.PLAN:
            noun = "step" if len(state.steps) == 1 else "steps"
            details = f"{len(state.steps)} {noun}"
            bill = format_bill(build_bill(state))
            if bill:
                details += f": {bill}"
            return f"its plan is made ({details})"
        case ApprovalOf.RESEARCH:
            return "its steps are done"
        case ApprovalOf.ANSWER:
            return "its answer is written"
        case ApprovalOf.FAILURE | ApprovalOf.STEP | ApprovalOf.TOOLS:
            raise AssertionError("a question about steps or calls brings its own reason")
        case ApprovalOf.COST:
            above = state.submitted.approvals.above_microusd
            return (
                f"it has cost {format_dollars(state.usage.cost_microusd or 0)}, more than"
                f" {format_dollars(above or 0)}"
            )


def decide_while_asked(state: JobState, question: Question, now: float) -> tuple[Command, ...]:
    """Return the commands for a job with an open question: the default after its time limit,
    or the next reminder. Empty if neither is due.
    """
    approvals = state.submitted.approvals
    if now >= question.until and question.what is ApprovalOf.STEP:
        why = f"it was not approved within {approvals.wait_s} s"
        return (AbandonSteps(question.steps, why),)
    if now >= question.until and approvals.on_timeout is OnTimeout.GO_ON:
        call = None
        if isinstance(question, AskedCall):
            call = AnsweredCall(handoff_id=question.handoff_id, call_id=question.call_id)
        return (ApproveOnTimeout(question.version, call),)
    if now >= question.until:
        why = f"the {_describe_subject(question)} was not approved within {approvals.wait_s} s"
        return (EndJob(JobStatus.CANCELLED, why),)
    if now >= get_question_due(state, question):
        return (RemindUser(question.version, question.reminders + 1),)
    return ()


def _describe_subject(question: Question) -> str:
    if isinstance(question, AskedCall):
        return f"call of {question.tool}"
    return question.what


def decide_about_calls(state: JobState, now: float) -> tuple[Command, ...]:
    """Return the commands for the open questions about tool calls. The webhook is told about a new
    question. A question has its default answer or its next reminder.
    """
    commands: list[Command] = []
    for call in state.open_calls:
        if state.submitted.webhook_url is not None and not call.is_told:
            commands.append(RemindUser(call.version, 0))
            continue
        for command in decide_while_asked(state, call, now):
            if isinstance(command, EndJob):
                return (command,)
            commands.append(command)
    return tuple(commands)


def build_commands_after_rejection(state: JobState, subject: ApprovalOf) -> tuple[Command, ...]:
    """Return the commands that end the job after a rejection. A rejected cost ends it with the
    results so far. Any other rejected part, which cannot be made again, ends it without an
    answer.
    """
    if subject is ApprovalOf.COST:
        return release_question(state, end_now(state, "its cost was not approved"))
    return (EndJob(JobStatus.FAILED, f"the {subject} was rejected, and it cannot be made again"),)


def build_waiting_fields(before: JobState, later: JobState | None) -> dict[str, str]:
    """Return the fields of the job's hash about the question that it waits for.

    `asks` is the reason for a decision, and `limits_to_raise` has the limits that it is about.
    `approval:` with the version of a question is its subject. Two fields are about the newest
    question: `asked_last` (its version) and `asked_at` (Unix ms). An empty value removes its
    field. The version in the name protects a newer question from a late answer to an earlier one.

    Args:
        later: the state after the events that the fields are written with; None: the open
            question was just answered.
    """
    fields: dict[str, str] = {}
    if before.question:
        fields[f"approval:{before.question.version}"] = ""
    open_calls = (later or before).open_calls
    if open_calls:  # also without another question, the job waits for a person
        fields["asked_last"] = str(open_calls[-1].version)
    if later is None:
        return fields
    fields["asks"] = explain_budget_decision(later)
    fields["limits_to_raise"] = " ".join(list_limits_to_raise(later))
    since = later.asked_at
    if open_calls and since is None:
        since = open_calls[0].at
    question = later.question
    if question is not None:
        fields[f"approval:{question.version}"] = question.what.value
        fields["asked_last"] = str(question.version)
        since = question.at
    fields["asked_at"] = "" if since is None else str(int(since * 1000))
    return fields
