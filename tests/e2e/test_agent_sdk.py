"""A specialist with `runner: agent-sdk` works in a real worker, also through the worker's death."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from handoff_queue import JobStatus, Mode, Request
from handoff_queue.testing import (
    Json,
    MessagesServer,
    Reply,
    answer_properties,
    claim,
    json_reply,
    result_reply,
    running_system,
    tool_call_reply,
)

pytestmark = pytest.mark.slow

SPECIALIST = """---
name: researcher
description: Reads documents and reports their facts. Not for code.
runner: agent-sdk
tools: [search_documents]
---
You report facts. Find them with `search_documents`, and give the source of each.
"""
PLAN = {
    "steps": [
        {
            "id": "facts",
            "specialist": "researcher",
            "task": "Report who wrote the notes.",
            "depends_on": [],
            "fallback": "-",
        }
    ],
    "synthesis": "merge",
    "why": "",
}
QUOTE = "Ada wrote these notes in May."
FILLER = "This sentence says nothing about the notes. " * 3_000
"""So much text that the opening message does not show the document."""


@pytest.mark.usefixtures("forked_children")
def test_a_worker_that_dies_during_a_call_pays_for_no_earlier_call_again(tmp_path: Path) -> None:
    (tmp_path / "researcher.md").write_text(SPECIALIST)
    turns: list[int] = []
    cut = threading.Event()

    def script(request: Json) -> Reply:
        properties = answer_properties(request)
        if "steps" in properties:
            return json_reply(PLAN)
        if "verdict" in properties:
            return json_reply({"verdict": "PASS", "revisions": [], "open_points": []})
        turns.append(len(request["messages"]))
        if len(request["messages"]) == 1:
            return tool_call_reply(("search_documents", {"query": "Who wrote these notes?"}))
        if not cut.is_set():
            cut.set()
            worker = next(iter(system.jobs.store.presence.read_announcements())).worker
            os.kill(int(worker.rpartition(":")[2]), signal.SIGKILL)
        proof = claim("c1", "Ada wrote the notes.", source="notes.md", quote=QUOTE)
        return result_reply("Ada wrote the notes [c1].", claims=[proof])

    with (
        MessagesServer(script) as model,
        running_system(model, specialists=tmp_path, settings={"HANDOFF_LEASE_S": "3"}) as system,
    ):
        documents = {"notes.md": f"{QUOTE}\n\n{FILLER}".encode()}
        request = Request("Who wrote the notes?", documents=documents, mode=Mode.TEAM)

        result = system.jobs.result(system.jobs.submit(request), wait_s=120)

    assert result.status is JobStatus.OK
    assert "Ada wrote the notes" in str(result.answer)
    assert turns == [1, 3, 3]
    assert result.usage["cut"]["calls"] == 1
