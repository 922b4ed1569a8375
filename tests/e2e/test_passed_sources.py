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
from handoff_queue.supervisor.workflows.parser import parse_workflow
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
    task: Find the order {order}.
  - id: use
    specialist: {reads}
    task: Read the order.
    depends_on: [find]
"""
TWO_TEAMS = """
description: Two teams
review: false
steps:
  - id: first
    specialist: supervisor
    task: Find the order A-1.
  - id: second
    specialist: supervisor
    task: Find the order A-2.
  - id: use
    specialist: reader
    task: Read the order.
    depends_on: [first, second]
"""
_SOURCE = re.compile(r"tool:[\w.-]+/order_status#\d+")
_ORDER = re.compile(r"order (A-\d)")
_STATE = '"state": "shipped on 3 May"'
_QUOTE = re.compile(rf'"order": "A-\d", {_STATE}')


def script(request: Json) -> Reply:
    """The shop cites its tool. The reader opens each source that it sees, and cites it, too."""
    first_message = json.dumps(request["messages"][0], ensure_ascii=False)
    if "steps" in answer_properties(request):
        name = "reader" if "Read the order" in first_message else "shop"
        given = sorted(set(re.findall(r"\bprev_\w+", first_message)))
        task = f"Look at order {_orders_in(first_message)[-1]}."
        step = {"id": "inner", "specialist": name, "task": task, "depends_on": given}
        return json_reply({"steps": [step], "synthesis": "merge"})
    if "verdict" in answer_properties(request):
        return json_reply({"verdict": "PASS"})
    is_first = not any(message["role"] == "assistant" for message in request["messages"])
    if "You are SHOP" in json.dumps(request["system"]):
        if is_first:
            return tool_call_reply(("order_status", {"order_id": _orders_in(first_message)[-1]}))
        return _answer({"tool:order_status#1": _quotes_in(request)[0]})
    sources = list(dict.fromkeys(_SOURCE.findall(first_message)))
    if is_first:
        return tool_call_reply(*(("read_document", {"source": source}) for source in sources))
    return _answer(dict(zip(sources, _quotes_in(request), strict=True)))


def _orders_in(text: str) -> list[str]:
    """Return the orders that a task names, or the usual one."""
    return _ORDER.findall(text) or ["A-1"]


def _quotes_in(request: Json) -> list[str]:
    """Return a quote of each result in the last message."""
    texts = [str(block["content"]) for block in request["messages"][-1]["content"]]
    return [_QUOTE.findall(text)[0] for text in texts if _QUOTE.search(text)]


def _answer(quotes: dict[str, str]) -> Reply:
    """Return an answer that cites a quote of each source."""
    claims: list[Json] = []
    for number, (source, quote) in enumerate(quotes.items(), start=1):
        citation = {"source": source, "quote": quote}
        claims.append({"id": f"c{number}", "text": f"It says {quote}.", "sources": [citation]})
    markers = " ".join(f"It was shipped [{claim['id']}]." for claim in claims)
    return result_reply(markers, claims=claims)


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


def run_workflow(
    jobs: Client, finds: str, reads: str, order: str = "A-1", after: JobId | None = None
) -> tuple[JobId, JobResult]:
    workflow = parse_workflow(WORKFLOW.format(finds=finds, reads=reads, order=order))
    job_id = jobs.submit(Request("Where is it?", workflow=workflow, after=after))
    return job_id, jobs.result(job_id, wait_s=60)


def assert_reader_cited_the_tool(result: JobResult, *orders: str) -> None:
    assert (result.status, result.notes) == (JobStatus.OK, ())
    quotes = {citation["quote"] for citation in result.citations}
    assert quotes == {f'"order": "{order}", {_STATE}' for order in orders or ("A-1",)}


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


def test_a_step_opens_the_result_of_its_own_job_and_not_of_the_job_before(jobs: Client) -> None:
    job_id, _ = run_workflow(jobs, "shop", "reader")
    later, result = run_workflow(jobs, "shop", "reader", order="A-2", after=job_id)
    assert_reader_cited_the_tool(result, "A-2")

    _, last = run_workflow(jobs, "shop", "reader", order="A-3", after=later)

    assert_reader_cited_the_tool(last, "A-3")


def test_a_step_opens_the_sources_of_two_child_jobs_with_equal_steps(jobs: Client) -> None:
    job_id = jobs.submit(Request("Where are they?", workflow=parse_workflow(TWO_TEAMS)))
    result = jobs.result(job_id, wait_s=60)

    assert_reader_cited_the_tool(result, "A-1", "A-2")
    assert [citation["source"] for citation in result.citations] == [
        "tool:first.1.inner.1/order_status#1",
        "tool:second.1.inner.1/order_status#1",
    ]
