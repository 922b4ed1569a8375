"""Queues of the live Celery nodes, as the nodes report them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE

if TYPE_CHECKING:
    from handoff_queue.shared.settings.settings import Settings

COUNT_FOR_S = 1.0
"""Seconds that the command waits after the last reply of a Celery node. A node replies within
some ms, but the number of nodes is unknown.
"""


def queues_by_node(settings: Settings) -> dict[str, set[str]]:
    """Return the queues of each live Celery node."""
    from kombu.exceptions import SerializationError

    from handoff_queue.shared.broker.celery_app import make_app
    from handoff_queue.shared.settings.settings import redis_url_of

    app = make_app("cli", redis_url_of(settings), settings, (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE))
    queues_of: dict[str, set[str]] = {}

    def record(reply: object) -> None:
        queues_of.update(queues_in(reply))

    # A worker that was taken over may send a reply that kombu cannot read.
    with suppress(TypeError, ValueError, RecursionError, SerializationError):
        app.control.broadcast("active_queues", reply=True, timeout=COUNT_FOR_S, callback=record)
    return queues_of


def queues_in(reply: object) -> dict[str, set[str]]:
    """Return the queues of the nodes in a reply. Every program that reaches Redis can send one."""
    queues_of: dict[str, set[str]] = {}
    for node, queues in reply.items() if isinstance(reply, Mapping) else ():
        names = queues_of.setdefault(str(node), set())
        for queue in queues if isinstance(queues, list) else ():
            if isinstance(queue, Mapping) and isinstance(queue.get("name"), str):
                names.add(queue["name"])
    return queues_of
