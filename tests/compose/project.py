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

from handoff_queue.shared.settings.settings import Settings

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Project:
    """A running Compose project and its addresses on the host."""

    redis: str
    """Host and port of Redis."""
    keys: Path
    """A copy of the folder with all keys, after `copy_keys`."""
    flower_url: str
    flower_log_in: str
    console_url: str
    compose: list[str]

    def compose_command(self, *arguments: str, **environment: str) -> str:
        """Run a command of Docker Compose. `environment` overrides the project's .env."""
        return run([*self.compose, *arguments], environment)

    def up(self, *arguments: str, **environment: str) -> None:
        """Start the services, and return when they are healthy.

        Raises:
            AssertionError: a service did not become healthy. The message has the last log lines.
        """
        try:
            self.compose_command(
                "up", "-d", "--wait", "--wait-timeout", "300", *arguments, **environment
            )
        except AssertionError as error:
            raise AssertionError(self.compose_command("logs", "--tail", "20")) from error

    def containers(self, service: str) -> list[str]:
        """Return the ids of a service's containers. The first 12 characters are the host name."""
        return self.compose_command("ps", "-q", "--no-trunc", service).split()

    def copy_keys(self) -> None:
        """Copy the keys from the volume of the project to the host."""
        self.compose_command("cp", "keys:/etc/handoff/keys", str(self.keys))

    def url_of(self, user: str) -> str:
        """Return the URL of a Redis user, for a program on the host."""
        url = (self.keys / f"{user}.redis-url").read_text().strip()
        return url.replace("@redis:6379", f"@{self.redis}")

    def client_settings(self) -> Settings:
        """Return the settings of a client that signs."""
        return Settings(offline=True, keys=self.keys, signing_key=self.keys / "client.key")

    def handoff(self, *arguments: str) -> str:
        """Run the `handoff` command on the host as a client, and return its output."""
        return run(
            [sys.executable, "-m", "handoff_queue.supervisor.cli.main", *arguments],
            {
                "HANDOFF_REDIS_URL": self.url_of("client"),
                "HANDOFF_KEYS": str(self.keys),
                "HANDOFF_SIGNING_KEY": str(self.keys / "client.key"),
            },
        )

    def flower(self, path: str, *, is_logged_in: bool = True) -> Any:
        request = urllib.request.Request(f"{self.flower_url}{path}")
        if is_logged_in:
            request.add_header(
                "Authorization", "Basic " + base64.b64encode(self.flower_log_in.encode()).decode()
            )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)


@contextmanager
def running_project(folder: Path, settings: Mapping[str, str], *up: str) -> Iterator[Project]:
    """Build and start the project, yield it when it is healthy, and remove it with its volumes.

    `settings`: lines of its .env, in addition to password and ports. `up`: arguments of `docker
    compose up`.
    """
    flower_password = secrets.token_hex(12)
    redis_port, flower_port, console_port = free_port(), free_port(), free_port()
    lines = {
        "REDIS_PORT": redis_port,
        "FLOWER_BASIC_AUTH": f"admin:{flower_password}",
        "FLOWER_PORT": flower_port,
        "CONSOLE_PORT": console_port,
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
        f"127.0.0.1:{redis_port}",
        folder / "keys",
        f"http://127.0.0.1:{flower_port}",
        f"admin:{flower_password}",
        f"http://127.0.0.1:{console_port}",
        compose,
    )
    try:
        project.compose_command("build", "--quiet")
        project.up(*up)
        project.copy_keys()
        yield project
    finally:
        project.compose_command("down", "--volumes", "--timeout", "5")


def run(command: list[str], environment: Mapping[str, str] | None = None) -> str:
    completed = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, f"{' '.join(command)}\n{completed.stdout}\n{completed.stderr}"
    return completed.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
