"""Who is there on a broker: workers say so in the ledger, supervisors answer Celery's own question."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from shared.wire.errors import UserError
from shared.wire.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE

if TYPE_CHECKING:
    from shared.config import Settings
    from supervisor.client import Client

ANSWER_WITHIN_S = 2.0
"""How long Celery's workers get to say what they consume; a healthy one takes some milliseconds."""
START_WORKERS = "start some: `handoff worker --all`, or the whole system: `handoff up`"
START_A_SUPERVISOR = "start one: `handoff supervisor`, or the whole system: `handoff up`"


class _Enough(Exception):
    """The answer that was waited for has come: a way out of Celery's collecting, which knows no other."""


def queues_by_node(settings: Settings, wanted: frozenset[str] = frozenset(), within_s: float = ANSWER_WITHIN_S) -> dict[str, set[str]]:
    """What each live Celery node consumes. With `wanted`, returns as soon as all of these queues have somebody."""
    from shared.celery_app import make_app
    from shared.config import redis_url_of

    app = make_app("cli", redis_url_of(settings), settings, (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE))
    found: dict[str, set[str]] = {}

    def heard(reply: dict[str, Any]) -> None:
        for node, queues in reply.items():
            found[node] = {queue["name"] for queue in queues} if isinstance(queues, list) else set()
        if wanted and wanted <= set().union(*found.values()):
            raise _Enough

    with suppress(_Enough):
        app.control.broadcast("active_queues", reply=True, timeout=within_s, callback=heard)
    return found


def require_somebody(jobs: Client, settings: Settings, model: str | None = None) -> None:
    """Before a command waits for an answer.

    Raises:
        UserError: no worker serves any specialist, no supervisor takes jobs, or nobody has the model; says what to start.
    """
    served = jobs.ledger.roles.served()
    if not served:
        raise UserError(f"no worker serves any specialist on this broker: {START_WORKERS}")
    models = {name for one in served.values() for name in one.models}
    if model is not None and (model == "offline") != ("offline" in models) and len(models) == 1:
        has = "only the offline model: set ANTHROPIC_API_KEY for them" if "offline" in models else "a real model, not the offline one"
        raise UserError(f"--model {model} cannot be had: the workers of this broker have {has}")
    wanted = frozenset({SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE})
    consumed: set[str] = set().union(*queues_by_node(settings, wanted).values())
    if missing := sorted(wanted - consumed):
        raise UserError(f"no supervisor takes jobs from this broker (nobody consumes {', '.join(missing)}): {START_A_SUPERVISOR}")
