"""The compose file as a user meets it: built, started with three researchers, used from the host, looked at, taken down."""

from __future__ import annotations

import base64
import json
import os
import secrets
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
RESEARCHERS = 3


@dataclass(frozen=True)
class System:
    """A running compose project, and how the host reaches it."""

    redis_url: str
    flower_url: str
    flower_log_in: str
    compose: list[str]

    def in_compose(self, *arguments: str) -> str:
        return run([*self.compose, *arguments])

    def handoff(self, *arguments: str) -> str:
        """The command as someone on the host types it."""
        return run([sys.executable, "-m", "supervisor.cli.main", *arguments], {"HANDOFF_REDIS_URL": self.redis_url})

    def flower(self, path: str, *, log_in: bool = True) -> Any:
        request = urllib.request.Request(f"{self.flower_url}{path}")
        if log_in:
            request.add_header("Authorization", "Basic " + base64.b64encode(self.flower_log_in.encode()).decode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)


def run(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Up, with an .env of its own: whoever runs this may have the real system running beside it."""
    password, flower_password = secrets.token_hex(12), secrets.token_hex(12)
    redis_port, flower_port = free_port(), free_port()
    env_file = tmp_path_factory.mktemp("compose") / "env"
    env_file.write_text(
        f"REDIS_PASSWORD={password}\nREDIS_PORT={redis_port}\nFLOWER_BASIC_AUTH=admin:{flower_password}\nFLOWER_PORT={flower_port}\n"
        "WORKER_SLOTS=1\n"  # one handoff at a time: three of them need three containers
    )
    compose = ["docker", "compose", "--env-file", str(env_file), "--project-name", f"handoff-test-{secrets.token_hex(3)}"]
    try:
        run([*compose, "build", "--quiet"])
        try:
            run([*compose, "up", "-d", "--wait", "--wait-timeout", "180", "--scale", f"researcher={RESEARCHERS}"])
        except AssertionError as error:
            raise AssertionError(run([*compose, "logs", "--tail", "20"])) from error
        yield System(
            f"redis://:{password}@127.0.0.1:{redis_port}/0", f"http://127.0.0.1:{flower_port}", f"admin:{flower_password}", compose
        )
    finally:
        run([*compose, "down", "--volumes", "--timeout", "5"])


def test_every_container_is_healthy_and_none_can_do_more_than_it_must(system: System) -> None:
    states = [json.loads(line) for line in system.in_compose("ps", "--format", "json").splitlines()]

    assert {state["Health"] for state in states} == {"healthy"}, states
    assert sum(state["Service"] == "researcher" for state in states) == RESEARCHERS
    user = system.in_compose("exec", "-T", "researcher", "id", "-u").strip()
    capabilities = system.in_compose("exec", "-T", "researcher", "grep", "CapEff", "/proc/self/status").split()[1]
    assert (user, int(capabilities, 16)) == ("10001", 0)


def test_a_job_from_the_host_is_done_by_researchers_in_different_containers(system: System) -> None:
    request = "Compare Qdrant, pgvector and Milvus for a team that needs filtering and durable storage"
    job_id = system.handoff("submit", request, "--docs", "examples/vector-databases").split()[-1]

    result = json.loads(system.handoff("result", job_id, "--json", "--wait", "120"))

    assert result["status"] == "ok", result
    assert result["citations"]
    tasks = wait_until(lambda: _done(system, "specialist.researcher", RESEARCHERS), what="the researchers in Flower")
    assert len({task["worker"] for task in tasks}) > 1, tasks


def test_flower_answers_those_who_log_in_and_nobody_else(system: System) -> None:
    assert system.flower("/api/workers?refresh=1")
    with pytest.raises(urllib.error.HTTPError) as refused:
        system.flower("/api/workers", log_in=False)

    assert refused.value.code == 401
    refused.value.close()


def test_a_stop_takes_less_than_its_grace_and_loses_nothing(system: System) -> None:
    system.in_compose("restart", "--timeout", "45", "researcher", "redis")
    system.in_compose("up", "-d", "--wait", "--wait-timeout", "120", "--scale", f"researcher={RESEARCHERS}")

    assert system.handoff("list")


def _done(system: System, name: str, fewest: int) -> list[dict[str, Any]]:
    """The tasks of this name that Flower shows as done; none until there are enough."""
    tasks = [task for task in system.flower(f"/api/tasks?taskname={name}").values() if task["state"] == "SUCCESS"]
    return tasks if len(tasks) >= fewest else []
