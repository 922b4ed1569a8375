"""Our fleet and another Celery application share a Redis database without disturbing each other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from celery import Celery

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.request import Request
from tests import forked_processes
from tests.e2e.commands import DOCUMENTS, REQUEST, Handoff
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
APPS = {"handoff_queue.supervisor.app": "supervisor", "handoff_queue.workers.app": "researcher"}


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Yield child processes that are forked, and end with the test."""
    with Processes(tmp_path, forked_processes.shared_fork_server()) as children:
        yield children


def start_fleet(processes: Processes, url: str, folder: Path, name: str = "ours") -> None:
    """Start a supervisor and a worker that serves every specialist."""
    for app, queue in APPS.items():
        processes.start(
            ChildSpec(
                f"{name}-{queue}",
                [
                    *(sys.executable, "-m", "celery", "-A", app, "worker"),
                    *("-c", "2", "-n", f"{name}-{queue}@h"),
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
    """Yield a Celery app of our fleet without a worker."""
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
    own_nodes = {f"ours-{queue}@h" for queue in APPS.values()}
    other_app = Celery("theirs", broker=redis_url, set_as_current=False)
    start_fleet(processes, redis_url, tmp_path)
    processes.wait_until_ready()
    pids = processes.get_pids()
    with app_of(redis_url) as app:
        wait_until(
            lambda: nodes_of(app) == own_nodes, timeout_s=60, expected="our processes' answers"
        )

        assert nodes_of(other_app) == set()
        other_app.control.shutdown()

        assert nodes_of(app) == own_nodes
    assert processes.get_pids() == pids
    other_app.close()


def test_a_fleet_with_a_prefix_shares_redis_with_another_application(
    redis_url: str, processes: Processes, tmp_path: Path
) -> None:
    url = f"{redis_url}?prefix=billing"
    other_app = Celery("theirs", broker=redis_url, set_as_current=False)
    for queue in ("researcher", "supervisor"):
        other_app.send_task("theirs.work", queue=queue, ignore_result=True)
    other_app.close()
    start_fleet(processes, url, tmp_path)
    processes.wait_until_ready()
    jobs = client.connect(url, Settings(offline=True))

    result = jobs.result(
        jobs.submit(Request(REQUEST, documents=DOCUMENTS, model="offline", mode=Mode.TEAM)),
        wait_s=120,
    )
    doctor = Handoff(tmp_path).run("doctor", HANDOFF_REDIS_URL=url)
    stats = Handoff(tmp_path).run("stats", HANDOFF_REDIS_URL=url)

    assert result.status is JobStatus.OK
    assert (doctor.returncode, stats.returncode) == (0, 0), doctor.stdout + stats.stderr
    assert "broker of processes" in doctor.stdout
    assert "does not answer" not in doctor.stdout
    with app_of(url) as app, app_of(redis_url) as plain:
        assert len(nodes_of(app)) == 2
        assert nodes_of(plain) == set()
    with redis.Redis.from_url(redis_url) as server:
        assert (server.llen("researcher"), server.llen("supervisor")) == (1, 1)
        names = [key.decode() for key in server.scan_iter()]
        assert sorted(name for name in names if not name.startswith("billing:")) == sorted(
            name for name in names if name in ("researcher", "supervisor") or "kombu" in name[:7]
        )
        server.flushall()
