"""When a person is asked before a job goes on, and what happens while nobody answers. Pure.

A question takes the place of what was about to be ordered, so that nothing but this module
knows of approvals.
"""

from __future__ import annotations

from collections.abc import Sequence

from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.job_options import ApprovalOf, OnTimeout
from handoff_queue.shared.types.names import CLOSING_ROLES
from handoff_queue.shared.types.usage import cost_usd
from handoff_queue.supervisor.lifecycle.budget import reason_for_decision
from handoff_queue.supervisor.lifecycle.commands import (
    AbandonSteps,
    ApproveBySilence,
    AskApproval,
    CheckConditions,
    ChooseAnswer,
    Command,
    EndJob,
    IssueFactCheck,
    IssueGroup,
    IssueRole,
    IssueToChild,
    RemindUser,
    SkipReview,
)
from handoff_queue.supervisor.lifecycle.job_end import end_now, question_due
from handoff_queue.supervisor.lifecycle.state import JobState, Question
from handoff_queue.supervisor.lifecycle.teams import bill_of, bill_text


def ask_first(state: JobState, commands: tuple[Command, ...]) -> tuple[Command, ...]:
    """The commands, or the question that stands before them."""
    wanted = {*state.submitted.approvals.what} - {*state.approved}
    if _is_dear(state):
        wanted.add(ApprovalOf.COST)
    for command in commands if wanted else ():
        for what in (*_of(command), *_of_the_end(state, command)):
            if what in wanted:
                return (
                    AskApproval(
                        what,
                        _why(state, what),
                        command.status if isinstance(command, EndJob) else None,
                    ),
                )
    return commands


def _of(command: Command) -> tuple[ApprovalOf, ...]:
    """What a command needs to be approved before."""
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
        case _:
            return ()


def _of_the_end(state: JobState, command: Command) -> tuple[ApprovalOf, ...]:
    """Research that a person has rejected stands in where no time was left to mend it: it does
    not leave unasked.
    """
    if not isinstance(command, EndJob) or command.status not in (JobStatus.OK, JobStatus.PARTIAL):
        return ()
    is_unmended = any(
        remark.author == "user" and remark.previous == step.result
        for step in state.steps.values()
        if step.usable
        for remark in step.remarks
    )
    return (ApprovalOf.RESEARCH,) if is_unmended else ()


def release_question(state: JobState, commands: Sequence[Command]) -> tuple[Command, ...]:
    """The same where there is no time, or no money, left for anything but the end: then only
    the answer is asked about, and research that was rejected.
    """
    return tuple(
        asked if isinstance(command, EndJob) else command
        for command in commands
        for asked in ask_first(state, (command,))
    )


def _is_dear(state: JobState) -> bool:
    cost, above = state.usage.cost_microusd, state.submitted.approvals.above_microusd
    return (
        cost is not None
        and above is not None
        and cost > above
        and ApprovalOf.COST not in state.approved
    )


def _why(state: JobState, what: ApprovalOf) -> str:
    """In words of our own."""
    match what:
        case ApprovalOf.PLAN:
            bill = bill_text(bill_of(state))
            return f"its plan is made ({len(state.steps)} {'step' if len(state.steps) == 1 else 'steps'}{bill and f': {bill}'})"
        case ApprovalOf.RESEARCH:
            return "its steps are done"
        case ApprovalOf.ANSWER:
            return "its answer is written"
        case ApprovalOf.FAILURE | ApprovalOf.STEP:
            raise AssertionError("a question about steps brings its own reason")
        case ApprovalOf.COST:
            above = state.submitted.approvals.above_microusd
            return f"it has cost ${cost_usd(state.usage.cost_microusd):.6g}, more than ${cost_usd(above):.6g}"


def decide_while_asked(state: JobState, question: Question, now: float) -> tuple[Command, ...]:
    """What time brings to a job that waits."""
    approvals = state.submitted.approvals
    if now >= question.until and question.what is ApprovalOf.STEP:
        why = f"nobody has approved it within {approvals.wait_s} s"
        return (AbandonSteps(question.steps, why),)
    if now >= question.until:
        if approvals.on_timeout is OnTimeout.GO_ON:
            return (ApproveBySilence(question.version),)
        return (
            EndJob(
                JobStatus.CANCELLED,
                f"nobody has approved the {question.what} within {approvals.wait_s} s",
            ),
        )
    if now >= question_due(state, question):
        return (RemindUser(question.version, question.reminders + 1),)
    return ()


def after_rejection(state: JobState, what: ApprovalOf) -> tuple[Command, ...]:
    """A cost that is too high ends the job with what it has; of what else cannot be made
    again, nothing leaves.
    """
    if what is ApprovalOf.COST:
        return release_question(state, end_now(state, "its cost was not approved"))
    return (EndJob(JobStatus.FAILED, f"the {what} was rejected, and it cannot be made again"),)


def waiting_fields(before: JobState, later: JobState | None) -> dict[str, str]:
    """Return the fields of the job's hash that say for which person's answer it waits.

    `later`: the state after the events that the fields are written with; None: the open question
    was just answered. An empty value removes its field. The fields: `asks`, why it waits for a
    decision; `approval:` and the version of a question, what it waits for an approval of;
    `asked_last`, the version of the newest question; `asked_at`, since when it waits (Unix ms).
    The version in the name keeps a late answer to an earlier question from removing a newer one.
    """
    answered = {f"approval:{before.question.version}": ""} if before.question else {}
    if later is None:
        return answered
    fields = {**answered, "asks": reason_for_decision(later)}
    since = later.asked_at
    if (question := later.question) is not None:
        fields[f"approval:{question.version}"] = question.what.value
        fields["asked_last"] = str(question.version)
        since = question.at
    fields["asked_at"] = "" if since is None else str(int(since * 1000))
    return fields
