"""The compose file as a user runs it, with three researchers, and a client on the host."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.compose.project import Project, running_project
from tests.waiting import wait_until

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]
RESEARCHERS = 3


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    # Each container runs one handoff at a time, so three handoffs need three containers.
    with running_project(
        tmp_path_factory.mktemp("compose"),
        {"WORKER_SLOTS": "1"},
        "--scale",
        f"researcher={RESEARCHERS}",
    ) as project:
        yield project


def test_every_container_is_healthy_and_has_only_the_rights_it_needs(system: Project) -> None:
    states = [
        json.loads(line) for line in system.compose_command("ps", "--format", "json").splitlines()
    ]

    assert {state["Health"] for state in states} == {"healthy"}, states
    assert "keys" not in {state["Service"] for state in states}, "it has ended"
    assert sum(state["Service"] == "researcher" for state in states) == RESEARCHERS
    user = system.compose_command("exec", "-T", "researcher", "id", "-u").strip()
    capabilities = system.compose_command(
        "exec", "-T", "researcher", "grep", "CapEff", "/proc/self/status"
    ).split()[1]
    assert (user, int(capabilities, 16)) == ("10001", 0)


def test_a_job_from_the_host_is_done_by_researchers_in_different_containers(
    system: Project,
) -> None:
    request = (
        "Compare Qdrant, pgvector and Milvus for a team that needs filtering and durable storage"
    )
    job_id = system.handoff("submit", request, "--docs", "examples/vector-databases").split()[-1]

    result = json.loads(system.handoff("result", job_id, "--json", "--wait", "120"))

    assert result["status"] == "ok", result
    assert result["citations"]
    tasks = wait_until(
        lambda: _finished_tasks(system, "specialist.researcher", RESEARCHERS),
        expected="the researchers in Flower",
    )
    assert len({task["worker"] for task in tasks}) > 1, tasks


WRITE = """
import pathlib, redis
url = pathlib.Path('/etc/handoff/keys/redis-url').read_text().strip()
redis.Redis.from_url(url).lpush('submissions', '{}')
"""


def test_a_researcher_has_no_other_key_and_writes_to_no_other_queue(system: Project) -> None:
    files = system.compose_command("exec", "-T", "researcher", "ls", "/etc/handoff/keys")

    with pytest.raises(AssertionError, match="no permissions"):
        system.compose_command("exec", "-T", "researcher", "python", "-c", WRITE)

    assert files.split() == ["keyring.json", "redis-url", "signing.key"]
    wait_until(
        lambda: (
            "refuse Redis user worker-researcher: key submissions"
            in system.compose_command("exec", "-T", "console", "handoff", "audit")
        ),
        timeout_s=60,
        expected="the refusal in the audit",
    )


CONNECT = """
import socket
for host, port in (('redis', 6379), ('console', 8321), ('flower', 5555), ('supervisor', 0)):
    try:
        print(host, socket.getaddrinfo(host, port)[0][4][0] != '')
    except OSError:
        print(host, False)
"""


def test_a_worker_finds_redis_and_the_supervisor_and_neither_the_console_nor_flower(
    system: Project,
) -> None:
    answers = system.compose_command("exec", "-T", "researcher", "python", "-c", CONNECT)

    assert answers.splitlines() == [
        "redis True",
        "console False",
        "flower False",
        "supervisor True",
    ]


def test_flower_answers_only_logged_in_users(system: Project) -> None:
    assert system.flower("/api/workers?refresh=1")
    with pytest.raises(urllib.error.HTTPError) as refused:
        system.flower("/api/workers", is_logged_in=False)

    assert refused.value.code == 401
    refused.value.close()


def test_the_console_is_closed_until_a_token_is_made_in_its_container(system: Project) -> None:
    healthy = urllib.request.urlopen(f"{system.console_url}/healthz", timeout=10)
    with healthy:
        assert healthy.status == 200
    with pytest.raises(urllib.error.HTTPError) as refused:
        _stored_jobs(system, None)
    assert refused.value.code == 401
    refused.value.close()

    made = system.compose_command(
        "exec", "-T", "console", "handoff", "token", "create", "ann", "--access", "admin"
    )

    job_id = system.handoff("submit", "How does HNSW work?").split()[-1]
    assert job_id in _stored_jobs(system, made.strip())


def _stored_jobs(system: Project, token: str | None) -> list[str]:
    """Return the ids of the jobs that the HTTP API lists."""
    request = urllib.request.Request(f"{system.console_url}/v1/jobs")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return [job["job_id"] for job in json.load(answer)["jobs"]]


def test_a_stop_takes_less_than_its_grace_and_loses_nothing(system: Project) -> None:
    system.compose_command("restart", "--timeout", "45", "researcher", "redis")
    system.compose_command(
        "up", "-d", "--wait", "--wait-timeout", "120", "--scale", f"researcher={RESEARCHERS}"
    )

    assert system.handoff("list")


def _finished_tasks(system: Project, name: str, count: int) -> list[dict[str, Any]]:
    """Return the finished tasks of this name in Flower, or none until there are enough."""
    tasks = [
        task
        for task in system.flower(f"/api/tasks?taskname={name}").values()
        if task["state"] == "SUCCESS"
    ]
    return tasks if len(tasks) >= count else []
