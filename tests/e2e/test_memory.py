"""The second job that needs a fact finds it in the memory, and does not search again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.client import Client, Request
from handoff_queue.testing import (
    Json,
    MessagesServer,
    Reply,
    json_reply,
    tool_call_reply,
)
from tests.e2e.commands import Handoff
from tests.e2e.fleet import ENVELOPE
from tests.running_system import SUPERVISOR, RunningSystem, model_environment, running_system

pytestmark = pytest.mark.slow

SPECIALIST = """---
name: keeper
description: Answers questions about licences.
tools: [search_documents, memory]
max_turns: 6
---
Search the memory first. Write each new fact into it.
"""
FACT = "The licence of Qdrant is Apache 2.0."
GUIDE = f"{FACT}\n" + "Qdrant stores vectors.\n" * 1_000
"""A document that is too long to be shown whole."""


def answer(source: str) -> Json:
    claim = {"id": "c1", "text": FACT, "sources": [{"source": source, "quote": FACT}]}
    return {**ENVELOPE, "output": f"{FACT} [c1]", "claims": [claim]}


def results_in(request: Json) -> list[str]:
    """Return the texts of the tool results in a request."""
    return [
        str(block["content"])
        for message in request["messages"]
        for block in message["content"]
        if isinstance(block, dict) and block.get("type") == "tool_result"
    ]


def keeper(request: Json) -> Reply:
    """Search the memory. If it has no note of the fact, search the documents and write a note."""
    results = results_in(request)
    if not results:
        return tool_call_reply(("memory", {"command": "search", "query": "licence of Qdrant"}))
    if FACT in results[0]:
        return json_reply(answer("memory:qdrant/licence (guide.md)"))
    if len(results) == 1:
        return tool_call_reply(("search_documents", {"query": "licence"}))
    if len(results) == 2:
        note = {"command": "create", "path": "qdrant/licence", "file_text": FACT}
        return tool_call_reply(("memory", {**note, "source": "guide.md", "quote": FACT}))
    return json_reply(answer("guide.md"))


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningSystem, Client]]:
    """Start a supervisor and a worker whose specialist has the memory."""
    folder = tmp_path_factory.mktemp("memory")
    (folder / "specialists").mkdir()
    (folder / "specialists" / "keeper.md").write_text(SPECIALIST)
    with MessagesServer(keeper) as server:
        environment = {
            **model_environment(server),
            "HANDOFF_SPECIALISTS_DIRS": str(folder / "specialists"),
        }
        with running_system(folder, (SUPERVISOR,), environment) as system:
            options = ("-n", "worker@%h", "-Q", "keeper", "-c", "2")
            system.processes.start(
                system.celery("worker", "-A", "handoff_queue.workers.app", "worker", *options)
            )
            system.processes.wait_until_ready()
            jobs = system.jobs()
            yield system, jobs
            jobs.store.connection.close()


def test_the_second_job_that_needs_a_fact_does_not_pay_for_finding_it(
    keeping: tuple[RunningSystem, Client], handoff: Handoff
) -> None:
    """Both jobs have the same task, the same documents and the same model."""
    system, jobs = keeping
    request = Request(
        "Which licence has Qdrant?",
        mode=Mode.SINGLE,
        specialists=("keeper",),
        documents={"guide.md": GUIDE.encode()},
    )

    first, second = (jobs.result(jobs.submit(request), wait_s=60) for _ in range(2))

    assert (first.status, second.status) == ("ok", "ok")
    assert (first.usage["turns"], second.usage["turns"]) == (4, 2), "no search, and no new note"
    assert second.usage["cost_usd"] < first.usage["cost_usd"]
    assert [citation["source"] for citation in second.citations] == [
        "memory:qdrant/licence (guide.md)"
    ]
    shown = handoff.run(
        "memory", "show", "qdrant/licence", HANDOFF_REDIS_URL=system.redis_url
    ).stdout
    assert first.job_id in shown
    assert f"Quote from guide.md:\n{FACT}" in shown
