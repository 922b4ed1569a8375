"""A supervisor that gets a signal during its build stops after the build."""

from __future__ import annotations

import threading

import pytest

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.providers.anthropic.client_factory import create_model
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.supervisor.assembly import QUEUES, _LazySupervisor


@pytest.mark.slow
def test_a_signal_during_the_build_of_the_supervisor_takes_effect_afterwards(
    redis_url: str,
) -> None:
    """The handler runs on the building thread, which holds the lock."""
    settings = Settings(lease_s=3_600, redis_url=redis_url)
    supervisor = _LazySupervisor(
        make_app("supervisor", redis_url, settings, QUEUES), settings, create_model
    )

    def interrupted_while_building() -> None:
        with supervisor._lock:
            supervisor.handle_stop()

    building = threading.Thread(target=interrupted_while_building, daemon=True)
    building.start()
    building.join(10)

    assert not building.is_alive()
    assert supervisor().process.drain.has_begun
    supervisor().process.leases.stop()
