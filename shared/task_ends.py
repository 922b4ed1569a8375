"""How a Celery task of a handoff may end, and no other way.

Finished: return a short status. A duplicate, a cancel, a lost lease, an unreadable message: `Ignore` (a plain return would count a part
of the chord that is not done; `Reject` would fail the chord). Shutting down: `Reject(requeue=True)`. Never an exception of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
from celery import signals
from celery.exceptions import Ignore, Reject

from shared.attempt import Ended, Ending
from shared.ledger.ledger import Ledger
from shared.logs import logged_as
from shared.wire.errors import HandoffError, MalformedMessage
from shared.wire.handoff import AgentHandoff

log = structlog.get_logger()


def run_task(task: Any, ledger: Ledger, role: str, text: object, attempt: Callable[[AgentHandoff, str], Ended]) -> str:
    """The body of every `specialist.<role>` task. `text`: the message's one argument.

    Raises:
        Ignore, Reject: Celery's own words for an end that is not a result.
    """
    handoff = _taken(task, ledger, role, text)
    assert isinstance(text, str)
    with logged_as(job_id=handoff.job_id, handoff_id=handoff.handoff_id):
        try:
            ended = attempt(handoff, text)
        except HandoffError as error:  # the ledger is away: the lease runs out, and the sweeper has it run again
            log.warning("handoff left to the sweeper", why=str(error))
            ended = Ended(Ending.NOT_OURS, str(error))
        except Exception as error:
            log.exception("defect around a handoff")
            ended = Ended(Ending.NOT_OURS, f"a defect: {type(error).__name__}")
        return _end(task, ended)


def _taken(task: Any, ledger: Ledger, role: str, text: object) -> AgentHandoff:
    try:
        if not isinstance(text, str):
            raise MalformedMessage("a handoff is one JSON text")
        handoff = AgentHandoff.from_json(text)
        if handoff.assigned_to != role:
            raise MalformedMessage(f"a handoff for {handoff.assigned_to} came to {role}")
        return handoff
    except MalformedMessage as error:
        reason = str(error)
        log.warning("dead letter", role=role, why=reason)
        ledger.dead.add(role, reason, text if isinstance(text, str) else repr(text)[:10_000])
        task.send_event("task-failed", exception=f"dead letter: {reason}", traceback="")
        raise Ignore(reason) from error


def _end(task: Any, ended: Ended) -> str:
    """Flower must not show as running for ever what ends without a result."""
    match ended.how:
        case Ending.FINISHED:
            return ended.why
        case Ending.HANDED_BACK:
            log.info("handed back", why=ended.why)
            task.send_event("task-retried", exception="handed back: its worker shuts down", traceback="")
            raise Reject(ended.why, requeue=True)
        case Ending.NOT_OURS:
            log.info("handoff not taken", why=ended.why)
            if ended.why == "cancelled" or "was cancelled" in ended.why:
                task.send_event("task-revoked", terminated=False, signum=None, expired=False)
            raise Ignore(ended.why)


def keep_unknown_tasks(ledger: Callable[[], Ledger]) -> None:
    """Have messages for tasks that this process does not have kept as dead letters: Celery only logs and drops them."""

    def keep(name: str | None = None, message: Any = None, **_: Any) -> None:
        queue = (getattr(message, "delivery_info", None) or {}).get("routing_key", "?")
        body = getattr(message, "body", b"")
        text = body.decode(errors="replace") if isinstance(body, bytes) else str(body)
        ledger().dead.add(str(queue), f"there is no task {name} in this version", text)

    signals.task_unknown.connect(keep, weak=False, dispatch_uid="task_ends.keep_unknown_tasks")
