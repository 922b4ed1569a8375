"""A failpoint fires once over all processes, as its file says. Without a file it costs nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from handoff_queue.shared.observability import failpoints
from handoff_queue.shared.observability.failpoints import FAILPOINTS
from tests.waiting import MAX_WAIT_S, wait_until

PASSING = """
from handoff_queue.shared.observability.failpoints import run_between

class Lost(Exception): pass

done = []
try:
    run_between("script", "turn", lambda: done.append("done"), Lost)
    print(*done, "told")
except Lost:
    print(*done, "lost")
"""


def start_process(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PASSING],
        env={**os.environ, FAILPOINTS: str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )


def outcome(folder: Path) -> tuple[int, str]:
    with start_process(folder) as process:
        output = process.communicate(timeout=MAX_WAIT_S)[0].strip()
        return process.returncode, output


def test_a_process_without_failpoints_runs_no_failpoint() -> None:
    assert failpoints.get_folder() is None
    assert failpoints.run_between("script", "turn", lambda: "answer", KeyError) == "answer"


@pytest.mark.slow
def test_an_armed_failpoint_fires_in_only_one_of_many_processes(tmp_path: Path) -> None:
    (tmp_path / "script.turn.before").write_text("kill")

    with ThreadPoolExecutor(3) as pool:
        outcomes = list(pool.map(outcome, [tmp_path] * 3))

    assert sorted(outcomes) == [(-signal.SIGKILL, ""), (0, "done told"), (0, "done told")]
    assert [path.name.partition("@")[0] for path in tmp_path.iterdir()] == ["script.turn.before"], (
        "and it says who it was"
    )


@pytest.mark.slow
def test_a_dropped_reply_belongs_to_a_completed_command(tmp_path: Path) -> None:
    (tmp_path / "script.turn.after").write_text("drop")

    assert outcome(tmp_path) == (0, "done lost")


@pytest.mark.slow
def test_an_injected_error_is_an_internal_error(tmp_path: Path) -> None:
    (tmp_path / "script.turn.before").write_text("error")

    code, output = outcome(tmp_path)

    assert (code, output) == (1, "")


@pytest.mark.slow
def test_a_point_can_kill_another_process(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (tmp_path / "script.turn.after").write_text(f"kill {other.pid}")

        assert outcome(tmp_path) == (0, "done told")
        assert other.wait(10) == -signal.SIGKILL


@pytest.mark.slow
def test_a_stopped_process_continues_on_a_signal(tmp_path: Path) -> None:
    (tmp_path / "script.turn.before").write_text("stop")
    with start_process(tmp_path) as process:
        wait_until(
            lambda: os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT),
            expected="the stop",
        )
        os.kill(process.pid, signal.SIGCONT)

        assert process.communicate(timeout=MAX_WAIT_S)[0].strip() == "done told"


@pytest.mark.slow
def test_a_frozen_process_continues_after_its_time(tmp_path: Path) -> None:
    (tmp_path / "script.turn.before").write_text("freeze 0.6")
    began = time.monotonic()

    assert outcome(tmp_path) == (0, "done told")
    assert time.monotonic() - began > 0.6


@pytest.mark.slow
@pytest.mark.parametrize("order", ["dance", "drop"])
def test_an_impossible_fault_is_an_error(tmp_path: Path, order: str) -> None:
    (tmp_path / "script.turn.before").write_text(order)

    assert outcome(tmp_path)[0] == 1


def test_a_process_that_waits_for_a_fired_failpoint_may_remove_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed removal would end the process and fail its handoff."""
    (tmp_path / "script.turn.after").write_text("drop")
    rename = Path.rename

    def taken_away_at_once(self: Path, target: Path) -> Path:
        renamed = rename(self, target)
        target.unlink()
        return renamed

    monkeypatch.setattr(Path, "rename", taken_away_at_once)
    monkeypatch.setattr(failpoints, "get_folder", lambda: tmp_path)
    with pytest.raises(TimeoutError, match="the answer is lost"):
        failpoints.reach("script.turn.after", TimeoutError)
