"""With Celery's option `--logfile`, a worker or a supervisor logs to the file, however it is
started.

Celery's commands are forked, and so are the processes in the background that these commands start.
`celery multi` starts each node with `celery worker --detach`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests import forked_processes
from tests.e2e.commands import ROOT
from tests.process_states import is_gone
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

APPS = {"handoff_queue.supervisor.app": "supervisor", "handoff_queue.workers.app": "researcher"}
READY = "ready."
"""End of the line `NODE ready.`, which Celery logs."""


def environment(folder: Path, url: str) -> dict[str, str]:
    return {
        **os.environ,
        "HANDOFF_REDIS_URL": url,
        "HANDOFF_OFFLINE": "true",
        "HANDOFF_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": str(ROOT),
    }


def run(folder: Path, url: str, *arguments: str) -> str:
    """Run a Celery command that starts background processes, and return its output."""
    celery = [sys.executable, "-P", "-m", "celery", *arguments]
    completed = forked_processes.run(
        forked_processes.with_forked_children(celery), environment(folder, url), folder, "", 120
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout + completed.stderr


def text_of(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def pid_in(file: Path) -> int | None:
    text = text_of(file).strip()
    return int(text) if text else None


@contextmanager
def process_of(pid_file: Path) -> Iterator[None]:
    """End the process whose id is in this file when the block ends."""
    try:
        yield
    finally:
        if pid := pid_in(pid_file):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            wait_until(lambda: is_gone(pid), timeout_s=90, expected=f"the end of {pid}")


@pytest.mark.parametrize("app", APPS)
def test_a_worker_in_the_foreground_logs_to_the_file(
    tmp_path: Path, redis_url: str, app: str
) -> None:
    log = tmp_path / "worker.log"
    with (tmp_path / "err").open("wb") as err:
        process = forked_processes.start(
            [
                *(sys.executable, "-m", "celery", "-A", app, "worker", "-l", "INFO"),
                *("-Q", APPS[app], "--logfile", str(log)),
            ],
            environment(tmp_path, redis_url),
            tmp_path,
            err.fileno(),
            err.fileno(),
        )
    try:
        wait_until(lambda: READY in text_of(log), timeout_s=90, expected=f"{READY} in the log")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=90)

    assert READY not in text_of(tmp_path / "err")


def test_a_detached_supervisor_and_worker_of_celery_multi_log_to_their_own_files(
    tmp_path: Path, redis_url: str
) -> None:
    nodes = {"first": "handoff_queue.supervisor.app", "second": "handoff_queue.workers.app"}
    apps_and_queues: list[str] = []
    for node, app in nodes.items():
        apps_and_queues += [f"-A:{node}", app, f"-Q:{node}", APPS[app]]
    with process_of(tmp_path / "first.pid"), process_of(tmp_path / "second.pid"):
        run(
            tmp_path,
            redis_url,
            *("multi", "start", *nodes, *apps_and_queues, "-l", "INFO"),
            *(f"--logfile={tmp_path}/%n.log", f"--pidfile={tmp_path}/%n.pid"),
        )

        for node in nodes:
            log = tmp_path / f"{node}.log"
            wait_until(
                lambda log=log: f"{log.stem}@" in text_of(log) and READY in text_of(log),  # type: ignore[misc]
                timeout_s=90,
                expected=f"{READY} in {log.name}",
            )
