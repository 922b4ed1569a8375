"""A worker of a user's Celery app that imports our packages still redelivers its tasks, as plain
Celery does.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from celery import Celery

from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.store.store import Store
from tests import forked_processes
from tests.e2e.a_host_service import ENDED, MAY_END, STARTED
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
COMMAND = [
    *(sys.executable, "-m", "celery", "-A", "tests.e2e.a_host_service"),
    *("worker", "-c", "1", "-l", "INFO", "-n", "host@%h"),
]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Yield child processes that are forked, and end with the test."""
    with Processes(tmp_path, forked_processes.shared_fork_server()) as children:
        yield children


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_a_users_task_runs_again_after_a_kill_of_its_worker(
    store: Store, redis_url: str, processes: Processes, tmp_path: Path, first: str
) -> None:
    environment = {
        "HOST_REDIS_URL": redis_url,
        "HANDOFF_REDIS_URL": redis_url,
        "HANDOFF_CACHE_DIR": str(tmp_path / "cache"),
        "IMPORTED_FIRST": first,
        "PYTHONPATH": str(ROOT),
    }
    host = Celery("host", broker=redis_url)
    spec = ChildSpec("host", COMMAND, environment, is_ready=lambda: True, is_killed_on_purpose=True)
    with redis.Redis.from_url(redis_url) as host_redis:
        processes.start(spec)
        host.send_task("host.hold", ignore_result=True)
        wait_until(lambda: host_redis.llen(STARTED) == 1, expected="the host's task")

        os.kill(processes.get_pids()["host"], signal.SIGKILL)

        wait_until(
            lambda: host_redis.llen(STARTED) == 2, expected="the second run of the host's task"
        )
        host_redis.rpush(MAY_END, "now")
        wait_until(lambda: host_redis.get(ENDED) == b"1", expected="the end of the host's task")
        job_ids = {job_id.decode() for job_id in host_redis.lrange(STARTED, 0, -1)}
    assert set(store.jobs.list_newest(9)) == job_ids
    assert not store.presence.read_presence().queues, (
        "the user's worker does not count as one of our processes"
    )
    assert "INFO/MainProcess] host@" in processes.get_log_path("host").read_text(), (
        "Celery's own log"
    )
    host.close()
