"""A fork server for the Celery processes of one machine: supervisors, workers and Flower."""

from __future__ import annotations

from collections.abc import Sequence

from handoff_queue.shared.local.fork_server import ForkServer, is_supported

CELERY_MODULES = (
    "billiard.pool",
    "celery.app.control",
    "celery.app.events",
    "celery.apps.worker",
    "celery.bin.celery",
    "celery.concurrency.thread",
    "celery.worker.autoscale",
    "celery.worker.components",
    "celery.worker.consumer",
    "celery.worker.consumer.delayed_delivery",
    "celery.worker.strategy",
    "kombu.transport.redis",
)
LATER = (
    "handoff_queue.shared.broker.consumer",
    "handoff_queue.shared.broker.isolated_worker",
    "handoff_queue.shared.providers.anthropic.client_factory",
    "genai_prices",
    "re2",
    "snowballstemmer",
)
"""Modules that the rooms import on demand. Here they are imported once, before the fork."""
OFFLINE_MODEL = "handoff_queue.shared.providers.offline.transport"
REAL_MODEL = "handoff_queue.shared.providers.anthropic.client_factory:load_certificates"
SIGNATURES = "handoff_queue.shared.trust.key_files:load_cryptography"
ROOMS = (
    "handoff_queue.shared.broker.celery_app:prepare_forks",
    "handoff_queue.supervisor.assembly:prepare_forks",
    "handoff_queue.workers.assembly:prepare_forks",
)
"""Names only: the supervisor must not import the code of the workers."""


def celery_fork_server(
    modules: Sequence[str] = (), *, is_offline: bool = False
) -> ForkServer | None:
    """Return a fork server that has imported Celery and our rooms.

    Return None if the system cannot fork on demand. Separate processes then start more slowly.

    Args:
        modules: further modules to import.
        is_offline: True if most processes will use the offline model.
    """
    if not is_supported():
        return None
    model = OFFLINE_MODEL if is_offline else REAL_MODEL
    return ForkServer((*CELERY_MODULES, *LATER, *ROOMS, SIGNATURES, model, *modules))
