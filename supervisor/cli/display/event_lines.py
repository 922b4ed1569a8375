"""A job as lines: one line for each event that a reader of a log needs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from operator import itemgetter
from typing import Any

from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.events import (
    ApprovalAsked,
    ApprovalReminded,
    Approved,
    Arbitrated,
    CancelRequested,
    ConditionsChecked,
    ConflictsFound,
    DecisionAsked,
    EndTaskTried,
    Event,
    EventRefused,
    FactsChecked,
    GatesChecked,
    HandoffFinished,
    HandoffIssued,
    JobEnded,
    JobSubmitted,
    Judged,
    NeedsResolved,
    ParentTold,
    PlanMade,
    PlanPatched,
    Quoted,
    Rejected,
    RetryRequested,
    Reviewed,
    Routed,
    StepOutline,
    StepsAbandoned,
    StepsTriedAgain,
    Synthesized,
    UserMessageSent,
    UserMessageTaken,
    WebhookTried,
)
from handoff_queue.shared.types.handoff import describe_shared_run
from handoff_queue.shared.types.ids import HandoffId
from handoff_queue.shared.types.job_options import describe_awaited_answer
from handoff_queue.shared.types.names import ROLES
from handoff_queue.shared.types.presence import has_activity_changed, parse_wait
from handoff_queue.supervisor.cli.display.activity import (
    describe_deferral,
    describe_lost_claims,
    describe_tools,
    format_name,
    is_deferred,
)
from handoff_queue.supervisor.cli.display.job_status import format_quote
from handoff_queue.supervisor.cli.display.job_view import (
    JobUpdate,
    JobView,
)
from handoff_queue.supervisor.cli.display.remedies import describe_with_command
from handoff_queue.supervisor.cli.display.step_copies import (
    StepCopies,
    collapse_steps,
    format_names,
)
from handoff_queue.supervisor.cli.display.terminal import format_bounded_count, shorten
from handoff_queue.supervisor.client.plan_changes import build_change, describe_change
from handoff_queue.supervisor.lifecycle.child_jobs import build_bill, format_bill
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.result_texts import list_refs_with_texts
from handoff_queue.supervisor.lifecycle.state import JobState


def iterate_lines(moment: JobUpdate, before: JobState | None = None) -> Iterator[tuple[float, str]]:
    """Yield the lines about the new events of a job, each with the Unix time of its event. Some
    events have no line.

    Args:
        before: state of the job before these events. The line about a plan needs it. None: the
            events are the first of the job.
    """
    for number, recorded in enumerate(moment.events, start=1):
        view = moment.view
        if isinstance(recorded.event, PlanMade):  # the bill uses the budget at the time of the plan
            view = replace(view, state=fold(view.job_id, before, moment.events[:number]))
        line = LINES[type(recorded.event)](view, recorded.event)
        if line:
            yield recorded.at, line


def list_changes(before: JobView | None, moment: JobUpdate) -> list[str]:
    """Return the lines about all changes since the last view, with the child jobs indented. The
    events of a job and of its child jobs are in the order of their times.

    Args:
        before: the last view. None: this is the first update.
    """
    return [line for _, line in sorted(_iterate_timed_lines(before, moment), key=itemgetter(0))]


def _iterate_timed_lines(before: JobView | None, moment: JobUpdate) -> Iterator[tuple[float, str]]:
    """Yield the lines about all changes, each with a Unix time by which they are sorted. The times
    of a job never fall, so that its own lines keep their order.
    """
    view = moment.view
    earlier = before or JobView(view.job_id)
    for line in iterate_arrivals(earlier, view):
        yield -inf, line
    latest = 0.0
    for at, line in iterate_lines(moment, earlier.state):
        latest = max(latest, at)
        yield latest, line
    for line in (*iterate_new_claims(earlier, view), *iterate_new_waits(earlier, view)):
        yield inf, line
    for below in moment.below:
        name = below.view.job_id
        for at, line in _iterate_timed_lines(earlier.children.get(name), below):
            if line.startswith(f"{name}:"):
                yield at, f"  {line}"
            else:
                yield at, f"  {name} {line}"
    for line in iterate_newly_missing(earlier, view):
        yield inf, line


def _index_issue_events(view: JobView) -> dict[HandoffId, HandoffIssued]:
    return {event.handoff_id: event for event in view.issued}


def iterate_new_claims(before: JobView, after: JobView) -> Iterator[str]:
    """Yield a line for each newly claimed handoff. No event reports a claim."""
    issued = _index_issue_events(after)
    for handoff_id, info in after.handoffs.items():
        earlier = before.handoffs.get(handoff_id)
        is_over = handoff_id in after.finished or info.state == "dropped"
        earlier_claims = earlier.claims if earlier else 0
        if is_over or info.claims <= earlier_claims:
            continue
        claim_text = ""
        if info.claims > 1:
            claim_text = f" (claim {info.claims})"
        yield f"{format_name(issued[handoff_id])}: works{claim_text}, in {info.worker}"


def iterate_new_waits(before: JobView, after: JobView) -> Iterator[str]:
    """Yield a line for each handoff that starts to wait, such as for a rate limit.

    A running handoff keeps its slot. A deferred handoff has no slot.
    """
    issued = _index_issue_events(after)
    for handoff_id, info in after.handoffs.items():
        earlier = before.handoffs.get(handoff_id)
        was_deferred = earlier is not None and is_deferred(earlier, before.now)
        doing = _get_activity(info)
        if parse_wait(doing) and has_activity_changed(doing, _get_activity(earlier)):
            yield f"{format_name(issued[handoff_id])}: {doing}"
        elif is_deferred(info, after.now) and not was_deferred:
            yield f"{format_name(issued[handoff_id])}: {describe_deferral(info, after.now)}"


def _get_activity(info: HandoffInfo | None) -> str:
    """Return the activity of a running handoff. A stored activity of any other handoff is
    outdated.
    """
    if info is not None and info.state == "running":
        return info.doing
    return ""


def iterate_newly_missing(before: JobView, after: JobView) -> Iterator[str]:
    """Yield a line for each new reason why the job waits."""
    for reason in after.waiting_reasons:
        if reason not in before.waiting_reasons:
            yield describe_with_command(reason)


def iterate_arrivals(before: JobView, after: JobView) -> Iterator[str]:
    """Yield a line for each process or person that the job no longer waits for."""
    still_missing = {reason.awaited for reason in after.waiting_reasons}
    for reason in before.waiting_reasons:
        if reason.awaited not in still_missing:
            yield f"no longer waits for {reason.awaited}"


def _describe_submission(view: JobView, event: JobSubmitted) -> str:
    documents = ""
    if event.document_count:
        documents = f" with {format_count(event.document_count, 'document')}"
    return f"{view.job_id}: submitted{documents}"


def _describe_route(_: JobView, event: Routed) -> str:
    problem = ""
    if event.problem:
        problem = f" ({event.problem})"
    return f"router: {event.specialist or 'a team'}{problem}"


def _describe_quote(_: JobView, event: Quoted) -> str:
    return f"quote: {format_quote(event.quote)}"


def _describe_end(view: JobView, event: JobEnded) -> str:
    return f"{view.job_id}: {event.status.value}{_describe_end_reason(view, event)}"


def _describe_cancel_request(_: JobView, event: CancelRequested) -> str:
    if event.by == "user":
        return "cancel requested"
    return f"cancel requested by {event.by}"


def _describe_decision_request(_: JobView, event: DecisionAsked) -> str:
    return f"waits for a decision: {event.why}"


def _describe_report_to_parent(view: JobView, _: ParentTold) -> str:
    return f"{view.job_id}: result sent to the parent job"


def _describe_end_task(_: JobView, event: EndTaskTried) -> str:
    return f"task at the end: {_describe_delivery(event, 'sent')}"


def _describe_webhook(_: JobView, event: WebhookTried) -> str:
    return f"webhook: {_describe_delivery(event, 'delivered')}"


def _describe_refused_event(_: JobView, event: EventRefused) -> str:
    return f"an event is not used: {event.reason}"


def _describe_end_reason(view: JobView, event: JobEnded) -> str:
    """Return `: reason`, or an empty text. A result gives a more exact reason than the event."""
    because = _describe_reason(view, event, ": ")
    if because or not event.reason:
        return because
    return f": {event.reason}"


def _describe_sent_message(view: JobView, event: UserMessageSent) -> str:
    to = ""
    if event.step:
        to = f" to {event.step}"
    return f"message{to}: {shorten(view.texts.texts[event.text.digest], 200)}"


def _describe_taken_message(view: JobView, event: UserMessageTaken) -> str:
    issued = _index_issue_events(view)[event.handoff_id]
    return f"{format_name(issued)}: takes the message at turn {event.turn}"


def _describe_retry(_: JobView, event: RetryRequested) -> str:
    line = "retry of the steps that did not succeed"
    if event.from_step:
        line = f"retry from {event.from_step}"
    if event.continuation:
        line += f", for {event.continuation.parent.job_id}"
    return line


def _describe_delivery(event: EndTaskTried | WebhookTried, success: str) -> str:
    if event.delivered:
        return success
    return f"try {event.attempt} failed: {shorten(event.detail, 80)}"


def _describe_plan(view: JobView, event: PlanMade) -> str:
    steps = ", ".join(_iterate_names_with_specialists(event.steps))
    line = f"plan: {format_count(len(event.steps), 'step')}: {steps}"
    line += _describe_reason(view, event, "; ")
    bill = ""
    if view.state:
        bill = format_bill(build_bill(view.state))
    if bill:
        line += f"; {bill}"
    return line


def _describe_patch(view: JobView, event: PlanPatched) -> str:
    return f"replanner: {shorten(describe_change(build_change(event, view.texts)), 300)}"


def _describe_issued_handoff(view: JobView, event: HandoffIssued) -> str | None:
    if event.assigned_to in ROLES:
        return None
    lacks = ""
    if view.job and view.job.child_jobs_lack:
        lacks = f", with {view.job.child_jobs_lack}"
    child = ""
    if event.child:
        child = f", as {event.child.job_id}{lacks}"
    return f"{format_name(event)}: handed over{child}"


def _describe_review(view: JobView, event: Reviewed) -> str:
    return f"review, round {event.round}: {_format_verdict(view, event)}"


def _describe_abandoned_steps(_: JobView, event: StepsAbandoned) -> str:
    steps = [item.step for item in event.steps]
    return f"given up: {format_names(steps)}: {shorten(event.why, 120)}"


def _describe_retried_steps(_: JobView, event: StepsTriedAgain) -> str:
    return f"failed, and tried again: {', '.join(_iterate_retried_steps(event))}"


def _describe_gates(view: JobView, event: GatesChecked) -> str:
    outcome = "passed"
    if event.vetoes:
        outcome = f"{format_count(event.vetoes, 'objection')}{_describe_reason(view, event, ': ')}"
    if event.is_sent_back:
        outcome += ", sent back"
    return f"gates: {outcome}"


def _describe_synthesis(view: JobView, event: Synthesized) -> str:
    problem = ""
    if event.problem:
        problem = f" ({event.problem}{_describe_reason(view, event, ': ')})"
    return f"answer: {event.method.in_words}{problem}"


def _describe_needs(_: JobView, event: NeedsResolved) -> str:
    """Return the answered questions, the steps that wait for a helper, and the given up steps."""
    parts = [f"{step}: answered" for step in event.answered]
    specialists = {step.id: step.specialist for step in event.added}
    for step in event.changed:
        helper = step.helpers[-1]
        parts.append(f"{step.id}: waits for input from {helper} ({specialists[helper]})")
    for step_id in event.given_up:
        reason = ""
        if step_id in event.repeats:
            reason = ", because it asks the same question again"
        parts.append(f"{step_id}: given up{reason}")
    return "; ".join(parts)


def _iterate_retried_steps(event: StepsTriedAgain) -> Iterator[str]:
    """Yield the names of the steps. A step with another specialist names it: `left (writer)`."""
    for item in event.steps:
        if item.specialist:
            yield f"{item.step} ({item.specialist})"
        else:
            yield item.step


def _iterate_names_with_specialists(steps: Sequence[StepOutline]) -> Iterator[str]:
    """Yield the names of steps: `left (researcher)`, `page_0001 to page_1000 (reader)`."""
    for step in collapse_steps(steps, lambda step: step.id):
        if isinstance(step, StepCopies):
            specialists = dict.fromkeys(copy.specialist for copy in step.all)
            yield f"{step.name} ({', '.join(specialists)})"
        else:
            yield f"{step.id} ({step.specialist})"


def _describe_fact_check(view: JobView, event: FactsChecked) -> str:
    if event.problem:
        reason = ""
        why = view.texts.explain_missing_fact_check(event)
        if why:
            reason = f" ({shorten(why, 200)})"
        return f"facts: not checked: {event.problem}{reason}"
    objections = ""
    if event.wrong and event.result:
        objections = "; ".join(view.texts.get_objections(event.result))
    outcome = "passed"
    if objections:
        outcome = f"{format_count(event.wrong, 'objection')}: {shorten(objections, 200)}"
    if event.is_sent_back:
        outcome += ", sent back"
    return f"facts: {outcome}"


def _describe_approval(_: JobView, event: Approved) -> str:
    if event.by == "timeout":
        return "approved, without an answer in time"
    if event.plan:
        return "approved, with another plan"
    if event.arguments:
        return "approved, with other arguments"
    return "approved"


def _describe_approval_request(_: JobView, event: ApprovalAsked) -> str:
    if event.call:
        return f"{event.call.handoff_id} waits for approval of {event.call.tool}: {event.why}"
    return f"waits for {describe_awaited_answer(event.what)}: {event.why}"


def _describe_approval_reminder(_: JobView, event: ApprovalReminded) -> str:
    return f"still waits for an approval, reminder {event.number}"


def _describe_rejection(view: JobView, event: Rejected) -> str:
    line = "rejected"
    if event.own_plan:
        line += ", with another plan for the planner"
    if event.note:
        line += f": {shorten(view.texts.texts[event.note.digest], 200)}"
    return line


def _describe_finished_handoff(view: JobView, event: HandoffFinished) -> str:
    issued = _index_issue_events(view).get(event.handoff_id)
    name = format_name(issued) if issued else event.handoff_id
    usage = view.get_finished_usage(event)
    info = view.handoffs.get(event.handoff_id)
    parts = [
        event.status.value,
        format_count(usage.turns, "turn"),
        describe_tools(info),
        format_bounded_count(usage.tokens, "token", at_most=usage.is_upper_bound),
        describe_lost_claims(info.lost_claims if info else 0),
        describe_shared_run(event.shared),
    ]
    line = ", ".join(part for part in parts if part)
    return f"{name}: {line}{_describe_reason(view, event, ': ')}"


def _describe_conflicts(_: JobView, event: ConflictsFound) -> str | None:
    if event.conflicts:
        return f"contradictions: {format_count(len(event.conflicts), 'conflict')}"
    return None


def _describe_judgement(view: JobView, event: Judged) -> str:
    why = ""
    if event.problem:
        why = f" ({event.problem}{_describe_reason(view, event, ': ')})"
    return f"judge: {format_count(len(event.settled), 'conflict')} settled{why}"


def _describe_arbitration(_: JobView, event: Arbitrated) -> str:
    if event.problem:
        return f"judge: no decision between assessor and writer ({event.problem})"
    sides: list[str] = []
    for side, steps in (("writer", event.writer), ("assessor", event.assessor)):
        if steps:
            sides.append(f"{side} is right about {', '.join(steps)}")
    return f"judge: {'; '.join(sides) or 'no decision'}"


def _describe_reason(view: JobView, event: Event, before: str) -> str:
    """Return the reason that the result behind an event gives, or an empty text.

    Args:
        before: separator in front of the reason.
    """
    for ref in list_refs_with_texts(event):
        if why := view.texts.explain(ref):
            return f"{before}{shorten(why, 200)}"
    return ""


def _format_verdict(view: JobView, event: Reviewed) -> str:
    verdict = view.texts.get_verdict(event)
    if verdict is None:
        return f"none ({event.problem}{_describe_reason(view, event, ': ')})"
    if not verdict.revisions:
        return verdict.verdict.value
    revision_texts = "; ".join(
        f"{item.step}: {shorten(item.problem, 80)}" for item in verdict.revisions
    )
    return f"{verdict.verdict.value} {revision_texts}"


def _describe_conditions(_: JobView, event: ConditionsChecked) -> str:
    parts: list[str] = []
    for label, steps in (
        ("condition met", list(event.met)),
        ("skipped", [item.step for item in event.skipped]),
        ("condition not decided", [item.step for item in event.undecided]),
    ):
        if steps:
            parts.append(f"{label}: {format_names(steps)}")
    return "; ".join(parts)


LINES: dict[type[Event], Callable[[JobView, Any], str | None]] = {
    JobSubmitted: _describe_submission,
    Routed: _describe_route,
    Quoted: _describe_quote,
    JobEnded: _describe_end,
    CancelRequested: _describe_cancel_request,
    RetryRequested: _describe_retry,
    DecisionAsked: _describe_decision_request,
    ParentTold: _describe_report_to_parent,
    EndTaskTried: _describe_end_task,
    WebhookTried: _describe_webhook,
    UserMessageSent: _describe_sent_message,
    UserMessageTaken: _describe_taken_message,
    EventRefused: _describe_refused_event,
    PlanMade: _describe_plan,
    PlanPatched: _describe_patch,
    HandoffIssued: _describe_issued_handoff,
    HandoffFinished: _describe_finished_handoff,
    ConflictsFound: _describe_conflicts,
    Judged: _describe_judgement,
    Arbitrated: _describe_arbitration,
    Reviewed: _describe_review,
    NeedsResolved: _describe_needs,
    StepsAbandoned: _describe_abandoned_steps,
    ConditionsChecked: _describe_conditions,
    StepsTriedAgain: _describe_retried_steps,
    GatesChecked: _describe_gates,
    FactsChecked: _describe_fact_check,
    Synthesized: _describe_synthesis,
    ApprovalAsked: _describe_approval_request,
    ApprovalReminded: _describe_approval_reminder,
    Approved: _describe_approval,
    Rejected: _describe_rejection,
}
"""The function of each event that returns its line, or None if the event has no line."""
