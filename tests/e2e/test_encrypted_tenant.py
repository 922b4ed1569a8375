"""A job of a tenant with a key, through real processes."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.request import Request
from tests.doubles.tenant_keys import new_key, write_keys
from tests.hostile.test_tenant_keys import keys_with
from tests.running_system import ALL_SPECIALISTS, DOCUMENTS, SUPERVISOR, running_system
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

WORDS = "Compare Qdrant and Milvus"
IN_DOCUMENT = "Qdrant"


def test_a_job_runs_through_all_processes_and_leaves_no_text_in_redis(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    write_keys(folder, "acme", new_key())
    with running_system(tmp_path, settings={"HANDOFF_TENANT_KEYS": str(folder)}) as system:
        jobs = client.connect(system.redis_url, Settings(offline=True, tenant_keys=folder))
        job_id = jobs.submit(Request(WORDS, tenant="acme", documents=DOCUMENTS))
        status = jobs.wait(job_id, 60)

        assert status in (JobStatus.OK, JobStatus.PARTIAL)
        assert IN_DOCUMENT in str(jobs.result(job_id).answer)
        assert keys_with(system.admin, IN_DOCUMENT) == set()


def test_a_worker_without_the_key_says_why_and_a_worker_with_the_key_does_the_handoff(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "keys"
    write_keys(folder, "acme", new_key())
    keys = {"HANDOFF_TENANT_KEYS": str(folder)}
    with running_system(tmp_path, [SUPERVISOR], keys) as system:
        _, app, queues = ALL_SPECIALISTS
        worker = system.celery_worker("w1", app, queues)
        others = {name: value for name, value in worker.environment.items() if name not in keys}
        system.processes.start(replace(worker, environment=others, restart=False))
        jobs = client.connect(system.redis_url, Settings(offline=True, tenant_keys=folder))
        wait_until(jobs.store.presence.load_served_specialists, timeout_s=60, expected="the worker")
        job_id = jobs.submit(Request(WORDS, tenant="acme", documents=DOCUMENTS))
        log = system.processes.get_log_path("w1")
        wait_until(
            lambda: "this process has no keys of tenants" in log.read_text(),
            timeout_s=60,
            expected="the reason in the log",
        )
        os.kill(system.processes.get_pids()["w1"], signal.SIGTERM)
        system.start_worker("w2", app, queues)

        assert jobs.wait(job_id, 90) in (JobStatus.OK, JobStatus.PARTIAL)
        assert "Traceback" not in log.read_text()
