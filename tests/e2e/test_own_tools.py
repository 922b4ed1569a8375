"""What a user's tool does to the thread that runs it costs no slot of its worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.messages_server import Json, MessagesServer, Reply, calls, said_in
from tests.e2e.fleet import QUICK, Fleet, Script
from tests.running_system import SUPERVISOR, over, running_system

pytestmark = pytest.mark.slow

SLOTS = 2
TOOLS = '''
"""Tools that end their thread, or never return."""

import asyncio
import threading

from workers.tools.marks import tool


class OfTheirOwn(BaseException):
    """What no `except Exception` catches."""


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
'''
SPECIALIST = """---
name: breaker
description: Breaks things.
tools: [end_thread, never_return]
max_turns: 4
---
You break things, whatever you are asked to do.
"""


class Breaks(Script):
    """The same model; its first turn calls the tools that never return as they should."""

    def __call__(self, request: Json) -> Reply:
        is_first = not any(message["role"] == "assistant" for message in request["messages"])
        if is_first and "Do broken" in said_in(request):
            return calls(*(("end_thread", {"number": n}) for n in range(5)), ("never_return", {}))
        return super().__call__(request)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A supervisor and one worker."""
    for folder, name, text in (
        ("tools", "breaking.py", TOOLS),
        ("specialists", "breaker.md", SPECIALIST),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    script = Breaks()
    folders = {
        "HANDOFF_TOOLS_DIRS": str(tmp_path / "tools"),
        "HANDOFF_SPECIALISTS_DIRS": str(tmp_path / "specialists"),
    }
    with (
        MessagesServer(script) as server,
        running_system(tmp_path, (SUPERVISOR,), over(server, **QUICK, **folders)) as system,
    ):
        worker = (
            "-A",
            "workers.app",
            "worker",
            "-n",
            "worker@%h",
            "-Q",
            "breaker",
            "-c",
            str(SLOTS),
        )
        system.processes.start(system.celery("worker", *worker))
        system.processes.wait_until_ready()
        jobs = system.jobs()
        yield Fleet(system, server, script, jobs)
        jobs.ledger.connection.close()


def test_tools_that_end_their_threads_or_hang_keep_no_slot(fleet: Fleet) -> None:
    fleet.model.specialists["bad"] = "breaker"
    steps: dict[str, Any] = {f"broken{n}": "" for n in range(3 * SLOTS)}

    fleet.ends_well(fleet.submit("bad", **steps))

    (worker,) = fleet.jobs.ledger.roles.announcements()
    assert (worker.slots, worker.lost_slots) == (SLOTS, 0)
