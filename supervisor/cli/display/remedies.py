"""The commands that end a wait of a job."""

from __future__ import annotations

from dataclasses import replace

from handoff_queue.shared.types.budget_measures import MEASURES
from handoff_queue.supervisor.client.waiting_reasons import Remedy, WaitingReason

_COMMANDS = {
    Remedy.START_SUPERVISOR: "start one with `handoff supervisor`",
    Remedy.START_WORKER: "start one with `handoff worker {0}`",
    Remedy.UNPAUSE: "continue it with `handoff unpause {0}`",
    Remedy.DECIDE: "continue it with `handoff retry {0}{1}`, or end it with `handoff cancel {0}`",
    Remedy.APPROVE: (
        "`handoff approve {0}` or `handoff reject {0} --note TEXT` (`handoff show {0} --full` shows"
        " the question)"
    ),
    Remedy.APPROVE_CALL: (
        "`handoff approve {0} --question N` or `handoff reject {0} --question N` (`handoff show {0}"
        " --full` shows the call and N)"
    ),
}
"""The commands for each remedy. {0} is its subject, and {1} the option that raises a limit."""
_IN_PLACE = {
    Remedy.START_SUPERVISOR: "this run starts it again",
    Remedy.START_WORKER: "this run starts it again",
    Remedy.DECIDE: "answer here",
    Remedy.APPROVE: "answer here",
    Remedy.APPROVE_CALL: "answer here",
}
"""The remedies on the private Redis of `handoff run`, which the other commands cannot reach."""


def with_command(reason: WaitingReason) -> WaitingReason:
    """Return a reason that names the command."""
    if reason.remedy is None:
        return reason
    subject = reason.subject
    if reason.remedy is Remedy.START_WORKER:
        subject = subject or "--all"
    options = [measure.option_with_value for measure in MEASURES if measure.limit in reason.limits]
    raised = ""
    if options:
        raised = f" {' or '.join(options)}"
    return replace(reason, fix=_COMMANDS[reason.remedy].format(subject, raised), remedy=None)


def with_remedy_in_place(reason: WaitingReason) -> WaitingReason:
    """Return a reason of a job on the private Redis of `handoff run`."""
    if reason.remedy not in _IN_PLACE:
        return with_command(reason)
    return replace(reason, fix=_IN_PLACE[reason.remedy], remedy=None)


def describe_with_command(reason: WaitingReason) -> str:
    """Return a reason in words that name the command."""
    return str(with_command(reason))
