"""A task of the user's own Celery app does a step of a workflow, on the user's worker."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from handoff_queue.shared.local.child_process_restarts import ChildSpec
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.workflows import read_workflow
from tests import forked_processes
from tests.e2e.a_host_with_a_task import CALLS
from tests.running_system import ALL_SPECIALISTS, SUPERVISOR, RunningSystem, running_system
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
STOCK = """---
name: stock
description: Looks up how many items of an article are in stock. Not for questions about orders.
celery_task: host.stock
celery_queue: billing
output_schema:
  type: object
  properties:
    article: {type: string}
    items: {type: integer}
  required: [article, items]
---
The task `host.stock` of the host's Celery app.
"""
WORKFLOW = """
description: Looks up an article in stock.
steps:
  - {id: look, specialist: stock, task: "A-1042"}
"""
WORKER = ("stock", "handoff_queue.workers.app", "stock")


def settings_of(folder: Path, host: str) -> dict[str, str]:
    (folder / "specialists").mkdir()
    (folder / "specialists" / "stock.md").write_text(STOCK)
    (folder / "stock.yaml").write_text(WORKFLOW)
    return {
        "HANDOFF_SPECIALISTS_DIRS": str(folder / "specialists"),
        "HANDOFF_HOST_BROKER_URL": host,
        "HANDOFF_HOST_RESULT_URL": host,
        "HANDOFF_SWEEP_INTERVAL_S": "0.2",
        "HANDOFF_LEASE_S": "2",
    }


@contextmanager
def system_with_host(folder: Path, host: str) -> Iterator[RunningSystem]:
    """Start our system with a worker for the specialist, and a worker of the user's app."""
    with running_system(
        folder, (SUPERVISOR, ALL_SPECIALISTS, WORKER), settings_of(folder, host)
    ) as system:
        command = [
            *(sys.executable, "-m", "celery", "-A", "tests.e2e.a_host_with_a_task"),
            *("worker", "-c", "1", "-Q", "billing", "-n", "host@%h"),
        ]
        environment = {"HOST_REDIS_URL": host, "PYTHONPATH": str(ROOT)}
        system.processes.start(ChildSpec("host", command, environment, is_ready=lambda: True))
        yield system


def calls(host_redis: redis.Redis) -> list[Any]:
    return [json.loads(call) for call in host_redis.lrange(CALLS, 0, -1)]


def test_the_successor_of_a_killed_worker_waits_for_the_same_task(
    redis_url: str, tmp_path: Path
) -> None:
    with system_with_host(tmp_path, redis_url) as system, redis.Redis.from_url(redis_url) as host:
        jobs = system.jobs()
        workflow = read_workflow(str(tmp_path / "stock.yaml"))
        job_id = jobs.submit(Request("How many are there?", workflow=workflow))
        wait_until(lambda: calls(host), timeout_s=60, expected="the host's task")
        pid = system.processes.get_pids()["stock"]
        os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: system.processes.get_pids().get("stock") not in (None, pid),
            expected="another worker",
        )
        host.rpush("host:go", "now")
        result = jobs.result(job_id, wait_s=90)

        ((task_id, call, _args, _kwargs),) = calls(host)
        assert result.status is JobStatus.OK, result
        assert result.answer == {"article": "A-1042", "items": 12}
        assert (call["job_id"], call["step_id"], call["task"]) == (job_id, "look", "A-1042")
        assert len(task_id) == 36
        logs = [system.processes.get_log_path(name).read_text() for name in ("supervisor", "stock")]
        assert redis_url not in "".join(logs)
        jobs.store.connection.close()


def test_a_worker_without_the_hosts_broker_does_not_start(redis_url: str, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, redis_url) | {"HANDOFF_REDIS_URL": redis_url}
    del settings["HANDOFF_HOST_BROKER_URL"]
    worker = ("-A", "handoff_queue.workers.app", "worker", "-Q", "stock")
    completed = forked_processes.run(
        [sys.executable, "-m", "celery", *worker],
        {**os.environ, **settings, "HANDOFF_OFFLINE": "true", "PYTHONPATH": str(ROOT)},
        ROOT,
        stdin="",
        timeout_s=120,
    )

    lines = [line for line in completed.stderr.splitlines() if line.startswith("handoff: ")]
    assert completed.returncode == 2, completed.stderr
    assert len(lines) == 1
    assert "set HANDOFF_HOST_BROKER_URL for this worker" in lines[0]
    assert "Traceback" not in completed.stderr
