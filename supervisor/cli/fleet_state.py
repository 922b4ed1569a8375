"""Who is there on a broker: by what each process announces in the store, or, to count them,
by Celery's own question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handoff_queue.shared.settings.settings import OFFLINE_MODEL
from handoff_queue.shared.types.errors import StoreUnavailable, UserError
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE

if TYPE_CHECKING:
    from handoff_queue.shared.settings.settings import Settings
    from handoff_queue.supervisor.client.client import Client

COUNT_FOR_S = 1.0
"""How long nodes get to make themselves known: all of them are waited for, not the first. A
healthy one takes some milliseconds.
"""
START_WORKERS = "start some: `handoff worker --all`, or the whole system: `handoff up`"
NO_WORKERS = f"no worker serves any specialist on this broker: {START_WORKERS}"
START_A_SUPERVISOR = "start one: `handoff supervisor`, or the whole system: `handoff up`"


def queues_by_node(settings: Settings) -> dict[str, set[str]]:
    """What each live Celery node consumes."""
    from handoff_queue.shared.broker.celery_app import make_app
    from handoff_queue.shared.settings.settings import redis_url_of

    app = make_app("cli", redis_url_of(settings), settings, (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE))
    found: dict[str, set[str]] = {}

    def heard(reply: dict[str, Any]) -> None:
        for node, queues in reply.items():
            found[node] = {queue["name"] for queue in queues} if isinstance(queues, list) else set()

    app.control.broadcast("active_queues", reply=True, timeout=COUNT_FOR_S, callback=heard)
    return found


def require_somebody(jobs: Client, model: str | None = None) -> None:
    """Before a command waits for an answer.

    Raises:
        UserError: no worker serves any specialist, no supervisor takes jobs, or nobody has the
        model; says what to start.
        StoreUnavailable: nobody is announced, because Redis takes no writes.
    """
    served, has_supervisor = (
        jobs.store.presence.served(),
        SUPERVISOR_QUEUE in jobs.store.presence.presence().queues,
    )
    if not (served and has_supervisor) and (why := jobs.store.health.refusal()):
        raise StoreUnavailable(why)
    if not served:
        raise UserError(NO_WORKERS)
    models = {name for one in served.values() for name in one.models}
    if model not in (None, OFFLINE_MODEL) and models == {OFFLINE_MODEL}:
        raise UserError(
            f"--model {model} cannot be had: this broker's workers have only the offline model: set ANTHROPIC_API_KEY for them"
        )
    if not has_supervisor:
        raise UserError(f"no supervisor takes jobs from this broker: {START_A_SUPERVISOR}")
