"""The watchdog ends a frozen process, but ends no process because of a frozen Redis."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from handoff_queue.shared.local.child_process_restarts import Processes
from handoff_queue.shared.local.redis_server import PrivateRedis
from tests.waiting import MAX_WAIT_S

LEASE_S = 1.0


@contextmanager
def claim_holder(url: str, ending: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds three claims and waits for a line on its stdin."""
    command = [
        sys.executable,
        "-m",
        "tests.shared.store.claim_holder_process",
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


def let_continue(holder: subprocess.Popen[str]) -> None:
    assert holder.stdin is not None
    holder.stdin.write("go on\n")
    holder.stdin.flush()


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_redis_that_is_silent_for_longer_than_the_watchdogs_time_ends_no_process(
    processes: Processes, tmp_path: Path
) -> None:
    url = PrivateRedis(processes, tmp_path, append_only=False).start()

    with claim_holder(url, "lives") as holder:
        os.kill(processes.get_pids()["redis"], signal.SIGSTOP)
        try:
            let_continue(holder)
            assert holder.stdout is not None
            assert "alive\n" in holder.stdout
        finally:
            os.kill(processes.get_pids()["redis"], signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_process_that_holds_its_interpreter_lock_is_ended(redis_url: str) -> None:
    with claim_holder(redis_url, "freezes") as holder:
        let_continue(holder)
        _, output = holder.communicate(timeout=MAX_WAIT_S)

        assert holder.returncode == 1
        assert "Timeout" in output
        assert "claim_holder_process.py" in output
