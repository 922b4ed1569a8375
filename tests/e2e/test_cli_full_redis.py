"""With a Redis that takes no writes, commands report the fault and show all readable data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.local.child_process_restarts import Processes
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.redis.connection import FULL, READ_ONLY
from handoff_queue.shared.store.store import open_store
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.cli.errors import FAILED, NO_REDIS
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.request import Request
from tests.e2e.commands import Handoff, error_line
from tests.e2e.test_redis_refuses import make_read_only

pytestmark = pytest.mark.slow


def limit_memory(redis: Any) -> None:
    redis.config_set("maxmemory-policy", "noeviction")
    redis.config_set("maxmemory", "300kb")


@pytest.fixture
def url(processes: Processes, tmp_path: Path) -> str:
    """URL of a separate Redis."""
    return PrivateRedis(processes, tmp_path / "redis", append_only=False).start()


@pytest.fixture(
    params=[(limit_memory, FULL), (make_read_only, READ_ONLY)], ids=["full", "read-only"]
)
def read_only_job(request: pytest.FixtureRequest, url: str) -> Iterator[tuple[JobId, str]]:
    """Yield a waiting job in a Redis that takes no writes, and the reason. No process has
    announced itself.
    """
    jobs = client.connect(url, Settings(offline=True))
    job_id = jobs.submit(Request("What is HNSW?"))
    jobs.store.dead_letters.add("writer", "no handoff", "{}")
    break_redis, reason = request.param
    break_redis(jobs.store.connection.redis)
    yield job_id, reason
    jobs.store.connection.close()


def test_the_doctor_reports_the_fault_and_all_readable_facts(
    tmp_path: Path, url: str, read_only_job: tuple[JobId, str]
) -> None:
    _, reason = read_only_job
    completed = Handoff(tmp_path).run("doctor", "--json", HANDOFF_REDIS_URL=url)
    findings = {finding["about"]: finding for finding in json.loads(completed.stdout)}

    assert completed.returncode == FAILED
    assert "{report}: {fix}".format(**findings["broker"]) == reason
    assert (
        findings["queue submissions"]["report"]
        == "1 waiting; its workers are unknown while Redis takes no writes"
    )
    assert findings["dead letters"]["report"] == "1 message could not be handled"
    assert {"version", "persistence", "workers", "budget of the day", "this shell: model"} <= set(
        findings
    )
    assert "start" not in findings["workers"]["fix"]


def test_no_command_advises_to_start_processes_that_may_be_running(
    tmp_path: Path, url: str, read_only_job: tuple[JobId, str]
) -> None:
    job_id, reason = read_only_job
    handoff = Handoff(tmp_path)

    assert f"waits for a Redis that accepts writes: {reason}" in " ".join(
        handoff.run("list", HANDOFF_REDIS_URL=url).stdout.split()
    )
    (job,) = json.loads(handoff.run("list", "--json", HANDOFF_REDIS_URL=url).stdout)
    assert (job["job_id"], job["waiting_for"]) == (
        job_id,
        f"the job waits for a Redis that accepts writes: {reason}",
    )
    completed = handoff.run("specialists", HANDOFF_REDIS_URL=url)
    assert (completed.returncode, completed.stderr) == (FAILED, f"handoff: {reason}\n")
    for command in (["run", "x"], ["pause", "researcher"]):
        assert error_line(handoff.run(*command, HANDOFF_REDIS_URL=url), NO_REDIS).endswith(reason)


def test_without_announcements_any_name_can_be_paused_except_a_typo(url: str) -> None:
    store, jobs = open_store(url, Settings()), client.connect(url, Settings(offline=True))
    jobs.pause("researcher")

    assert list(store.pauses.read_all()) == ["researcher"]
    for typo in ("asessor", "unacked", "Researcher", "roles"):
        with pytest.raises(UserError, match="no worker serves or has served"):
            jobs.pause(typo)
    store.connection.close()
    jobs.store.connection.close()
