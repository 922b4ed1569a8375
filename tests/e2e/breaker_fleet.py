"""A supervisor and one worker whose specialist `breaker` calls harmful tools of a user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from handoff_queue.testing import MessagesServer
from tests.e2e.fleet import SHORT_LEASES, Fleet, Script
from tests.running_system import SUPERVISOR, model_environment, running_system

SLOTS = 2
"""Slots of the worker."""
SPECIALIST = """---
name: breaker
description: Breaks things.
tools: [{}]
max_turns: 4
---
You break things, whatever you are asked to do.
"""


@contextmanager
def start_breaker_fleet(
    folder: Path, script: Script, tools: str, names: str, **settings: str
) -> Iterator[Fleet]:
    """Start the fleet, and yield it when it is ready.

    Args:
        tools: the Python file with the tools.
        names: names of the tools that the specialist may call, separated by commas.
        settings: more variables of the processes.
    """
    for place, text in (
        (folder / "tools" / "breaking.py", tools),
        (folder / "specialists" / "breaker.md", SPECIALIST.format(names)),
    ):
        place.parent.mkdir()
        place.write_text(text)
    folders = {
        "HANDOFF_TOOLS_DIRS": str(folder / "tools"),
        "HANDOFF_SPECIALISTS_DIRS": str(folder / "specialists"),
    }
    with MessagesServer(script) as server:
        environment = {**model_environment(server, **SHORT_LEASES), **folders, **settings}
        with running_system(folder, (SUPERVISOR,), environment) as system:
            system.start_worker("worker", "handoff_queue.workers.app", "breaker", SLOTS)
            system.processes.wait_until_ready()
            jobs = system.jobs()
            yield Fleet(system, server, script, jobs)
            jobs.store.connection.close()
