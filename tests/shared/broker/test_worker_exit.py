"""A worker process exits although threads of its tasks never end."""

from __future__ import annotations

import subprocess
import sys

import pytest

THREAD = "threading.Thread(target=threading.Event().wait).start()"
EXECUTOR = "ThreadPoolExecutor().submit(threading.Event().wait)"
SCRIPT = """
import threading
from concurrent.futures import ThreadPoolExecutor

from handoff_queue.shared.broker.isolated_worker import limit_wait_for_threads

start = threading.Thread.start


def start_as_python_3_12(thread):
    if threading._SHUTTING_DOWN:
        raise RuntimeError("can't create new thread at interpreter shutdown")
    start(thread)


threading.Thread.start = start_as_python_3_12

{leaves_behind}
limit_wait_for_threads({exit_code})
"""


def get_exit_code(leaves_behind: str, exit_code: int) -> int:
    script = SCRIPT.format(leaves_behind=leaves_behind, exit_code=exit_code)
    return subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode


@pytest.mark.slow
@pytest.mark.parametrize("leaves_behind", [THREAD, EXECUTOR])
def test_a_process_ends_without_its_threads_and_with_its_exit_code(leaves_behind: str) -> None:
    assert get_exit_code(leaves_behind, 3) == 3


@pytest.mark.slow
def test_a_process_without_endless_threads_exits_normally() -> None:
    assert get_exit_code("", 3) == 0
