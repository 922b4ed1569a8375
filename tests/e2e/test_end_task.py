"""When a job has ended, a task of the user's own Celery app runs on the user's worker."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from handoff_queue.shared.local.child_process_restarts import ChildSpec
from handoff_queue.shared.types.events import EndTaskTried
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.request import Request
from tests.doubles.delayed_proxy import DelayedProxy
from tests.e2e.a_host_with_a_task import CALLS, notify
from tests.running_system import ALL_SPECIALISTS, SUPERVISOR, RunningSystem, running_system
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
IMPATIENT_SUPERVISOR = (
    "supervisor",
    "tests.e2e.a_supervisor_that_retries_soon",
    SUPERVISOR[2],
)


@contextmanager
def system_with_host(
    folder: Path, broker: str, host: str, supervisor: tuple[str, str, str] = SUPERVISOR
) -> Iterator[RunningSystem]:
    """Start our system, and a worker of the user's app on the Redis `host`.

    `broker`: the URL at which our supervisor sends the task.
    """
    settings = {
        "HANDOFF_ON_END_BROKER_URL": broker,
        "HANDOFF_ON_END_TASKS": "shop.*, host.notify",
        "HANDOFF_SWEEP_INTERVAL_S": "0.2",
    }
    with running_system(folder, (supervisor, ALL_SPECIALISTS), settings) as system:
        command = [
            *(sys.executable, "-m", "celery", "-A", "tests.e2e.a_host_with_a_task"),
            *("worker", "-c", "1", "-Q", "billing", "-n", "host@%h"),
        ]
        environment = {"HOST_REDIS_URL": host, "PYTHONPATH": str(ROOT)}
        system.processes.start(ChildSpec("host", command, environment, is_ready=lambda: True))
        yield system


def submit(system: RunningSystem, signature: Any) -> JobId:
    jobs = system.jobs()
    job_id = jobs.submit(Request("What is HNSW?", on_end=signature))
    jobs.store.connection.close()
    return job_id


def tries(system: RunningSystem, job_id: JobId) -> list[EndTaskTried]:
    jobs = system.jobs()
    events = [recorded.event for recorded in jobs.events(job_id, follow=False)]
    jobs.store.connection.close()
    return [event for event in events if isinstance(event, EndTaskTried)]


def calls(host_redis: redis.Redis) -> list[Any]:
    return [json.loads(call) for call in host_redis.lrange(CALLS, 0, -1)]


def test_the_users_worker_runs_the_task_once_with_the_end_of_the_job(
    redis_url: str, tmp_path: Path
) -> None:
    with (
        system_with_host(tmp_path, redis_url, redis_url) as system,
        redis.Redis.from_url(redis_url) as host,
    ):
        job_id = submit(system, notify.s(7, order="A-1042"))
        wait_until(lambda: calls(host), expected="the host's task")
        wait_until(lambda: tries(system, job_id)[-1].delivered, expected="the event in the journal")

        ((task_id, end, args, kwargs),) = calls(host)
        assert (end["job_id"], args, kwargs) == (job_id, [7], {"order": "A-1042"})
        assert set(end) == {"job_id", "status", "reason"}
        assert len(task_id) == 36
        assert redis_url not in "".join(
            system.processes.get_log_path(name).read_text(errors="replace")
            for name in ("supervisor", "everyone")
        )


def test_a_task_that_is_sent_again_after_a_kill_of_the_supervisor_keeps_its_id(
    redis_url: str, tmp_path: Path
) -> None:
    address = urlsplit(redis_url)
    with DelayedProxy() as proxy, redis.Redis.from_url(redis_url) as host:
        broker = redis_url.replace(f":{address.port}", f":{proxy.port}")
        with system_with_host(tmp_path, broker, redis_url, IMPATIENT_SUPERVISOR) as system:
            job_id = submit(system, notify.s())
            wait_until(lambda: tries(system, job_id), expected="the first try")
            pid = system.processes.get_pids()["supervisor"]
            os.kill(pid, signal.SIGKILL)
            wait_until(
                lambda: system.processes.get_pids().get("supervisor") not in (None, pid),
                expected="another supervisor",
            )
            proxy.open(address.hostname or "", address.port or 0)
            wait_until(lambda: calls(host), expected="the host's task")
            wait_until(
                lambda: tries(system, job_id)[-1].delivered, expected="the event in the journal"
            )

            assert {task_id for task_id, *_ in calls(host)} == {calls(host)[0][0]}
            assert calls(host)[0][1]["job_id"] == job_id
