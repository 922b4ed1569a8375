"""A separate Compose project for tests, so that the real system can run on the same machine."""

from __future__ import annotations

import base64
import json
import os
import secrets
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Project:
    """A running Compose project and its addresses on the host."""

    redis_url: str
    flower_url: str
    flower_log_in: str
    compose: list[str]

    def in_compose(self, *arguments: str, **environment: str) -> str:
        """Run a command of Docker Compose. `environment` overrides the project's .env."""
        return run([*self.compose, *arguments], environment)

    def up(self, *arguments: str, **environment: str) -> None:
        """Healthy when it returns: seconds after, on a machine that has nothing else to do."""
        try:
            self.in_compose(
                "up", "-d", "--wait", "--wait-timeout", "300", *arguments, **environment
            )
        except AssertionError as error:
            raise AssertionError(self.in_compose("logs", "--tail", "20")) from error

    def containers(self, service: str) -> list[str]:
        """Their ids; the first twelve characters are their host names."""
        return self.in_compose("ps", "-q", "--no-trunc", service).split()

    def handoff(self, *arguments: str) -> str:
        """The command as someone on the host types it."""
        return run(
            [sys.executable, "-m", "handoff_queue.supervisor.cli.main", *arguments],
            {"HANDOFF_REDIS_URL": self.redis_url},
        )

    def flower(self, path: str, *, log_in: bool = True) -> Any:
        request = urllib.request.Request(f"{self.flower_url}{path}")
        if log_in:
            request.add_header(
                "Authorization", "Basic " + base64.b64encode(self.flower_log_in.encode()).decode()
            )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)


@contextmanager
def running_project(folder: Path, settings: Mapping[str, str], *up: str) -> Iterator[Project]:
    """Build and start the project, yield it when it is healthy, and remove it with its volumes.

    `settings`: lines of its .env, in addition to passwords and ports. `up`: arguments of `docker
    compose up`.
    """
    password, flower_password = secrets.token_hex(12), secrets.token_hex(12)
    redis_port, flower_port = free_port(), free_port()
    lines = {
        "REDIS_PASSWORD": password,
        "REDIS_PORT": redis_port,
        "FLOWER_BASIC_AUTH": f"admin:{flower_password}",
        "FLOWER_PORT": flower_port,
        **settings,
    }
    env_file = folder / "env"
    env_file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    compose = [
        "docker",
        "compose",
        "--env-file",
        str(env_file),
        "--project-name",
        f"handoff-test-{secrets.token_hex(3)}",
    ]
    project = Project(
        f"redis://:{password}@127.0.0.1:{redis_port}/0",
        f"http://127.0.0.1:{flower_port}",
        f"admin:{flower_password}",
        compose,
    )
    try:
        project.in_compose("build", "--quiet")
        project.up(*up)
        yield project
    finally:
        project.in_compose("down", "--volumes", "--timeout", "5")


def run(command: list[str], environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
