"""The program that stands in for `python` in a forked command behaves like `python`. Test
processes are forks only if all test files can be imported.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from handoff_queue.shared.local.fork_server import ForkServer, is_supported
from handoff_queue.shared.settings.ports import find_free_port
from tests import forked_processes, forked_test_processes
from tests.waiting import MAX_WAIT_S, wait_until

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
    port = find_free_port()
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


@pytest.mark.skipif(not is_supported(), reason="nothing is forked on this system")
@pytest.mark.parametrize(("file", "has_pytest"), [("import json", True), ("import absent", False)])
def test_a_test_process_has_imported_nothing_if_a_test_file_cannot_be_imported(
    tmp_path: Path, file: str, has_pytest: bool
) -> None:
    (tmp_path / "test_file.py").write_text(file)
    (tmp_path / "program.py").write_text("import sys; print('pytest' in sys.modules)")
    arguments = ["--noconftest", "-c", os.devnull, "--rootdir", str(tmp_path), str(tmp_path)]
    variables = {
        forked_test_processes.ARGUMENTS: json.dumps(["-p", "xdist", *arguments]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the other plugins take seconds
    }
    environment = forked_processes.environment_with(variables)
    with (
        ForkServer([forked_test_processes.IMPORTS], environment) as server,
        (tmp_path / "output").open("w+") as output,
    ):
        command = [sys.executable, "-m", "program"]
        process = server.fork(command, environment, output.fileno(), folder=tmp_path)

        assert process.wait(MAX_WAIT_S) == 0
        output.seek(0)
        assert output.read() == f"{has_pytest}\n"
