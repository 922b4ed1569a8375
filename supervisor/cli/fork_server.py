"""What the Celery processes of an embedded run are forked from."""

from __future__ import annotations

from handoff_queue.shared.local.fork_server import Nursery, can_be

WARM = (
    "celery.bin.celery",
    "celery.apps.worker",
    "celery.concurrency.thread",
    "celery.worker.consumer",
    "kombu.transport.redis",
)
LATER = ("handoff_queue.shared.providers.anthropic.clients", "genai_prices", "re2")
"""What the rooms import when they need it: here that is before the fork, once for all."""
ROOMS = ("handoff_queue.supervisor.assembly", "handoff_queue.workers.assembly")
"""By name: the supervisor's code may not import the workers', no more than it does when it types `celery -A workers.app`."""


def nursery_of_celery() -> Nursery | None:
    """None where there is no forking: processes of their own do as well, and are up later."""
    return Nursery((*WARM, *LATER, *ROOMS)) if can_be() else None
