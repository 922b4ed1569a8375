"""A job that gets results of another job can open and cite their sources."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.workflows.parser import workflow_in
from handoff_queue.testing import (
    Json,
    MessagesServer,
    Reply,
    answer_properties,
    json_reply,
    result_reply,
    tool_call_reply,
)
from tests.e2e.fleet import SHORT_LEASES
from tests.e2e.shop_tools import TOOLS
from tests.running_system import SUPERVISOR, model_environment, running_system

pytestmark = pytest.mark.slow

SHOP = """---
name: shop
description: Answers questions about orders of the shop.
tools: [order_status]
max_turns: 4
---
You are SHOP. Look up the order.
"""
READER = """---
name: reader
description: Reads what others have found.
tools: [read_document]
max_turns: 4
---
You are READER. Open the source.
"""
WORKFLOW = """
description: Find and use
review: false
steps:
  - id: find
    specialist: {finds}
    task: Find the order.
  - id: use
    specialist: {reads}
    task: Read the order.
    depends_on: [find]
"""
QUOTE = '"state": "shipped on 3 May"'
_SOURCE = re.compile(r"tool:[\w.-]+/order_status#\d+")


def script(request: Json) -> Reply:
    """The shop cites its tool. The reader opens the source that it sees, and cites it, too."""
    if "steps" in answer_properties(request):
        name = "reader" if "Read the order" in str(request["messages"]) else "shop"
        given = sorted(set(re.findall(r"\bprev_\w+", str(request["messages"]))))
        step = {"id": "inner", "specialist": name, "task": "Look.", "depends_on": given}
        return json_reply({"steps": [step], "synthesis": "merge"})
    if "verdict" in answer_properties(request):
        return json_reply({"verdict": "PASS"})
    is_first = not any(message["role"] == "assistant" for message in request["messages"])
    if "You are SHOP" in json.dumps(request["system"]):
        if is_first:
            return tool_call_reply(("order_status", {"order_id": "A-1"}))
        return _answer("tool:order_status#1")
    source = _SOURCE.findall(str(request["messages"]))[0]
    if is_first:
        return tool_call_reply(("read_document", {"source": source, "offset": 0}))
    assert "shipped on 3 May" in str(request["messages"][-1]), request["messages"][-1]
    return _answer(source)


def _answer(source: str) -> Reply:
    citation = {"source": source, "quote": QUOTE}
    claim = {"id": "c1", "text": "A-1 was shipped.", "sources": [citation]}
    return result_reply("A-1 was shipped [c1].", claims=[claim])


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder: Path = tmp_path_factory.mktemp("passed")
    for kind, files in (
        ("tools", {"shop.py": TOOLS}),
        ("specialists", {"shop.md": SHOP, "reader.md": READER}),
    ):
        (folder / kind).mkdir()
        for name, text in files.items():
            (folder / kind / name).write_text(text)
    folders = {
        "HANDOFF_TOOLS_DIRS": str(folder / "tools"),
        "HANDOFF_SPECIALISTS_DIRS": str(folder / "specialists"),
    }
    with (
        MessagesServer(script) as server,
        running_system(
            folder, (SUPERVISOR,), model_environment(server, **SHORT_LEASES, **folders)
        ) as system,
    ):
        system.start_worker("worker", "handoff_queue.workers.app", "shop,reader")
        system.processes.wait_until_ready()
        jobs = system.jobs()
        yield jobs
        jobs.store.connection.close()


def run_workflow(jobs: Client, finds: str, reads: str) -> tuple[JobId, JobResult]:
    workflow = workflow_in(WORKFLOW.format(finds=finds, reads=reads))
    job_id = jobs.submit(Request("Where is A-1?", workflow=workflow))
    return job_id, jobs.result(job_id, wait_s=60)


def assert_reader_cited_the_tool(result: JobResult) -> None:
    assert (result.status, result.notes) == (JobStatus.OK, ())
    assert any(citation["quote"] == QUOTE for citation in result.citations)


def test_a_fork_opens_and_cites_the_sources_of_the_results_that_it_keeps(jobs: Client) -> None:
    job_id, result = run_workflow(jobs, "shop", "reader")
    assert_reader_cited_the_tool(result)

    fork = jobs.fork(job_id, "use")

    assert_reader_cited_the_tool(jobs.result(fork, wait_s=60))


def test_a_fork_of_a_fork_has_the_sources_after_the_first_job_is_deleted(jobs: Client) -> None:
    job_id, _ = run_workflow(jobs, "shop", "reader")
    fork = jobs.fork(job_id, "use")
    jobs.result(fork, wait_s=60)
    jobs.delete(job_id)

    second = jobs.fork(fork, "use")

    assert_reader_cited_the_tool(jobs.result(second, wait_s=60))


def test_a_follow_up_job_opens_and_cites_the_sources_of_the_job_before_it(jobs: Client) -> None:
    job_id, _ = run_workflow(jobs, "shop", "reader")

    later = jobs.submit(Request("Read the order", after=job_id, mode=Mode.TEAM))

    assert_reader_cited_the_tool(jobs.result(later, wait_s=60))


def test_a_step_opens_and_cites_the_sources_of_a_child_job(jobs: Client) -> None:
    _, result = run_workflow(jobs, "supervisor", "reader")

    assert_reader_cited_the_tool(result)


def test_a_child_job_opens_and_cites_the_sources_of_its_parent(jobs: Client) -> None:
    _, result = run_workflow(jobs, "shop", "supervisor")

    assert_reader_cited_the_tool(result)
