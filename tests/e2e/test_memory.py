"""The second job that needs a fact finds it in the memory, and does not search again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.client.client import Client
from handoff_queue.testing import (
    Json,
    MessagesServer,
    Reply,
    json_reply,
    tool_call_reply,
)
from tests.docs.samples import of_page, samples
from tests.e2e.commands import Handoff
from tests.e2e.fleet import ENVELOPE
from tests.e2e.test_docs_samples import typed
from tests.running_system import ROOT, SUPERVISOR, RunningSystem, model_environment, running_system

pytestmark = pytest.mark.slow

PAGE = "docs/how-to/memory.md"
FACT = "Qdrant is released under the Apache License 2.0."
"""A sentence of `qdrant.md`."""


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


def librarian(request: Json) -> Reply:
    """Search the memory. If it has no note of the fact, search the documents and write a note."""
    results = results_in(request)
    if not results:
        return tool_call_reply(("memory", {"command": "search", "query": "licence of Qdrant"}))
    if FACT in results[0]:
        return json_reply(answer("memory:qdrant/licence (qdrant.md)"))
    if len(results) == 1:
        return tool_call_reply(("search_documents", {"query": "licence"}))
    if len(results) == 2:
        note = {"command": "create", "path": "qdrant/licence", "file_text": FACT}
        return tool_call_reply(("memory", {**note, "source": "qdrant.md", "quote": FACT}))
    return json_reply(answer("qdrant.md"))


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningSystem, Client]]:
    """Start a supervisor and a worker whose specialist has the memory."""
    folder = tmp_path_factory.mktemp("memory")
    (folder / "librarian.md").write_text(of_page(PAGE, "markdown", "name: librarian"))
    with MessagesServer(librarian) as server:
        environment = {
            **model_environment(server),
            "HANDOFF_SPECIALISTS_DIRS": str(folder),
        }
        with running_system(folder, (SUPERVISOR,), environment) as system:
            system.start_worker("worker", "handoff_queue.workers.app", "librarian", 2)
            system.processes.wait_until_ready()
            jobs = system.jobs()
            yield system, jobs
            jobs.store.connection.close()


def test_the_second_job_of_the_guide_finds_the_note_and_does_not_pay_for_a_search(
    keeping: tuple[RunningSystem, Client], handoff: Handoff
) -> None:
    """Both jobs have the same task, the same documents and the same model."""
    system, jobs = keeping
    (handoff.folder / "examples").symlink_to(ROOT / "examples")
    (handoff.folder / "librarian.yaml").write_text(of_page(PAGE, "yaml", "specialist: librarian"))

    ask = typed([sample for sample in samples() if sample.page == PAGE], "run")

    results = []
    for _ in range(2):
        done = handoff.run(*ask, HANDOFF_REDIS_URL=system.redis_url)
        assert done.returncode == OK, done.stderr
        results.append(jobs.result(jobs.store.jobs.list_newest(1)[0]))

    first, second = results
    assert (first.usage["turns"], second.usage["turns"]) == (4, 2), "no search, and no new note"
    assert second.usage["cost_usd"] < first.usage["cost_usd"]
    assert [citation["source"] for citation in second.citations] == [
        "memory:qdrant/licence (qdrant.md)"
    ]
    shown = handoff.run(
        "memory", "show", "qdrant/licence", HANDOFF_REDIS_URL=system.redis_url
    ).stdout
    assert first.job_id in shown
    assert f"Quote from qdrant.md:\n{FACT}" in shown
