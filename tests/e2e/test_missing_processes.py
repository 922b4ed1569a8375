"""`handoff watch` reports within seconds that no process serves a step or a job, and when one
returns.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from handoff_queue.shared.local.child_process_restarts import Processes
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.presence import ANNOUNCED_FOR_S
from handoff_queue.shared.types.names import SUPERVISOR_QUEUE
from handoff_queue.shared.types.presence import Announcement
from handoff_queue.supervisor.cli.connection import require_processes
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import MessagesServer
from tests import forked_processes
from tests.doubles.handoffs import a_spec
from tests.e2e.commands import Handoff
from tests.e2e.fleet import LEASE_S, SHORT_LEASES, SPECIALIST, Script
from tests.running_system import (
    ALL_SPECIALISTS,
    SUPERVISOR,
    RunningSystem,
    model_environment,
    running_system,
    system_on,
)
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow

WAITS = f"step a waits for a worker of `{SPECIALIST}`: start one"
WAITS_WITH_COMMAND = f"{WAITS} with `handoff worker {SPECIALIST}`"
LOOK_UPS = ("evalsha", "script|exists")
"""Commands with which a worker finds out that a script is missing."""
REPORTED_WITHIN_S = ANNOUNCED_FOR_S + LEASE_S + 5


@pytest.fixture
def model() -> Script:
    return Script()


@pytest.fixture
def system(model: Script, tmp_path: Path) -> Iterator[RunningSystem]:
    """Start a supervisor without a worker."""
    with (
        MessagesServer(model) as server,
        running_system(
            tmp_path, (SUPERVISOR,), model_environment(server, **SHORT_LEASES)
        ) as running,
    ):
        yield running


def in_folder(tmp_path: Path, name: str) -> Handoff:
    (tmp_path / name).mkdir()
    return Handoff(tmp_path / name)


def start_worker(system: RunningSystem, name: str) -> None:
    """Start a worker that is not restarted after its death."""
    spec = system.celery_worker(name, "handoff_queue.workers.app", SPECIALIST, 1)
    system.processes.start(replace(spec, restart=False))


def test_a_role_that_loses_its_last_worker_during_a_job_is_named_until_a_worker_returns(
    system: RunningSystem, model: Script, tmp_path: Path
) -> None:
    watcher = in_folder(tmp_path, "watcher")
    jobs = client.connect(system.redis_url, Settings(offline=True))
    model.plans["lonely"] = {"a": ""}
    held = model.hold("lonely", "a")

    start_worker(system, "first")
    job_id = jobs.submit(Request("plan lonely"))
    assert held.arrived.wait(60)
    with watcher.started("watch", job_id, **system.environment) as watching:
        watcher.wait_for_text("handed over")
        os.kill(system.processes.get_pids()["first"], signal.SIGKILL)
        watcher.wait_for_text(WAITS_WITH_COMMAND, timeout_s=REPORTED_WITHIN_S)
        listed = json.loads(
            watcher.run("list", "--json", HANDOFF_REDIS_URL=system.redis_url).stdout
        )
        start_worker(system, "second")
        assert watching.wait(timeout=MAX_WAIT_S) == 0
    held.release.set()

    assert [job["waiting_for"] for job in listed] == [WAITS]
    lines = watcher.read("err").splitlines()
    assert lines.count(WAITS_WITH_COMMAND) == 1
    assert f"no longer waits for a worker of `{SPECIALIST}`" in lines
    assert jobs.result(job_id).notes == ()
    jobs.store.connection.close()


def test_a_queued_job_waits_for_the_first_supervisor(redis_url: str, tmp_path: Path) -> None:
    watcher = in_folder(tmp_path, "watcher")
    jobs = client.connect(redis_url, Settings(offline=True))
    jobs.store.presence.announce(
        Announcement(worker="w1", specialists=(a_spec(),), slots=1, model="offline")
    )
    submitted = watcher.run("submit", "What is HNSW?", HANDOFF_REDIS_URL=redis_url)

    with watcher.started("watch", submitted.stdout.strip(), HANDOFF_REDIS_URL=redis_url):
        watcher.wait_for_text(
            "the job waits for a supervisor: start one with `handoff supervisor`", timeout_s=10
        )
        folder, fork_server = tmp_path / "supervisor", forked_processes.shared_fork_server()
        with (
            Processes(folder, fork_server) as processes,
            system_on(redis_url, processes, folder, (SUPERVISOR,)),
        ):
            watcher.wait_for_text("no longer waits for a supervisor")
        assert "supervisor" not in jobs.store.presence.read_presence().queues, (
            "a stopping supervisor withdraws its announcement"
        )

    assert "no supervisor takes jobs from this broker yet" in submitted.stderr
    jobs.store.connection.close()


def test_the_next_command_finds_all_processes_of_a_ready_system(
    tmp_path: Path,
) -> None:
    with running_system(tmp_path) as system:
        jobs = system.jobs()
        require_processes(jobs)

        assert jobs.store.presence.load_served_specialists()
        assert SUPERVISOR_QUEUE in jobs.store.presence.read_presence().queues


def test_a_worker_that_starts_first_waits_for_the_scripts_of_a_supervisor(tmp_path: Path) -> None:
    with running_system(tmp_path, ()) as system:
        redis = system.admin.store.connection.redis
        redis.script_flush()
        redis.config_resetstat()
        system.start_worker(*ALL_SPECIALISTS)
        log = system.processes.get_log_path(ALL_SPECIALISTS[0])

        def refused_tries() -> int:
            commands = redis.info("commandstats")
            tries = sum(commands.get(f"cmdstat_{n}", {}).get("calls", 0) for n in LOOK_UPS)
            return int(tries)

        # Celery ends a worker that connects again more than five times without a pause
        wait_until(lambda: refused_tries() > 6, expected="the waiting worker")

        system.start_worker(*SUPERVISOR)

        system.processes.wait_until_ready()
        assert "Frequent restarts" not in log.read_text()
