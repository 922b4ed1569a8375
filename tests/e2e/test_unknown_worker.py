"""An installation has a Redis user for each kind of process. A worker with all rights announces a
specialist that these users do not know. Only the steps of this specialist fail, with the reason.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.types.job_events import JobStatus
from handoff_queue.supervisor.client.request import Request
from tests.e2e.commands import Handoff
from tests.running_system import DOCUMENTS, RunningSystem, running_system
from tests.supervisor.workflows.workflow_files import UNREVIEWED, make_workflow
from tests.system_users import refused_commands
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

UNKNOWN = "taster"
SPECIALIST = """---
name: taster
description: Answers questions about drinks from the documents. Not for other questions.
tools: [search_documents, read_document]
---
Answer from the documents.
"""
REASON = f"Redis does not let the supervisors use the queue of {UNKNOWN}"
STEPS = """
    id: known, specialist: researcher, task: "Which databases store vectors?"
    id: unknown, specialist: taster, task: "Which databases store vectors?"
"""


@dataclass(frozen=True)
class Installation:
    """The system, and a shell with the Redis user of clients."""

    system: RunningSystem
    shell: Handoff

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.shell.run(*arguments, HANDOFF_REDIS_URL=self.system.redis_url)

    def findings(self) -> dict[str, Any]:
        """Return the findings of `handoff doctor`, by their subjects."""
        return {
            finding["about"]: finding for finding in json.loads(self.run("doctor", "--json").stdout)
        }


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder: Path = tmp_path_factory.mktemp("installation")
    (folder / "specialists").mkdir()
    (folder / "specialists" / "taster.md").write_text(SPECIALIST)
    with running_system(folder) as system:
        variables = {
            "HANDOFF_REDIS_URL": system.admin_url,
            "HANDOFF_SPECIALISTS_DIRS": json.dumps([str(folder / "specialists")]),
        }
        spec = system.celery_worker(UNKNOWN, "handoff_queue.workers.app", "researcher")
        command = [*spec.command[:-4], "-Q", UNKNOWN, "-c", "1"]
        environment = {**spec.environment, **variables}
        worker = replace(spec, command=command, environment=environment, restart=False)
        system.processes.start(worker)
        presence = system.admin.store.presence
        wait_until(
            lambda: UNKNOWN in presence.read_presence().queues,
            timeout_s=60,
            expected="its announcement",
        )
        yield Installation(system, Handoff(folder))
        os.kill(system.processes.get_pids()[UNKNOWN], signal.SIGTERM)
        wait_until(
            lambda: UNKNOWN not in presence.read_presence().queues, timeout_s=60, expected="its end"
        )
        connection = system.admin.store.connection.redis
        connection.hdel(keys.QUEUES, UNKNOWN)
        wait_until(lambda: refused_commands(connection) == [], expected="no more refused commands")


def test_the_step_of_an_unknown_specialist_fails_and_the_job_ends(
    installation: Installation, tmp_path: Path
) -> None:
    jobs = installation.system.admin
    workflow = make_workflow(tmp_path, STEPS, UNREVIEWED)
    job_id = jobs.submit(Request("Which store vectors?", documents=DOCUMENTS, workflow=workflow))

    assert jobs.wait(job_id, 60) is JobStatus.PARTIAL
    assert REASON in installation.run("show", job_id).stdout
    assert REASON in installation.run("watch", job_id).stderr
    assert jobs.store.dead_letters.list_newest() == []


def test_a_job_of_known_specialists_ends(installation: Installation) -> None:
    jobs = installation.system.jobs()
    job_id = jobs.submit(Request("Which databases store vectors?", documents=DOCUMENTS))

    assert jobs.wait(job_id, 60) in (JobStatus.OK, JobStatus.PARTIAL)
    jobs.store.connection.close()


def test_the_fleet_and_doctor_go_on_and_doctor_names_the_unknown_queue(
    installation: Installation,
) -> None:
    for command in ("specialists", "stats"):
        output = installation.run(command, "--json").stdout
        assert "researcher" in output
        assert UNKNOWN not in output
    wait_until(
        lambda: f"queue {UNKNOWN}" in installation.findings(), timeout_s=60, expected="its line"
    )
    assert installation.findings()[f"queue {UNKNOWN}"]["level"] == "warn"


def test_a_client_refuses_a_workflow_with_an_unknown_specialist(
    installation: Installation, tmp_path: Path
) -> None:
    make_workflow(tmp_path, STEPS, UNREVIEWED)

    ended = installation.run("submit", "Which?", "--workflow", str(tmp_path / "test.yaml"))

    assert f"no worker serves '{UNKNOWN}', and the Redis users of this" in ended.stderr
