"""A job as lines: one for each event that a reader of a log wants to know of. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shared.ledger.jobs import HandoffStanding
from shared.wire.doing import is_news, waiting_in
from shared.wire.events import (
    ApprovalAsked,
    ApprovalEvent,
    ApprovalReminded,
    Approved,
    CancelRequested,
    ConflictsFound,
    DecisionAsked,
    Event,
    GatesChecked,
    HandoffFinished,
    HandoffIssued,
    JobEnded,
    JobEvent,
    JobSubmitted,
    Judged,
    NeedsResolved,
    PlanMade,
    Recorded,
    Rejected,
    RetryRequested,
    Reviewed,
    Routed,
    StepEvent,
    StepsAbandoned,
    StepsTriedAgain,
    Synthesised,
    WebhookTried,
)
from shared.wire.names import ROLES
from supervisor.cli.terminal import figures, short
from supervisor.cli.view import Moment, View
from supervisor.lifecycle.words import said_by


def lines_of(moment: Moment) -> Iterator[str]:
    """What is new, in words."""
    for recorded in moment.events:
        if line := _line_of(moment.view, recorded):
            yield line


def claimed(before: View, after: View) -> Iterator[str]:
    """Who has begun to work: no event says so, the handoffs' standings do."""
    names = {event.handoff_id: event for event in after.issued}
    for handoff_id, standing in after.standings.items():
        earlier = before.standings.get(handoff_id)
        if standing.claims and (earlier is None or earlier.claims < standing.claims) and handoff_id not in after.finished:
            again = f" (claim {standing.claims})" if standing.claims > 1 else ""
            yield f"{_who(names[handoff_id])}: works{again}, in {standing.worker}"


def held_up(before: View, after: View) -> Iterator[str]:
    """Who has begun to wait in the middle of its work, for what and for how long: for the provider's rate limits, say."""
    names = {event.handoff_id: event for event in after.issued}
    for handoff_id, standing in after.standings.items():
        doing = _doing(standing)
        if waiting_in(doing) and is_news(doing, _doing(before.standings.get(handoff_id))):
            yield f"{_who(names[handoff_id])}: {doing}"


def _doing(standing: HandoffStanding | None) -> str:
    """Right now; the hash of who does not run has what it said last."""
    return standing.doing if standing is not None and standing.state == "running" else ""


def missed(before: View, after: View) -> Iterator[str]:
    """Who is newly found missing."""
    yield from (str(one) for one in after.missing if one not in before.missing)


def no_longer_missed(before: View, after: View) -> Iterator[str]:
    """Whom the job waits for no more."""
    still = {one.whom for one in after.missing}
    yield from (f"no longer waits for {one.whom}" for one in before.missing if one.whom not in still)


def _line_of(view: View, recorded: Recorded) -> str | None:
    event = recorded.event
    if isinstance(event, ApprovalEvent):
        return _approval(view, event)
    return _of_job(view, event) if isinstance(event, JobEvent) else _of_steps(view, event)


def _of_job(view: View, event: JobEvent) -> str:  # noqa: PLR0911 (one case an event)
    match event:
        case JobSubmitted():
            documents = f" with {figures(event.document_count, 'document')}" if event.document_count else ""
            return f"{view.job_id}: submitted{documents}"
        case Routed():
            who = event.specialist or "a team"
            return f"router: {who}" + (f" ({event.problem})" if event.problem else "")
        case JobEnded():
            return f"{view.job_id}: {event.status.value}" + (_because(view, event, ": ") or (f": {event.reason}" if event.reason else ""))
        case CancelRequested():
            return "cancel requested"
        case RetryRequested():
            return f"again, from {event.from_step}" if event.from_step else "again, what did not succeed"
        case DecisionAsked():
            return f"waits for a decision: {event.why}"
        case WebhookTried():
            return f"webhook: {'delivered' if event.delivered else f'try {event.attempt} failed: {short(event.detail, 80)}'}"


def _of_steps(view: View, event: StepEvent) -> str | None:  # noqa: PLR0911 (one case an event)
    match event:
        case PlanMade():
            steps = ", ".join(f"{step.id} ({step.specialist})" for step in event.steps)
            return f"plan: {figures(len(event.steps), 'step')}: {steps}" + _because(view, event, "; ")
        case HandoffIssued():
            return f"{_who(event)}: handed over" if event.assigned_to not in ROLES else None
        case HandoffFinished():
            return _finished(view, event)
        case ConflictsFound() | Judged():
            return _contradictions(view, event)
        case Reviewed():
            return f"review, round {event.round}: {_verdict(view, event)}"
        case NeedsResolved():
            again = dict.fromkeys(event.repeats, ", for it asks again for what was answered")
            given_up = [f"{step}: given up{again.get(step, '')}" for step in event.given_up]
            return "; ".join([*(f"{step}: answered" for step in event.answered), *given_up])
        case StepsAbandoned():
            return f"given up: {', '.join(item.step for item in event.steps)}: {short(event.why, 120)}"
        case StepsTriedAgain():
            tries = (f"{item.step} ({item.specialist})" if item.specialist else item.step for item in event.steps)
            return f"failed, and tried again: {', '.join(tries)}"
        case GatesChecked():
            outcome = f"{figures(event.vetoes, 'objection')}{_because(view, event, ': ')}" if event.vetoes else "passed"
            return f"gates: {outcome}" + (", sent back" if event.is_sent_back else "")
        case Synthesised():
            problem = f" ({event.problem}{_because(view, event, ': ')})" if event.problem else ""
            return f"answer: {event.method.value}{problem}"


def _approval(view: View, event: ApprovalEvent) -> str:
    match event:
        case ApprovalAsked():
            return f"waits for an approval of the {event.what}: {event.why}"
        case ApprovalReminded():
            return f"still waits for an approval, reminder {event.number}"
        case Approved():
            return "approved" + (", for nobody has answered" if event.by == "timeout" else ", with another plan" if event.plan else "")
        case Rejected():
            return "rejected" + (f": {short(view.words.texts[event.note.digest], 200)}" if event.note else "")


def _finished(view: View, event: HandoffFinished) -> str:
    issued = next((one for one in view.issued if one.handoff_id == event.handoff_id), None)
    who = _who(issued) if issued else event.handoff_id
    turns, tokens, at_most = view.spent(event)
    took = f"{figures(turns, 'turn')}, {figures(tokens, 'token', at_most=at_most)}"
    return f"{who}: {event.status.value}, {took}{_because(view, event, ': ')}"


def _contradictions(view: View, event: ConflictsFound | Judged) -> str | None:
    if isinstance(event, ConflictsFound):
        return f"contradictions: {figures(len(event.conflicts), 'conflict')}" if event.conflicts else None
    why = f" ({event.problem}{_because(view, event, ': ')})" if event.problem else ""
    return f"judge: {figures(len(event.settled), 'conflict')} settled{why}"


def _because(view: View, event: Event, before: str) -> str:
    """What the result behind an event says, if there is anything to say."""
    whys = filter(None, map(view.words.why, said_by(event)))
    return next((f"{before}{short(why, 200)}" for why in whys), "")


def _who(event: HandoffIssued) -> str:
    name = event.assigned_to if event.assigned_to in ROLES else f"{event.step_id} ({event.assigned_to})"
    return name if event.attempt == 1 else f"{name} {event.attempt}"


def _verdict(view: View, event: Reviewed) -> str:
    verdict = view.words.verdict(event)
    if verdict is None:
        return f"none ({event.problem}{_because(view, event, ': ')})"
    named = "; ".join(f"{item.step}: {short(item.problem, 80)}" for item in verdict.revisions)
    return verdict.verdict.value + (f" {named}" if named else "")
