"""A Redis that can be read but takes no writes: every command reports it, and shows everything
readable.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.local.processes import Processes
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.redis.connection import FULL, READ_ONLY
from handoff_queue.shared.store.store import open_store
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.cli.errors import FAILED, NO_REDIS
from handoff_queue.supervisor.client import client
from tests.e2e.commands import Handoff, said
from tests.e2e.test_redis_refuses import make_read_only

pytestmark = pytest.mark.slow


def fill(redis: Any) -> None:
    redis.config_set("maxmemory-policy", "noeviction")
    redis.config_set("maxmemory", "300kb")


@pytest.fixture
def url(processes: Processes, tmp_path: Path) -> str:
    """URL of a separate Redis."""
    return PrivateRedis(processes, tmp_path / "redis", append_only=False).start()


@pytest.fixture(params=[(fill, FULL), (make_read_only, READ_ONLY)], ids=["full", "read-only"])
def harmed(request: pytest.FixtureRequest, url: str) -> Iterator[tuple[JobId, str]]:
    """A waiting job in a Redis that takes no writes, and the reason. All announcements have
    expired.
    """
    jobs = client.connect(url, Settings(offline=True))
    job_id = jobs.submit(client.Request("What is HNSW?"))
    jobs.store.dead_letters.add("writer", "no handoff", "{}")
    harm, why = request.param
    harm(jobs.store.connection.redis)
    yield job_id, why
    jobs.store.connection.close()


def test_the_doctor_reports_the_fault_and_all_readable_facts(
    tmp_path: Path, url: str, harmed: tuple[JobId, str]
) -> None:
    _, why = harmed
    told = Handoff(tmp_path).run("doctor", "--json", HANDOFF_REDIS_URL=url)
    found = {finding["about"]: finding for finding in json.loads(told.stdout)}

    assert told.returncode == FAILED
    assert "{found}: {fix}".format(**found["broker"]) == why
    assert (
        found["queue submissions"]["found"]
        == "1 waiting; its workers are unknown while Redis takes no writes"
    )
    assert found["dead letters"]["found"] == "1 message could not be handled"
    assert {"version", "persistence", "workers", "budget of the day", "this shell: model"} <= set(
        found
    )
    assert "start" not in found["workers"]["fix"]


def test_no_command_advises_to_start_processes_that_may_be_running(
    tmp_path: Path, url: str, harmed: tuple[JobId, str]
) -> None:
    job_id, why = harmed
    handoff = Handoff(tmp_path)

    assert f"waits for a Redis that takes writes: {why}" in " ".join(
        handoff.run("list", HANDOFF_REDIS_URL=url).stdout.split()
    )
    (job,) = json.loads(handoff.run("list", "--json", HANDOFF_REDIS_URL=url).stdout)
    assert (job["job_id"], job["waiting_for"]) == (
        job_id,
        f"the job waits for a Redis that takes writes: {why}",
    )
    told = handoff.run("specialists", HANDOFF_REDIS_URL=url)
    assert (told.returncode, told.stderr) == (FAILED, f"handoff: {why}\n")
    for command in (["run", "x"], ["pause", "researcher"]):
        assert said(handoff.run(*command, HANDOFF_REDIS_URL=url), NO_REDIS).endswith(why)


def test_without_announcements_any_name_can_be_paused_except_a_typo(url: str) -> None:
    store, jobs = open_store(url, Settings()), client.connect(url, Settings(offline=True))
    jobs.pause("researcher")

    assert list(store.pauses.all()) == ["researcher"]
    for slip in ("asessor", "unacked", "Researcher", "roles"):
        with pytest.raises(UserError, match="no worker serves or has served"):
            jobs.pause(slip)
    store.connection.close()
    jobs.store.connection.close()
