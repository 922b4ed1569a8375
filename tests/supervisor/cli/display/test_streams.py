"""Commands behave well if standard output or standard error is full, closed or without a reader.

The commands are forked. A script runs in a new interpreter, because only that can begin with closed
streams.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked_processes

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[4]
FULL_DEVICE = "/dev/full"
"""Each write to it fails with ENOSPC, as on a full disk."""
PRINTING_SCRIPT = """
import logging, sys
from rich.console import Console
from handoff_queue.supervisor.cli.display.terminal import print_message
from handoff_queue.supervisor.cli.errors import run_guarded
from handoff_queue.supervisor.cli.display.terminal import use_standard_streams
from handoff_queue.supervisor.cli.display.terminal import get_stderr, print_progress, write_line

def command():
    print_message("a remark")
    print_progress("progress")
    get_stderr().print("a table")
    Console(stderr=True).print("a library's table")
    logging.warning("a log line")
    print("a warning", file=sys.stderr)
    write_line("the answer")

use_standard_streams()
run_guarded(command)
"""


MAIN = ("-P", "-m", "handoff_queue.supervisor.cli.main")


def run_in_shell(redirections: str, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirections}', "sh", *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


def run_script(redirections: str, script: str) -> subprocess.CompletedProcess[str]:
    return run_in_shell(redirections, sys.executable, "-c", script)


def run_handoff(redirections: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_in_shell(redirections, forked_processes.python(), *MAIN, *arguments)


@pytest.mark.parametrize("redirection", [f"2>{FULL_DEVICE}", "2>&-", "2</dev/null", "2>&- <&-"])
def test_an_answer_is_printed_even_if_stderr_cannot_be_written(redirection: str) -> None:
    process = run_script(redirection, PRINTING_SCRIPT)

    assert (process.returncode, process.stdout) == (0, "the answer\n")


def test_a_full_standard_output_gives_one_line_that_repeats_the_lost_output() -> None:
    process = run_script(f">{FULL_DEVICE}", PRINTING_SCRIPT)

    assert process.returncode == 1
    assert process.stderr.splitlines()[-1] == (
        "handoff: cannot write to standard output: No space left on device;"
        " the line was: the answer"
    )
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
def test_help_that_cannot_be_written_is_one_line_and_exit_code_1(arguments: list[str]) -> None:
    process = run_handoff(f">{FULL_DEVICE}", *arguments)

    assert process.returncode == 1
    assert process.stderr == "handoff: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["run", "--help"], ["--version"], ["list", "-h"]]
)
def test_help_without_a_reader_is_not_an_error(arguments: list[str]) -> None:
    """A reader such as `head -1` closes the pipe."""
    reads, writes = os.pipe()
    os.close(reads)
    process = subprocess.run(
        [forked_processes.python(), *MAIN, *arguments],
        stdout=writes,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        cwd=ROOT,
    )
    os.close(writes)

    assert (process.returncode, process.stderr) == (0, "")


def test_a_wrong_option_has_its_exit_code_without_a_reader() -> None:
    assert run_handoff(f"2>{FULL_DEVICE}", "run", "--no-such-option").returncode == 2


def test_a_slow_reader_of_a_pipe_that_does_not_block_gets_everything() -> None:
    """Programs such as Node.js start commands with pipes that do not block."""
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    script = (
        "from handoff_queue.supervisor.cli.display.terminal import use_standard_streams\n"
        "from handoff_queue.supervisor.cli.display.terminal import print_progress, write_line\n"
        "use_standard_streams()\n"
        "print_progress('a' * 300_000)\n"
        "write_line('b' * 300_000)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=writes, stderr=writes, cwd=ROOT
    )
    os.close(writes)
    with os.fdopen(reads) as pipe:
        text = pipe.read()

    assert process.wait(60) == 0
    assert text == "a" * 300_000 + "\n" + "b" * 300_000 + "\n"


def test_a_file_that_a_command_opens_never_gets_the_number_of_a_closed_stream() -> None:
    script = (
        "from handoff_queue.supervisor.cli.display.terminal import use_standard_streams\n"
        "use_standard_streams()\n"
        "number = open('/dev/null').fileno()\n"
        "raise SystemExit(0 if number > 2 else 1)\n"
    )

    assert run_script(">&- 2>&- <&-", script).returncode == 0
