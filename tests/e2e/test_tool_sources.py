"""An answer cites the result of a user's tool."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.export import build_export
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import Json, MessagesServer, Reply, result_reply, tool_call_reply
from tests.e2e.fleet import SHORT_LEASES
from tests.e2e.shop_tools import TOOLS
from tests.running_system import SUPERVISOR, model_environment, running_system

pytestmark = pytest.mark.slow

SPECIALIST = """---
name: shop
description: Answers questions about orders of the shop.
tools: [order_status]
max_turns: 4
---
You look up the order with order_status and say where it is.
"""
QUOTE = '"state": "shipped on 3 May"'


def script(request: Json) -> Reply:
    if not any(message["role"] == "assistant" for message in request["messages"]):
        return tool_call_reply(
            ("order_status", {"order_id": "A-1"}), ("order_status", {"order_id": "A-2"})
        )
    source = {"source": "tool:order_status#2", "quote": QUOTE}
    claim = {"id": "c1", "text": "A-2 was shipped on 3 May.", "sources": [source]}
    output = "Order A-2 was shipped on 3 May [c1]."
    return result_reply(output, claims=[claim])


def test_a_result_of_a_users_tool_is_a_source_of_the_answer_and_is_exported(tmp_path: Path) -> None:
    for folder, name, text in (
        ("tools", "shop.py", TOOLS),
        ("specialists", "shop.md", SPECIALIST),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    folders = {
        "HANDOFF_TOOLS_DIRS": str(tmp_path / "tools"),
        "HANDOFF_SPECIALISTS_DIRS": str(tmp_path / "specialists"),
    }
    with (
        MessagesServer(script) as server,
        running_system(
            tmp_path, (SUPERVISOR,), model_environment(server, **SHORT_LEASES, **folders)
        ) as system,
    ):
        system.start_worker("worker", "handoff_queue.workers.app", "shop")
        system.processes.wait_until_ready()
        jobs = system.jobs()
        job_id = jobs.submit(Request("Where is order A-2?", mode=Mode.SINGLE))
        result = jobs.result(job_id, wait_s=60)
        export = build_export(jobs.store, Settings(), job_id, texts=True)
        jobs.store.connection.close()

    assert (result.status, result.answer) == (JobStatus.OK, "Order A-2 was shipped on 3 May [1].")
    (citation,) = result.citations
    source = citation["source"]
    assert source.startswith("tool:")
    assert source.endswith("/order_status#2")
    assert citation["quote"] == QUOTE
    (document,) = export.documents
    assert document.path == source
    assert export.texts is not None
    assert QUOTE in export.texts[document.digest]
    assert json.loads(export.texts[document.digest])["order"] == "A-2"
