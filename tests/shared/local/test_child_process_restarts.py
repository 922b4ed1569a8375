"""Child processes are started, restarted and ended, and none outlives its parent."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from handoff_queue.shared.local import parent_death_guard
from handoff_queue.shared.local.child_process_restarts import (
    MAX_RESTARTS,
    RESTART_WINDOW_S,
    ChildSpec,
    Processes,
    RestartLimiter,
)
from handoff_queue.shared.local.run_directory import RunDirectory
from handoff_queue.shared.types.errors import UserError
from tests.process_states import is_gone
from tests.shared.local.parent_process import UNSTOPPABLE
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
MAX_ORPHAN_S = 5.0
"""Maximum time in seconds that a process outlives a killed parent."""


def waiting_child(name: str) -> ChildSpec:
    code = (
        "import os, pathlib, signal; print('up', flush=True);"
        " pathlib.Path(os.environ['HANDOFF_READY_FILE']).touch(); signal.pause()"
    )
    return ChildSpec(name, [sys.executable, "-c", code])


def test_no_process_outlives_a_killed_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.shared.local.parent_process", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids: dict[str, int] = json.loads(parent.stdout.readline())
        assert set(pids) == {"redis", "worker", "deaf"}

        parent.send_signal(signal.SIGKILL)
        parent.wait()

        wait_until(
            lambda: all(map(is_gone, pids.values())),
            timeout_s=MAX_ORPHAN_S,
            expected="the end of the children",
        )

    with RunDirectory(tmp_path) as run:
        assert list(tmp_path.iterdir()) == [run.path], (
            "the next run removes the folder that the killed one left"
        )


def test_without_the_kernels_help_a_watcher_ends_orphans(tmp_path: Path) -> None:
    """The test uses the fallback for systems without the kernel's signal."""
    child = (
        f"import os, pathlib; pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()));"
        f" {UNSTOPPABLE}"
    )
    pretend = (
        "import runpy, sys; sys.platform = 'other';"
        f" runpy.run_path({parent_death_guard.__file__!r}, run_name='__main__')"
    )
    parent_code = (
        f"import os, subprocess, sys;subprocess.Popen([sys.executable, '-c', {pretend!r},"
        f" str(os.getpid()), sys.executable, '-c', {child!r}]).wait()"
    )
    with subprocess.Popen([sys.executable, "-c", parent_code]) as parent:
        pid = int(
            wait_until(
                lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(),
                expected="the child",
            )
            or 0
        )

        parent.send_signal(signal.SIGKILL)
        parent.wait()

        wait_until(lambda: is_gone(pid), timeout_s=MAX_ORPHAN_S, expected="the end of the child")


def test_a_child_that_was_started_in_a_short_lived_thread_stays(processes: Processes) -> None:
    """The kernel sends its signal when the starting *thread* ends. A web backend starts processes
    in threads.
    """
    starter = threading.Thread(target=processes.start, args=(waiting_child("one"),))
    starter.start()
    starter.join()
    processes.wait_until_ready()
    pid = processes.get_pids()["one"]

    processes.start(waiting_child("two"))
    processes.wait_until_ready()

    assert processes.get_pids()["one"] == pid


def test_a_child_that_dies_is_started_again(processes: Processes) -> None:
    processes.start(waiting_child("one"))
    processes.wait_until_ready()
    first = processes.get_pids()["one"]

    os.kill(first, signal.SIGKILL)

    second = wait_until(
        lambda: processes.get_pids().get("one", first) != first and processes.get_pids().get("one"),
        expected="another process",
    )
    processes.wait_until_ready()
    assert second
    assert processes.get_log_path("one").read_text() == "up\nup\n"


def test_a_child_that_cannot_stay_up_is_given_up_with_the_end_of_its_log(
    processes: Processes,
) -> None:
    processes.start(
        ChildSpec("bad", [sys.executable, "-c", "print('no such thing'); raise SystemExit(1)"])
    )

    with pytest.raises(
        UserError, match=r"bad does not start: fix .*/bad\.log:\n(no such thing\n?)+"
    ):
        processes.wait_until_ready()

    assert "no such thing" in processes.read_log_ends_of_broken_children()["bad"]
    assert processes.get_log_path("bad").read_text().count("no such thing") == MAX_RESTARTS + 1


def test_deaths_of_long_ago_count_no_more() -> None:
    deaths = RestartLimiter()

    assert [deaths.record_death(float(second)) for second in range(MAX_RESTARTS)] == [1, 2, 3, 4, 5]
    assert deaths.record_death(RESTART_WINDOW_S + 2) == MAX_RESTARTS - 2
    assert deaths.record_death(3 * RESTART_WINDOW_S) == 1


@pytest.mark.parametrize("is_killed_on_purpose", [False, True])
def test_a_child_is_broken_after_too_many_deaths_unless_it_is_killed_on_purpose(
    is_killed_on_purpose: bool,
) -> None:
    deaths = RestartLimiter(is_killed_on_purpose=is_killed_on_purpose)
    reported = []
    for second in range(MAX_RESTARTS + 1):
        deaths.record_death(float(second))
        reported.append(deaths.is_broken)

    assert reported == [False] * MAX_RESTARTS + [not is_killed_on_purpose]


def test_a_program_that_does_not_exist_is_one_clear_line(processes: Processes) -> None:
    processes.start(ChildSpec("absent", ["no-such-program"], restart=False))

    with pytest.raises(UserError, match="cannot start no-such-program: No such file"):
        processes.wait_until_ready()


def test_a_child_that_is_never_ready_is_an_error_in_time(processes: Processes) -> None:
    processes.start(ChildSpec("slow", [sys.executable, "-c", "import signal; signal.pause()"]))

    with pytest.raises(
        UserError, match=r"slow was not ready within 0 s: start it again, .*/slow\.log"
    ):
        processes.wait_until_ready(timeout_s=0.1)


def test_stopping_kills_unresponsive_processes_and_ends_the_store_last(tmp_path: Path) -> None:
    order = tmp_path / "order"
    tells = (
        f"import os, pathlib, signal, sys\ndef end(*_):\n with open({str(order)!r}, 'a') as f:"
        " f.write(sys.argv[1] + ' ')\n sys.exit()\nsignal.signal(signal.SIGTERM, end);"
        " pathlib.Path(os.environ['HANDOFF_READY_FILE']).touch(); signal.pause()"
    )
    processes = Processes(tmp_path)
    processes.start(ChildSpec("store", [sys.executable, "-c", tells, "store"], ends_last=True))
    processes.start(ChildSpec("worker", [sys.executable, "-c", tells, "worker"]))
    processes.start(ChildSpec("deaf", [sys.executable, "-c", UNSTOPPABLE], is_ready=lambda: True))
    processes.wait_until_ready()
    pids = processes.get_pids()

    processes.stop(grace_s=1.0)

    assert all(map(is_gone, pids.values()))
    assert order.read_text() == "worker store "


def test_importing_the_watcher_module_runs_nothing() -> None:
    assert runpy.run_path(parent_death_guard.__file__)["build_guarded_command"](["a"], 7)[-2:] == [
        "7",
        "a",
    ]
