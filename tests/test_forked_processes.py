"""The program that stands in for `python` in a forked command behaves like `python`."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from handoff_queue.shared.settings.ports import free_port
from tests import forked_processes
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python() -> str:
    if forked_processes.shared_fork_server() is None:
        pytest.skip("nothing is forked on this system")
    return forked_processes.python()


@pytest.mark.parametrize(("text", "exit_code"), [("[1]", 0), ("[", 1)])
def test_a_module_has_its_streams_arguments_and_exit_code(
    python: str, text: str, exit_code: int
) -> None:
    completed = subprocess.run(
        [python, "-P", "-m", "json.tool", "--compact"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )

    assert completed.returncode == exit_code
    assert completed.stdout == ("" if exit_code else "[1]\n")
    assert ("Expecting value" in completed.stderr) == bool(exit_code)


def test_other_command_lines_start_a_new_interpreter(python: str) -> None:
    program = "import sys; print('celery' in sys.modules)"

    assert subprocess.check_output([python, "-c", program], text=True) == "False\n"


@contextmanager
def web_server(python: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a process that stays. Yield its stand-in and its port."""
    port = free_port()
    command = [python, "-P", "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: answers(port), expected="the process")
        yield process, port
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_a_signal_reaches_the_process_and_its_stand_in_ends_like_the_process(
    python: str, tmp_path: Path
) -> None:
    with web_server(python, tmp_path) as (process, port):
        process.send_signal(signal.SIGTERM)

        assert process.wait(30) == -signal.SIGTERM
        assert not answers(port)


def test_the_process_ends_with_its_stand_in(python: str, tmp_path: Path) -> None:
    with web_server(python, tmp_path) as (process, port):
        process.kill()

        wait_until(lambda: not answers(port), expected="the end of the process")
