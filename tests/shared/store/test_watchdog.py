"""The watchdog ends a frozen process, and no process with a frozen Redis."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from handoff_queue.shared.local.processes import Processes
from handoff_queue.shared.local.redis_server import PrivateRedis

LEASE_S = 1.0


@contextmanager
def a_holder(url: str, ending: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds three claims and waits for a line on its stdin."""
    command = [
        sys.executable,
        "-m",
        "tests.shared.store.a_holder_of_claims",
        url,
        str(LEASE_S),
        ending,
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            yield holder
        finally:
            holder.kill()


def go_on(holder: subprocess.Popen[str]) -> None:
    assert holder.stdin is not None
    holder.stdin.write("go on\n")
    holder.stdin.flush()


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_redis_that_is_silent_for_longer_than_the_watchdogs_time_ends_no_process(
    processes: Processes, tmp_path: Path
) -> None:
    url = PrivateRedis(processes, tmp_path, append_only=False).start()

    with a_holder(url, "lives") as holder:
        os.kill(processes.pids()["redis"], signal.SIGSTOP)
        try:
            go_on(holder)
            assert holder.stdout is not None
            assert "alive\n" in holder.stdout
        finally:
            os.kill(processes.pids()["redis"], signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_process_that_holds_its_interpreter_lock_is_ended(redis_url: str) -> None:
    with a_holder(redis_url, "freezes") as holder:
        go_on(holder)
        _, said = holder.communicate(timeout=30)

        assert holder.returncode == 1
        assert "Timeout" in said
        assert "a_holder_of_claims.py" in said
