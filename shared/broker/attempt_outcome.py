"""Outcomes of an attempt at a handoff, the exceptions that end its Celery task, and facts about its
result for the journal and the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from celery.exceptions import Ignore

from handoff_queue.shared.store.claim import ClaimVerdict, HandoffClaim
from handoff_queue.shared.types.errors import (
    ApprovalAwaited,
    Cancelled,
    Deferred,
    Draining,
    Interrupted,
    Paused,
)
from handoff_queue.shared.types.events import HandoffFinished, RecordedEvent
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult, make_ref
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.step_events import (
    MAX_PASSAGES,
    MAX_RESTATED,
    Passage,
    compute_passage,
)


class AttemptEnd(StrEnum):
    """End of an attempt, for Celery."""

    FINISHED = "finished"
    """The result is in the journal."""
    UNWANTED = "unwanted"
    """No job needs a result: the handoff was cancelled, dropped or deleted, or it has a result."""
    ELSEWHERE = "elsewhere"
    """Another delivery of the handoff reports its end: another claim runs the handoff, or the
    sweeper publishes the handoff again.
    """
    PAUSED = "paused"
    """The agent is paused; the handoff is published again when the agent is unpaused."""
    DEFERRED = "deferred"
    """The handoff waits for the rate limits of its provider, or for an equal handoff that runs. It
    is published again later.
    """
    ASKED = "asked"
    """The handoff waits for a person's approval of a tool call. The answer publishes it again."""
    HANDED_BACK = "handed_back"
    """This process cannot run the handoff now: the message goes back to its queue."""


OUTCOME_OF_REFUSAL = {
    ClaimVerdict.BUSY: AttemptEnd.ELSEWHERE,
    ClaimVerdict.DEFERRED: AttemptEnd.ELSEWHERE,
    ClaimVerdict.PAUSED: AttemptEnd.PAUSED,
    ClaimVerdict.FOLLOWING: AttemptEnd.DEFERRED,
}
"""Outcome of a refused claim. Any other refusal means that no job needs the result."""


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """Outcome of an attempt."""

    end: AttemptEnd
    why: str = ""
    result: HandoffResult | None = None
    parts_left: int = -1
    """Open handoffs of the chord; -1 without a chord."""
    wakes: bool = False
    """True if the supervisor is woken before the chord is done."""
    recorded: tuple[RecordedEvent, ...] = ()
    """New events of the journal."""


def handle_interrupt(claim: HandoffClaim, reason: Interrupted) -> AttemptOutcome:
    """Return the outcome of a claim that ends without a result. A drained claim is released
    here, and a deferred claim is deferred.
    """
    match reason:
        case Draining():
            claim.release()
            return AttemptOutcome(AttemptEnd.HANDED_BACK, "its worker shuts down")
        case Deferred() if claim.defer(reason.seconds, reason.why):
            return AttemptOutcome(AttemptEnd.DEFERRED, str(reason))
        case ApprovalAwaited():
            return AttemptOutcome(AttemptEnd.ASKED, str(reason))
        case Paused():
            return AttemptOutcome(AttemptEnd.PAUSED, str(reason))
        case Cancelled():
            return AttemptOutcome(AttemptEnd.UNWANTED, str(reason))
        case _:
            return AttemptOutcome(AttemptEnd.ELSEWHERE, str(reason))


def collect_figures(
    claim: HandoffClaim, handoff: AgentHandoff, result: HandoffResult, ended_at: float
) -> dict[str, str | int | float | None]:
    """Return the figures of a result for the log, without any text of the model.

    Args:
        ended_at: Unix seconds.
    """
    figures: dict[str, str | int | float | None] = {
        "specialist": handoff.assigned_to,
        "status": result.status.value,
    }
    if result.failure:
        figures["why"] = result.failure
    return figures | {
        "stop_reason": result.stop_reason.value,
        "seconds": round(ended_at - (claim.started_at or ended_at), 3),
        "turns": result.turns,
        "input_tokens": result.usage.input_tokens,
        "output_tokens": result.usage.output_tokens,
        "cost_usd": result.usage.cost_usd,
    }


def list_passages(result: HandoffResult) -> tuple[Passage, ...]:
    """Return the places that the step's own claims cite, each once. The claims of other steps are
    left out: they say the same wherever they are used.
    """
    passages: dict[Passage, None] = {}
    for claim in result.claims:
        if not claim.id.startswith(f"{result.step_id}."):
            continue
        for source in claim.sources:
            passages[compute_passage(source)] = None
    return tuple(passages)[:MAX_PASSAGES]


def list_restated_steps(result: HandoffResult) -> tuple[StepId, ...] | None:
    """Return the other steps whose claims a result restates. None: it has no claims, or they are
    too many.
    """
    steps: dict[StepId, None] = {}
    for claim in result.claims:
        step, dot, _ = claim.id.rpartition(".")
        if dot and step != result.step_id:
            steps[StepId(step)] = None
    if not result.claims or len(steps) > MAX_RESTATED:
        return None
    return tuple(steps)


def build_handoff_finished_event(
    result: HandoffResult, worker: str, text: str | None = None
) -> HandoffFinished:
    """Return the journal's event of a result, without any text of the model.

    Args:
        text: JSON of the result, if the caller has it already.
    """
    if text is None:
        text = result.to_json()
    comparable = [claim for claim in result.claims if claim.is_comparable]
    return HandoffFinished(
        handoff_id=result.handoff_id,
        status=result.status,
        result=make_ref(text),
        usage=result.usage,
        turns=result.turns,
        stop_reason=result.stop_reason,
        confidence=result.confidence,
        claims=len(result.claims),
        comparable_claims=len(comparable),
        passages=list_passages(result) or None,
        restated=list_restated_steps(result),
        model=result.model,
        replies_by_model=result.replies_by_model,
        worker=worker,
        to_finish_microusd=result.to_finish_microusd,
        acted=result.acted,
        origins=result.origins,
        shared=result.shared,
    )


class EventBeforeEnd(Ignore):  # type: ignore[misc]
    """The task ends without a return. Its request first sends this event about the task to Flower.

    The request sends the event, and not the task: an event of the task would overtake
    `task-started`, which may still wait in the worker's buffer.
    """

    event = ""

    def fields(self) -> dict[str, Any]:
        return {"exception": str(self), "traceback": ""}


class TaskWaits(EventBeforeEnd):
    """The attempt ends, and the handoff waits. The exception's text is the reason."""

    event = "task-retried"


class TaskFails(EventBeforeEnd):
    """The attempt has failed, and no task tries it again. The exception's text is the reason."""

    event = "task-failed"


class TaskUnwanted(EventBeforeEnd):
    """No job needs the result of this delivery."""

    event = "task-revoked"

    def fields(self) -> dict[str, Any]:
        return {"terminated": False, "signum": None, "expired": False}
