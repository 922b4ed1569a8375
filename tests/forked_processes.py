"""Celery processes and commands that start quickly: forked from a process that has imported
everything (`shared.local.fork_server`).

A forked process behaves like any other process. A test that proves a cold start asks for it:
`Handoff(folder, is_cold=True)`, `running_system(..., is_cold=True)`, or `python -m celery`.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile

from handoff_queue.shared.local.fork_server import ForkedProcess, ForkServer, can_be
from handoff_queue.supervisor.cli.celery_process import CELERY_MODULES, LATER, ROOMS
from handoff_queue.supervisor.cli.commands import ENTRIES

ROOT = Path(__file__).parents[1]
COMMANDS = sorted(
    {f"handoff_queue.supervisor.cli.{entry.place.partition(':')[0]}" for entry in ENTRIES.values()}
)
AS_THEY_GO = (
    "handoff_queue.supervisor.client.client",
    "handoff_queue.supervisor.cli.display.answer",
    "handoff_queue.supervisor.cli.display.screen",
    "handoff_queue.supervisor.cli.display.job_report",
    "typer.rich_utils",
)
"""What commands import when they run."""


def nursery() -> ForkServer | None:
    """The one of this test process; it ends with it. None where it could not live: its
    children are no one's but the main thread's.
    """
    is_at_home = threading.current_thread() is threading.main_thread()
    return _started() if can_be() and (is_at_home or _started.cache_info().currsize) else None


@cache
def _started() -> ForkServer:
    own = ForkServer(
        (*CELERY_MODULES, *LATER, *ROOMS, *COMMANDS, *AS_THEY_GO),
        {**os.environ, "PYTHONPATH": str(ROOT)},
    ).__enter__()
    atexit.register(own.__exit__, None, None, None)
    return own


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    stdin: str,
    timeout_s: float,
) -> subprocess.CompletedProcess[str]:
    """What `run_cold` does, forked if that is the same.

    Raises:
        subprocess.TimeoutExpired: it was killed then.
    """
    warm = nursery()
    if warm is None or not warm.can_fork(command, environment):
        return run_cold(command, environment, folder, stdin, timeout_s)
    with TemporaryFile("w+") as given, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        given.write(stdin)
        given.seek(0)
        process = warm.fork(
            command,
            environment,
            out.fileno(),
            errors=err.fileno(),
            stdin=given.fileno(),
            folder=folder,
        )
        try:
            exit_code = process.wait(timeout_s)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, exit_code, out.read(), err.read())


def run_cold(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    stdin: str,
    timeout_s: float,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        cwd=folder,
        env=environment,
    )


def start(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, out: int, err: int
) -> subprocess.Popen[bytes] | ForkedProcess:
    """What `start_cold` does, forked if that is the same."""
    warm = nursery()
    if warm is None or not warm.can_fork(command, environment):
        return start_cold(command, environment, folder, out, err)
    process = warm.fork(command, environment, out, errors=err, folder=folder)
    process.begun()
    return process


def start_cold(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, out: int, err: int
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdout=out,
        stderr=err,
        cwd=folder,
        env=environment,
        preexec_fn=_hear_ctrl_c,  # noqa: PLW1509 (it only sets a signal)
    )


def _hear_ctrl_c() -> None:
    """As in a terminal: a test run in the background of a script ignores SIGINT, and its
    children would inherit that.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
