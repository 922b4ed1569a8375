"""Processes of a broker, from their announcements in the store or from Celery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from handoff_queue.shared.settings.settings import OFFLINE_MODEL
from handoff_queue.shared.types.errors import StoreUnavailable, UserError
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE

if TYPE_CHECKING:
    from handoff_queue.shared.settings.settings import Settings
    from handoff_queue.shared.store.presence import ServedSpecialist
    from handoff_queue.supervisor.client.client import Client

COUNT_FOR_S = 1.0
"""Seconds that the command waits after the last reply of a Celery node. A node replies within
some ms, but the number of nodes is unknown.
"""
START_WORKERS = "start some: `handoff worker --all`, or the whole system: `handoff up`"
NO_WORKERS = f"no worker serves any specialist on this broker: {START_WORKERS}"
START_A_SUPERVISOR = "start one: `handoff supervisor`, or the whole system: `handoff up`"


def queues_by_node(settings: Settings) -> dict[str, set[str]]:
    """Return the queues of each live Celery node."""
    from handoff_queue.shared.broker.celery_app import make_app
    from handoff_queue.shared.settings.settings import redis_url_of

    app = make_app("cli", redis_url_of(settings), settings, (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE))
    queues_of: dict[str, set[str]] = {}

    def record(reply: dict[str, Any]) -> None:
        for node, queues in reply.items():
            if isinstance(queues, list):
                queues_of[node] = {queue["name"] for queue in queues}
            else:
                queues_of[node] = set()

    app.control.broadcast("active_queues", reply=True, timeout=COUNT_FOR_S, callback=record)
    return queues_of


def served_models(served: Mapping[str, ServedSpecialist]) -> set[str]:
    """Return the names of the models that the workers of these specialists use."""
    models: set[str] = set()
    for specialist in served.values():
        models.update(specialist.models)
    return models


def require_keys(jobs: Client) -> None:
    """Check that the processes of the broker will not refuse the messages of this command.

    Raises:
        UserError: they check signatures, and this shell has no key.
    """
    if jobs.store.presence.needs_keys():
        raise UserError(
            "the processes of this Redis refuse messages without a signature, and this shell has"
            " no key: set HANDOFF_KEYS and HANDOFF_SIGNING_KEY (`handoff up` prints both)"
        )


def require_processes(jobs: Client, model: str | None = None) -> None:
    """Check that the broker has a supervisor and a worker, before a command waits for an
    answer.

    Raises:
        UserError: no worker, no supervisor, or no worker has the model. The message names the
            command that starts it. Or see `require_keys`.
        StoreUnavailable: no process is announced, because Redis takes no writes.
    """
    require_keys(jobs)
    served = jobs.store.presence.served()
    has_supervisor = SUPERVISOR_QUEUE in jobs.store.presence.presence().queues
    if not served or not has_supervisor:
        refusal = jobs.store.health.refusal()
        if refusal:
            raise StoreUnavailable(refusal)
    if not served:
        raise UserError(NO_WORKERS)
    if model not in (None, OFFLINE_MODEL) and served_models(served) == {OFFLINE_MODEL}:
        raise UserError(
            f"--model {model} is not available: the workers of this broker have only the offline"
            " model; set ANTHROPIC_API_KEY there"
        )
    if not has_supervisor:
        raise UserError(f"no supervisor takes jobs from this broker: {START_A_SUPERVISOR}")
