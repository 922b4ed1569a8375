"""The idempotency key of a tool call stays the same when another worker repeats the call.

The test kills the worker after the effect of the first call and before its result is stored.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.testing import Json, MessagesServer, Reply, first_message_text, tool_call_reply
from tests.e2e.fleet import SHORT_LEASES, Fleet, Script
from tests.running_system import SUPERVISOR, model_environment, running_system
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

TOOLS = '''
"""A tool that does not return after the effect of its first call."""

import json
import os
import threading

from handoff_queue.workers.tools.tool_decorator import CallContext, tool


@tool(secrets=["OUTBOX"])
def pay(to: str, context: CallContext) -> str:
    """Pay.

    Args:
        to: The payee.
    """
    path = os.environ["OUTBOX"]
    is_first = not os.path.exists(path)
    with open(path, "a") as outbox:
        outbox.write(json.dumps([to, context.idempotency_key, context.attempt]) + "\\n")
    if is_first:
        threading.Event().wait()
    return "paid"
'''
SPECIALIST = """---
name: payer
description: Pays money to payees.
tools: [pay]
max_turns: 4
---
You pay what you are asked to pay.
"""


class PayingModel(Script):
    """Script in which a step called `pay...` pays two payees in two turns."""

    def __call__(self, request: Json) -> Reply:
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        if turn < 2 and re.search(r"Do pay", first_message_text(request)):
            return tool_call_reply(("pay", {"to": ("a", "b")[turn]}))
        return super().__call__(request)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Start a supervisor and two workers."""
    for folder, name, text in (
        ("tools", "paying.py", TOOLS),
        ("specialists", "payer.md", SPECIALIST),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    script = PayingModel()
    settings = {
        "HANDOFF_TOOLS_DIRS": str(tmp_path / "tools"),
        "HANDOFF_SPECIALISTS_DIRS": str(tmp_path / "specialists"),
        "OUTBOX": str(tmp_path / "outbox"),
    }
    with (
        MessagesServer(script) as server,
        running_system(
            tmp_path, (SUPERVISOR,), model_environment(server, **SHORT_LEASES, **settings)
        ) as system,
    ):
        for number in range(2):
            system.start_worker(f"worker{number}", "handoff_queue.workers.app", "payer", 1)
        system.processes.wait_until_ready()
        jobs = system.jobs()
        yield Fleet(system, server, script, jobs)
        jobs.store.connection.close()


def test_a_call_that_another_worker_repeats_has_its_key_and_the_next_call_has_another(
    fleet: Fleet, tmp_path: Path
) -> None:
    fleet.model.specialists["money"] = "payer"
    steps: dict[str, Any] = {"pay": ""}

    job_id = fleet.submit("money", **steps)
    wait_until((tmp_path / "outbox").exists, expected="the first payment")
    fleet.kill(fleet.pid_of(job_id, "pay.1"))
    fleet.wait_for_success(job_id)

    keys = defaultdict[str, list[str]](list)
    for line in (tmp_path / "outbox").read_text().splitlines():
        payee, key, attempt = json.loads(line)
        assert attempt == 1
        keys[payee].append(key)
    assert len(keys["a"]) == 2
    assert len(set(keys["a"])) == 1
    assert len(keys["b"]) == 1
    assert keys["a"][0] != keys["b"][0]
