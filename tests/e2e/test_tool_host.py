"""A real worker survives the tools of its users, and its tool host does not survive the worker."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from handoff_queue.testing import Json, Reply, first_message_text, tool_call_reply
from tests.e2e.breaker_fleet import start_breaker_fleet
from tests.e2e.fleet import Fleet, Script
from tests.process_states import is_gone
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

TOOLS = '''
"""Tools that do damage, and a tool that waits."""

import ctypes
import json
import os
import signal
import subprocess
from pathlib import Path


def crash() -> str:
    """Crash."""
    ctypes.string_at(0)
    return "never"


def leave() -> str:
    """End the process."""
    os._exit(3)


def environment() -> dict[str, str]:
    """Return all variables."""
    return dict(os.environ)


def wait(path: str) -> str:
    """Start a process in a session of its own, write all process ids into a file, and wait.

    Args:
        path: The file.
    """
    if os.path.exists(path):
        return "done"
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    Path(path + ".new").write_text(json.dumps([os.getppid(), os.getpid(), child.pid]))
    os.rename(path + ".new", path)
    signal.pause()
    return "never"
'''


class BreakingModel(Script):
    """Script whose first turn calls tools, and which keeps the results of the calls."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.results: list[str] = []
        self.folder = folder

    def __call__(self, request: Json) -> Reply:
        if not any(tool["name"] == "crash" for tool in request.get("tools", ())):
            return super().__call__(request)
        text = first_message_text(request)
        replies = [message for message in request["messages"] if message["role"] == "assistant"]
        if "Do broken" in text and not replies:
            return tool_call_reply(("crash", {}), ("leave", {}), ("environment", {}))
        if "Do waiting" in text and not replies:
            return tool_call_reply(("wait", {"path": str(self.folder / "pids")}))
        if "Do broken" in text:
            blocks = request["messages"][-1]["content"]
            self.results = [str(block.get("content")) for block in blocks]
        return super().__call__(request)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Start a supervisor and one worker."""
    folder = tmp_path_factory.mktemp("fleet")
    with start_breaker_fleet(
        folder,
        BreakingModel(folder),
        TOOLS,
        "crash, leave, environment, wait",
        ANTHROPIC_API_KEY="canary-of-the-model",
    ) as fleet:
        yield fleet


def test_a_crash_of_a_tool_costs_one_result_and_a_tool_sees_no_key_of_its_worker(
    fleet: Fleet,
) -> None:
    pid = fleet.system.processes.get_pids()["worker"]
    fleet.model.specialists["damaged"] = "breaker"

    fleet.wait_for_success(fleet.submit("damaged", broken=""))

    assert isinstance(fleet.model, BreakingModel)
    results = " ".join(fleet.model.results)
    assert "crash crashed (SIGSEGV)" in results
    assert "leave ended its process with exit code 3" in results
    assert "PATH" in results
    assert "canary" not in results
    assert fleet.system.redis_url not in results
    assert fleet.system.processes.get_pids()["worker"] == pid


def test_no_process_of_a_tool_outlives_a_killed_worker(fleet: Fleet) -> None:
    fleet.model.specialists["waits"] = "breaker"
    job_id = fleet.submit("waits", waiting="")
    assert isinstance(fleet.model, BreakingModel)
    file = fleet.model.folder / "pids"
    wait_until(file.exists, expected="the processes of the call")
    host, call, child = json.loads(file.read_text())
    assert os.getpgid(call) == call

    fleet.kill(fleet.pid_of(job_id, "waiting.1"))

    wait_until(
        lambda: all(map(is_gone, (host, call, child))), expected="the end of the host and its calls"
    )
    fleet.wait_for_success(job_id)
