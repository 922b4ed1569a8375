"""A process ends without the teardown of modules, and otherwise like every process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.running_system import ROOT

PROGRAM = """
import atexit, os, sys, threading
from handoff_queue.shared.local.fast_exit import without_teardown
class Object:
    def __del__(self, write=os.write):
        write(1, b"teardown ")
kept = Object()
with without_teardown():
    atexit.register(print, "atexit", end=" ")
    threading.Thread(target=print, args=("thread",), kwargs={"end": " "}).start()
    with without_teardown():
        END
"""
"""A program with an object whose end the teardown shows. The output of `print` is buffered."""


def ended(end: str, redirection: str = "") -> subprocess.CompletedProcess[str]:
    """Run the program in a new interpreter, with this statement at its end."""
    program = PROGRAM.replace("END", end)
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(("end", "exit_code"), [("pass", 0), ("sys.exit()", 0), ("sys.exit(7)", 7)])
def test_threads_and_exit_functions_run_and_no_teardown(end: str, exit_code: int) -> None:
    done = ended(end)

    assert (done.returncode, done.stdout, done.stderr) == (exit_code, "thread atexit ", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "message"), [("sys.exit('so it is')", "so it is"), ("raise ValueError", "ValueError")]
)
def test_python_ends_a_process_with_an_error(end: str, message: str) -> None:
    done = ended(end)

    assert (done.returncode, message in done.stderr) == (1, True)
    assert "atexit" in done.stdout
    assert "teardown" in done.stdout


@pytest.mark.slow
def test_output_that_cannot_be_written_is_reported() -> None:
    done = ended("pass", ">/dev/full")

    assert done.returncode == 120, "Python's exit code for output that it could not write"
    assert "No space left on device" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_is_not_an_error(redirection: str) -> None:
    assert ended("pass", redirection).returncode == 0
