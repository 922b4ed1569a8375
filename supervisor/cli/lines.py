"""A job as lines: one for each event that a reader of a log wants to know of. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shared.wire.events import (
    CancelRequested,
    HandoffFinished,
    HandoffIssued,
    JobEnded,
    JobSubmitted,
    NeedsResolved,
    PlanMade,
    Recorded,
    RetryRequested,
    Reviewed,
    StepsAbandoned,
    Synthesised,
    WebhookTried,
)
from shared.wire.handoff import ResultStatus
from shared.wire.names import ROLES
from supervisor.cli.terminal import figures, short
from supervisor.cli.view import Moment, View


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


def waits(before: View, after: View) -> Iterator[str]:
    """Who is newly found missing, and who no longer is; nothing for a job that has ended."""
    yield from (str(one) for one in after.missing if one not in before.missing)
    still = {one.whom for one in after.missing}
    yield from (f"no longer waits for {one.whom}" for one in before.missing if one.whom not in still and not after.ended)


def _line_of(view: View, recorded: Recorded) -> str | None:  # noqa: PLR0911 (one case an event)
    match recorded.event:
        case JobSubmitted() as event:
            documents = f" with {figures(event.document_count, 'document')}" if event.document_count else ""
            return f"{view.job_id}: submitted{documents}"
        case PlanMade() as event:
            steps = ", ".join(f"{step.id} ({step.specialist})" for step in event.steps)
            return f"plan: {figures(len(event.steps), 'step')}: {steps}" + (f"; {event.degraded}" if event.degraded else "")
        case HandoffIssued() as event:
            return f"{_who(event)}: handed over" if event.assigned_to not in ROLES else None
        case HandoffFinished() as event:
            return _finished(view, event)
        case Reviewed() as event:
            return f"review, round {event.round}: {_verdict(event)}"
        case NeedsResolved() as event:
            return "; ".join(f"{one.step}: {'answered' if one.answer else 'given up'}" for one in event.resolutions)
        case StepsAbandoned() as event:
            return f"given up: {', '.join(item.step for item in event.steps)}: {short(event.why, 120)}"
        case Synthesised() as event:
            return f"answer: {event.method.value}" + (f" ({short(event.problem, 120)})" if event.problem else "")
        case JobEnded() as event:
            return f"{view.job_id}: {event.status.value}" + (f": {short(event.reason, 200)}" if event.reason else "")
        case CancelRequested():
            return "cancel requested"
        case RetryRequested() as event:
            return f"again, from {event.from_step}" if event.from_step else "again, what did not succeed"
        case WebhookTried() as event:
            return f"webhook: {'delivered' if event.delivered else f'try {event.attempt} failed: {short(event.detail, 80)}'}"


def _finished(view: View, event: HandoffFinished) -> str:
    issued = next((one for one in view.issued if one.handoff_id == event.handoff_id), None)
    who = _who(issued) if issued else event.handoff_id
    trouble = event.needs if event.status is ResultStatus.NEEDS_INPUT else event.error
    said = f": {short(trouble, 120)}" if trouble and event.status is not ResultStatus.OK else ""
    turns, tokens, at_most = view.spent(event)
    return f"{who}: {event.status.value}, {figures(turns, 'turn')}, {figures(tokens, 'token', at_most=at_most)}{said}"


def _who(event: HandoffIssued) -> str:
    name = event.assigned_to if event.assigned_to in ROLES else f"{event.step_id} ({event.assigned_to})"
    return name if event.attempt == 1 else f"{name} {event.attempt}"


def _verdict(event: Reviewed) -> str:
    if event.verdict is None:
        return f"none ({short(event.problem or 'no reason given', 120)})"
    named = "; ".join(f"{item.step}: {short(item.problem, 80)}" for item in event.verdict.revisions)
    return event.verdict.verdict.value + (f" {named}" if named else "")
