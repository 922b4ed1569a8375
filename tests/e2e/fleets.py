"""Supervisors and three workers with one slot each, in separate processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.supervisor.client import client
from handoff_queue.testing import MessagesServer
from tests.e2e.fleet import SHORT_LEASES, Fleet, Script
from tests.running_system import ALL_SPECIALISTS, SUPERVISOR, model_environment, running_system

CANARY = "sk-ant-canary-4d1c9e77aa"
WEBHOOK_SECRET = "whsec-canary-51f0b2"


@contextmanager
def start_fleet(folder: Path) -> Iterator[Fleet]:
    """Start the fleet, and yield it when it is ready."""
    script = Script()
    with MessagesServer(script) as server:
        settings = {
            "HANDOFF_RATE_WAIT_S": "2",
            "HANDOFF_WEBHOOK_SECRET": WEBHOOK_SECRET,
            "HANDOFF_WEBHOOK_PRIVATE_HOSTS": "127.0.0.1",
            "ANTHROPIC_API_KEY": CANARY,
        }
        with running_system(
            folder, (), model_environment(server, **SHORT_LEASES, **settings)
        ) as system:
            workers = [(name, SUPERVISOR, 4) for name in ("s1", "s2")] + [
                (name, ALL_SPECIALISTS, 1) for name in ("w1", "w2", "w3")
            ]
            for name, (_, app, queues), slots in workers:
                spec = system.celery_worker(name, app, queues, slots)
                system.processes.start(replace(spec, is_killed_on_purpose=True))
            system.processes.wait_until_ready()
            jobs = client.connect(system.redis_url, Settings(offline=True))
            yield Fleet(system, server, script, jobs)
            jobs.store.connection.close()
