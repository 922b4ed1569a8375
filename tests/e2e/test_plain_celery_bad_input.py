"""The `celery` command reports an invalid setting in one line without its value, as our own
commands do.

A worker runs once in a new interpreter. The other tests fork the command.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from tests import forked_processes
from tests.e2e.commands import BAD_INPUT, ROOT, error_line

pytestmark = pytest.mark.slow
COMMANDS = [
    ("handoff_queue.workers.app", "worker"),
    ("handoff_queue.supervisor.app", "worker"),
    ("handoff_queue.supervisor.app", "flower"),
]
LOG_IN = {"FLOWER_BASIC_AUTH": "admin:a-word-of-this-test"}


def celery(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command, forked."""
    return forked_processes.run(*command_of(*arguments, **environment), ROOT, "", 60.0)


def command_of(*arguments: str, **environment: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and all its variables."""
    command = [sys.executable, "-m", "celery", "-A", *arguments]
    return command, {**os.environ, "PYTHONPATH": str(ROOT), **environment}


@pytest.mark.parametrize(("app", "command"), COMMANDS)
def test_an_invalid_url_is_reported_in_one_line_without_its_password(
    app: str, command: str
) -> None:
    settings = {"HANDOFF_REDIS_URL": "redis://:can#ary@localhost:6379/0", **LOG_IN}
    is_cold = (app, command) == COMMANDS[0]
    run = forked_processes.run_cold if is_cold else forked_processes.run
    completed = run(*command_of(app, command, **settings), ROOT, "", 60.0)

    line = error_line(completed, BAD_INPUT)

    assert "HANDOFF_REDIS_URL" in line
    assert "can#ary" not in line


@pytest.mark.parametrize(("app", "command"), COMMANDS)
def test_a_placeholder_as_the_password_of_redis_is_refused(app: str, command: str) -> None:
    url = "redis://:change-me-redis@localhost:6379/0"
    completed = celery(app, command, HANDOFF_REDIS_URL=url, **LOG_IN)

    line = error_line(completed, BAD_INPUT)

    assert "HANDOFF_REDIS_URL" in line
    assert "change-me" not in line


@pytest.mark.parametrize("source", ["variable", "option"])
def test_a_placeholder_as_the_password_of_flower_is_refused(source: str) -> None:
    log_in = "admin:change-me-flower"
    option = [f"--basic_auth={log_in}"] if source == "option" else []
    variable = {"FLOWER_BASIC_AUTH": log_in} if source == "variable" else {}

    line = error_line(
        celery("handoff_queue.supervisor.app", "flower", *option, **variable), BAD_INPUT
    )

    assert "FLOWER_BASIC_AUTH" in line
    assert "change-me" not in line


@pytest.mark.parametrize("source", ["variable", "option"])
def test_a_taken_flower_port_is_named_with_its_setting(source: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        option = [f"--port={port}"] if source == "option" else []
        variable = {"FLOWER_PORT": port} if source == "variable" else {}
        completed = celery(
            "handoff_queue.supervisor.app", "flower", "--address=127.0.0.1", *option, **variable
        )

    line = error_line(completed, BAD_INPUT)

    assert f"port {port} is taken" in line
    assert "--port or FLOWER_PORT" in line


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (["--port=0"], "set FLOWER_BASIC_AUTH to user:password"),
        (["--port=0", "--address=0.0.0.0"], "--address=127.0.0.1"),
        (["--persistent=True", "--db=/no/such/folder/state"], "the folder /no/such/folder does"),
    ],
)
def test_flower_refuses_pages_without_a_log_in_and_a_missing_folder(
    options: list[str], remedy: str
) -> None:
    assert remedy in error_line(
        celery("handoff_queue.supervisor.app", "flower", *options), BAD_INPUT
    )


@pytest.mark.parametrize("option", ["--port=99999", "--port=http", "--max_tasks=many"])
def test_an_invalid_option_of_flower_is_reported_in_one_line(option: str) -> None:
    assert "Flower" in error_line(
        celery("handoff_queue.supervisor.app", "flower", option), BAD_INPUT
    )
