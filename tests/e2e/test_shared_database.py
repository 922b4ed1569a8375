"""Another Celery application on our Redis database: its control messages do not reach our processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from celery import Celery

from shared.celery_app import make_app
from shared.config import Settings
from shared.local.processes import ChildSpec, Processes
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
APPS = {"supervisor.app": "supervisor", "workers.app": "researcher"}


def start_fleet(processes: Processes, url: str, folder: Path, name: str = "ours") -> None:
    """Start a supervisor and a worker with the queue `researcher`."""
    for app, queue in APPS.items():
        processes.start(
            ChildSpec(
                f"{name}-{queue}",
                [
                    *(sys.executable, "-m", "celery", "-A", app, "worker"),
                    *("-Q", queue, "-n", f"{name}-{queue}@h"),
                ],
                {
                    "HANDOFF_REDIS_URL": url,
                    "HANDOFF_OFFLINE": "true",
                    "HANDOFF_CACHE_DIR": str(folder / "cache"),
                    "PYTHONPATH": str(ROOT),
                },
            )
        )


@contextmanager
def app_of(url: str) -> Iterator[Celery]:
    """An app of ours that only asks."""
    app = make_app("test", url, Settings(), ["researcher"])
    try:
        yield app
    finally:
        app.close()


def nodes_of(app: Celery) -> set[str]:
    replies = app.control.ping(timeout=1.0)
    return {name for reply in replies for name in reply}


def test_control_commands_of_another_application_do_not_reach_our_processes(
    redis_url: str, processes: Processes, tmp_path: Path
) -> None:
    ours = {f"ours-{queue}@h" for queue in APPS.values()}
    theirs = Celery("theirs", broker=redis_url, set_as_current=False)
    start_fleet(processes, redis_url, tmp_path)
    processes.wait_until_ready()
    pids = processes.pids()
    with app_of(redis_url) as app:
        wait_until(lambda: nodes_of(app) == ours, timeout_s=60, what="our processes' answers")

        assert nodes_of(theirs) == set()
        theirs.control.shutdown()

        assert nodes_of(app) == ours
    assert processes.pids() == pids
    theirs.close()
