"""A user's tool that damages its thread takes no slot of its worker, and does not keep the worker
from stopping.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import InvalidTool, UserError
from handoff_queue.supervisor.cli.celery_process import check_app
from handoff_queue.testing import Json, Reply, first_message_text, tool_call_reply
from handoff_queue.workers.tools import tool_host
from handoff_queue.workers.tools.hosted_tools import host_tools
from handoff_queue.workers.tools.tool_host import build_tool_limits
from tests import forked_processes
from tests.e2e.breaker_fleet import SLOTS, start_breaker_fleet
from tests.e2e.fleet import Fleet, Script
from tests.refusals import refusal_of
from tests.running_system import ROOT
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

TOOLS = '''
"""Tools that end their thread, or never return."""

import asyncio
import threading

from handoff_queue.workers.tools.tool_decorator import tool


class OfTheirOwn(BaseException):
    """Exception that `except Exception` does not catch."""


ERRORS = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, OfTheirOwn)


def end_thread(number: int) -> str:
    """End the thread that runs this.

    Args:
        number: Which of the errors to raise.
    """
    raise ERRORS[number % len(ERRORS)]("x")


@tool(timeout_s=0.2)
def never_return() -> str:
    """Never return."""
    threading.Event().wait()
    return "never"


@tool(timeout_s=0.2)
async def never_end_a_thread() -> str:
    """Leave a thread behind that Python waits for at the end of the process."""
    await asyncio.to_thread(threading.Event().wait)
    return "never"
'''


SLOW_APP = """
import sys
import threading

sys.stderr.write("handoff: still loading /t/busy.py\\n")
sys.stderr.flush()
threading.Event().wait()
"""
BEGUN_WITHIN_S = 10.0
"""Seconds within which a process begins to load a file, on a slow machine, too."""


class BreakingModel(Script):
    """Script whose first turn calls the tools that end their thread or never return."""

    def __call__(self, request: Json) -> Reply:
        is_first = not any(message["role"] == "assistant" for message in request["messages"])
        if is_first and "Do broken" in first_message_text(request):
            return tool_call_reply(
                *(("end_thread", {"number": n}) for n in range(5)),
                ("never_return", {}),
                ("never_end_a_thread", {}),
            )
        return super().__call__(request)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Start a supervisor and one worker."""
    names = "end_thread, never_return, never_end_a_thread"
    with start_breaker_fleet(
        tmp_path_factory.mktemp("fleet"), BreakingModel(), TOOLS, names
    ) as fleet:
        yield fleet


def test_tools_that_end_their_threads_or_hang_keep_no_slot(fleet: Fleet) -> None:
    fleet.model.specialists["bad"] = "breaker"
    steps: dict[str, Any] = {f"broken{n}": "" for n in range(3 * SLOTS)}

    fleet.wait_for_success(fleet.submit("bad", **steps))

    (worker,) = fleet.jobs.store.presence.read_announcements()
    assert (worker.slots, worker.lost_slots) == (SLOTS, 0)


def test_hanging_tools_do_not_keep_a_stopping_worker_alive(fleet: Fleet) -> None:
    fleet.model.specialists["stopped"] = "breaker"
    fleet.wait_for_success(fleet.submit("stopped", broken=""))
    pid = fleet.system.processes.get_pids()["worker"]

    os.kill(pid, signal.SIGTERM)

    wait_until(
        lambda: fleet.system.processes.get_pids().get("worker") != pid, expected="the worker's end"
    )


def test_a_file_of_tools_may_start_a_thread_while_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "busy.py").write_text(
        TOOLS + "\nthreading.Thread(target=threading.Event().wait).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sys, "executable", forked_processes.python())

    folders = {"HANDOFF_TOOLS_DIRS": str(tmp_path)}
    assert refusal_of(check_app, "handoff_queue.workers.app", folders) is None


def test_a_tools_file_that_blocks_at_import_is_named_early_and_in_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "busy.py").write_text(TOOLS + "\nthreading.Event().wait()\n")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(tool_host, "_SLOW_LOAD_S", BEGUN_WITHIN_S)
    monkeypatch.setattr(tool_host, "LOADED_WITHIN_S", BEGUN_WITHIN_S + 0.1)

    with pytest.raises(InvalidTool, match=rf"^{tmp_path}/busy\.py: not loaded within"):
        host_tools((tmp_path,), build_tool_limits(Settings()))

    assert f"handoff: still loading {tmp_path}/busy.py\n" in capsys.readouterr().err


def test_the_check_of_an_app_names_a_file_that_takes_long_at_once_and_in_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "slow_app.py").write_text(SLOW_APP)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), str(tmp_path))))

    with pytest.raises(UserError, match=r"^/t/busy\.py: not loaded within .* must not block"):
        check_app("slow_app", {}, within_s=BEGUN_WITHIN_S)

    assert capsys.readouterr().err == "still loading /t/busy.py\n"
