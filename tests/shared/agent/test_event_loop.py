"""An event loop in a thread of its own, whatever becomes of the thread."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from shared.agent.event_loop import EventLoop

IN_A_CHILD = """
import os
from shared.agent.event_loop import EventLoop

async def work():
    pass

loop = EventLoop("reading")
loop.run(work()).result(10)
if child := os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
loop.run(work()).result(10)
os._exit(7)
"""


@pytest.fixture
def no_more_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        yield patched


def test_work_is_done_once_there_may_be_a_thread_again(no_more_threads: pytest.MonkeyPatch) -> None:
    loop, done = EventLoop("reading"), list[str]()

    async def work() -> None:
        done.append("it")

    with pytest.raises(RuntimeError):
        loop.run(work())
    no_more_threads.undo()
    loop.run(work()).result(10)

    assert done == ["it"]


def test_a_child_of_a_fork_has_a_loop_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", IN_A_CHILD], timeout=60, check=False, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (7, "")
