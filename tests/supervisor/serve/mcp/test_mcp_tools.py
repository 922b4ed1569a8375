"""The tools of the MCP server over HTTP, with a real MCP client on a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from mcp import MCPError
from mcp_types import CallToolResult

from handoff_queue.shared.store.daily_budgets import DailyCaps
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.audit import Actor
from handoff_queue.shared.types.events import CancelRequested, JobStatus, JobSubmitted
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.serve.mcp.tools import build_tool_result
from tests.doubles.handoffs import JOB
from tests.doubles.jobs import a_job
from tests.mcp_client import connected, text_of
from tests.supervisor.serve.serving import serving
from tests.supervisor.serve.test_job_routes import end
from tests.supervisor.shell import Shell

Call = Callable[..., CallToolResult]


@pytest.fixture
def url(app: FastAPI) -> Iterator[str]:
    with serving(app) as address:
        yield address


@pytest.fixture
def call(url: str) -> Call:
    """Return a function that calls a tool through a new connection."""

    def called(name: str, token: str | None = None, /, **arguments: Any) -> CallToolResult:
        async def run() -> CallToolResult:
            async with connected(url, token, tasks=False) as client:
                return await client.call_tool(name, arguments)

        return asyncio.run(run())

    return called


def token_of(jobs: Client, access: str, tenant: str | None = None) -> str:
    _, secret = jobs.store.api_tokens.create("a test", AccessLevel(access), tenant)
    return secret


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_clients_of_new_and_old_protocols_list_the_tools(mode: str, url: str) -> None:
    async def names() -> list[str]:
        async with connected(url, mode=mode) as client:
            return [tool.name for tool in (await client.list_tools()).tools]

    assert asyncio.run(names()) == [
        "submit",
        "status",
        "result",
        "events",
        "approve",
        "reject",
        "cancel",
        "list_specialists",
    ]


def test_a_client_of_an_old_protocol_submits_a_job_and_reads_its_status(url: str) -> None:
    async def run() -> Any:
        async with connected(url, mode="legacy") as client:
            submitted = await client.call_tool("submit", {"text": "How does HNSW work?"})
            assert submitted.structured_content is not None
            job_id = submitted.structured_content["job_id"]
            return (await client.call_tool("status", {"job_id": job_id})).structured_content

    assert asyncio.run(run())["title"] == "How does HNSW work?"


def test_a_submitted_job_names_the_user_and_the_way(call: Call, jobs: Client) -> None:
    token = token_of(jobs, "submit", "acme")
    key = {"idempotency_key": "once"}
    submitted = call("submit", token, text="How does HNSW work?", **key).structured_content
    other = call("submit", token, text="How does HNSW work?", **key).structured_content

    assert submitted == other
    assert submitted is not None
    first, *_ = jobs.events(submitted["job_id"], follow=False)
    assert isinstance(first.event, JobSubmitted)
    assert first.event.tenant == "acme"
    (token_id,) = [entry.id for entry in jobs.store.api_tokens.list_all()]
    assert first.event.actor == Actor(name="a test", via="mcp", address="127.0.0.1", token=token_id)


def test_the_events_of_a_job_are_read_piece_by_piece(call: Call, jobs: Client) -> None:
    job_id = a_job(jobs.store)
    first = call("events", job_id=job_id).structured_content
    assert first is not None
    nothing = call("events", job_id=job_id, after=first["next_after"]).structured_content
    end(jobs, job_id)
    rest = call("events", job_id=job_id, after=first["next_after"]).structured_content

    assert [event["event"]["type"] for event in first["events"]] == ["job_submitted"]
    assert nothing == {"job_id": job_id, "events": [], "next_after": first["next_after"]}
    assert rest is not None
    assert [event["event"]["type"] for event in rest["events"]] == ["job_ended"]


def test_a_job_is_cancelled_and_its_result_says_so(call: Call, jobs: Client) -> None:
    job_id = a_job(jobs.store)
    cancelled = call("cancel", job_id=job_id)
    result = call("result", job_id=job_id)

    assert cancelled.structured_content == {"job_id": job_id, "cancelled": True}
    assert result.structured_content is not None
    assert result.structured_content["answer"] is None
    assert text_of(result).startswith(f"{job_id}: running")
    *_, last = jobs.events(job_id, follow=False)
    assert isinstance(last.event, CancelRequested)


LEFT_OUT = {
    "conflicts",
    "forked_from",
    "gates",
    "handoffs",
    "messages",
    "mode",
    "model",
    "patches",
    "plan",
    "priority",
    "quote",
    "results",
    "route",
    "tenant",
    "to_finish_usd",
    "verdicts",
    "waiting_since",
    "wall_s",
    "worked_s",
}
"""Fields of `JobResult` that the tool `result` does not show for an ended job."""


def test_every_field_of_a_result_is_shown_or_left_out_on_purpose() -> None:
    shown = build_tool_result(JobResult(job_id=JOB, status=JobStatus.OK)).structured_content
    assert shown is not None
    every_field = {
        name for name, field in JobResult.model_fields.items() if field.exclude is not True
    }

    assert every_field - set(shown) == LEFT_OUT


def test_no_worker_means_no_specialist(call: Call) -> None:
    assert call("list_specialists").structured_content == {"specialists": []}


BAD: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("submit", {"text": ""}, "/v1/jobs"),
    ("submit", {"text": "x", "tools": 1}, "/v1/jobs"),
    ("submit", {"text": 1}, "/v1/jobs"),
    ("submit", {"text": "x", "after": "j-000000000000"}, "/v1/jobs"),
    ("submit", {"text": "x", "documents": {"../a": "x"}}, "/v1/jobs"),
    ("approve", {"note": "x", "question": 2}, "/v1/jobs/{job_id}/approve"),
    ("reject", {"question": 2}, "/v1/jobs/{job_id}/reject"),
    ("approve", {"question": 0}, "/v1/jobs/{job_id}/approve"),
    ("cancel", {"job_id": "j-000000000000"}, "/v1/jobs/j-000000000000/cancel"),
)


@pytest.mark.parametrize(("tool", "arguments", "path"), BAD)
def test_bad_input_has_the_line_of_the_http_api(
    tool: str, arguments: dict[str, Any], path: str, call: Call, url: str, jobs: Client
) -> None:
    job_id = a_job(jobs.store)
    refused = httpx2.post(url + path.format(job_id=job_id), json=arguments)
    named = arguments if tool == "submit" else {"job_id": job_id, **arguments}
    failed = call(tool, **named)

    assert failed.is_error
    assert text_of(failed) == refused.json()["detail"]
    assert "\n" not in text_of(failed)


@pytest.fixture
def waiting(shell: Shell) -> JobId:
    """A job whose plan waits for an approval."""
    job_id = shell.jobs.submit(
        Request("Compare Qdrant and Milvus", approvals=Approvals(what=(ApprovalOf.PLAN,)))
    )
    wait_for_question(shell, job_id)
    return job_id


def wait_for_question(shell: Shell, job_id: JobId) -> None:
    """Let the supervisor work until the job asks a question."""
    for _ in range(20):
        if shell.jobs.info(job_id).approval:
            return
        shell.advance(job_id)
    raise AssertionError("the job does not wait")


@pytest.mark.slow
def test_a_client_reads_the_plan_and_the_version_of_its_question_before_it_decides(
    waiting: JobId, call: Call, jobs: Client
) -> None:
    result = call("result", job_id=waiting)

    assert result.structured_content is not None
    (asked,) = result.structured_content["approvals"]
    (first, *_) = result.structured_content["plan"]["steps"]
    assert f"question {asked['version']}: approve the plan?" in text_of(result)
    assert f"- {first['id']} ({first['specialist']}): {first['task']}" in text_of(result)
    call("approve", job_id=waiting, question=asked["version"], note="Go on.")
    after = call("result", job_id=waiting).structured_content
    assert after is not None
    assert [entry["decision"] for entry in after["approvals"]] == ["approved"]
    assert "plan" not in after


@pytest.mark.parametrize("tool", ["approve", "reject"])
def test_a_decision_never_applies_to_a_newer_question(
    tool: str, waiting: JobId, call: Call, shell: Shell
) -> None:
    (seen,) = shell.jobs.result(waiting).approvals
    shell.jobs.reject(waiting, "Ask a writer, too.")  # another person
    shell.advance(waiting)
    wait_for_question(shell, waiting)

    late = call(tool, job_id=waiting, question=seen["version"])

    *_, newer = shell.jobs.result(waiting).approvals
    assert late.is_error
    assert f"does not ask question {seen['version']} any more" in text_of(late)
    assert newer["version"] > seen["version"]
    assert newer["decision"] is None


@pytest.mark.parametrize("tool", ["approve", "reject"])
def test_a_decision_without_its_question_is_refused(
    tool: str, waiting: JobId, call: Call, jobs: Client
) -> None:
    refused = call(tool, job_id=waiting)

    assert refused.is_error
    assert text_of(refused).startswith("question: is missing")
    assert jobs.info(waiting).approval == "plan"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({}, "job_id: is missing"),
        ({"job_id": "j-1", "wait": 1}, "wait: there is no such field: did you mean wait_s?"),
        ({"job_id": "j-1", "wait_s": 1e9}, "wait_s: must be at most 60, not 1000000000.0"),
        ({"job_id": "j-1", "wait_s": "soon"}, "wait_s: must be a number, not 'soon'"),
    ],
)
def test_a_bad_argument_is_one_line_with_its_name(
    arguments: dict[str, Any], line: str, call: Call
) -> None:
    failed = call("result", **arguments)

    assert failed.is_error
    assert text_of(failed).startswith(line)


def test_a_job_above_the_limit_of_its_tenant_is_one_line(call: Call, jobs: Client) -> None:
    jobs.store.daily_budgets.set_caps(DailyCaps(tenant_open_jobs=1))
    jobs.submit(Request("Compare."))

    failed = call("submit", text="Where is it?")

    assert failed.is_error
    assert text_of(failed).startswith("tenant default has reached its limit of open jobs (1,")


def test_an_unknown_tool_is_an_error_of_the_protocol(url: str) -> None:
    async def call_it() -> None:
        async with connected(url) as client:
            with pytest.raises(MCPError, match="there is no tool 'sumbit'; did you mean submit"):
                await client.call_tool("sumbit")

    asyncio.run(call_it())


@pytest.mark.parametrize(
    ("level", "tool"),
    [("read", "submit"), ("submit", "approve"), ("submit", "reject"), ("submit", "cancel")],
)
def test_a_tool_needs_the_access_level_of_its_operation(
    level: str, tool: str, call: Call, jobs: Client
) -> None:
    arguments = {"text": "x"} if tool == "submit" else {"job_id": a_job(jobs.store)}
    failed = call(tool, token_of(jobs, level), **arguments)

    assert failed.is_error
    assert f"has the access level {level}, and this needs " in text_of(failed)


@pytest.mark.parametrize("tool", ["status", "result", "events", "approve", "reject", "cancel"])
def test_a_job_of_another_tenant_does_not_exist(tool: str, call: Call, jobs: Client) -> None:
    foreign_job, unknown_job = a_job(jobs.store, "globex"), "j-000000000000"
    token = token_of(jobs, "operate", "acme")
    more = {"question": 2} if tool in ("approve", "reject") else {}
    hidden = call(tool, token, job_id=foreign_job, **more)
    unknown = call(tool, token, job_id=unknown_job, **more)

    assert hidden.is_error
    assert text_of(hidden).replace(foreign_job, unknown_job) == text_of(unknown)


def test_without_a_token_a_server_with_tokens_answers_nothing(
    call: Call, jobs: Client, url: str
) -> None:
    token_of(jobs, "read")
    refused = httpx2.post(f"{url}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})

    assert refused.status_code == 401
    assert "send `Authorization: Bearer TOKEN`" in refused.json()["detail"]


def test_a_page_of_another_site_reaches_no_tool(url: str) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    refused = httpx2.post(f"{url}/mcp", json=message, headers={"Origin": "http://evil.example"})
    rebound = httpx2.post(f"{url}/mcp", json=message, headers={"Host": "evil.example"})

    assert (refused.status_code, rebound.status_code) == (403, 403)


@pytest.mark.slow
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"jsonrpc": "2.0"}', b'{"jsonrpc": "2.0", "id": 1}', b"\xff"]
)
@pytest.mark.parametrize("version", ["2026-07-28", "2025-06-18", "1999-01-01", None])
def test_garbage_is_refused_and_the_server_goes_on(
    content: bytes, version: str | None, url: str, call: Call
) -> None:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if version:
        headers["MCP-Protocol-Version"] = version
    answer = httpx2.post(f"{url}/mcp", content=content, headers=headers)

    assert 400 <= answer.status_code < 500
    assert call("list_specialists").structured_content == {"specialists": []}


def test_a_wrong_content_type_gets_an_error_that_a_client_can_parse(url: str) -> None:
    answer = httpx2.post(f"{url}/mcp", content=b"{}", headers={"Content-Type": "text/plain"})

    assert answer.status_code == 400
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json()["error"] == {"code": -32_600, "message": "Invalid Content-Type header"}


def test_a_long_body_is_refused(url: str, jobs: Client) -> None:
    most = jobs.settings.serve_max_body_bytes
    answer = httpx2.post(f"{url}/mcp", content=b" " * (most + 1))

    assert answer.status_code == 413


@pytest.mark.parametrize("version", [None, "2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    "body", ["{}", "[]", "[1]", '"x"', "7", '{"jsonrpc": "2.0", "id": 1}', "{"]
)
def test_a_body_that_is_not_a_message_gets_one_error_of_one_line(
    body: str, version: str | None, url: str
) -> None:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if version is not None:
        headers["MCP-Protocol-Version"] = version

    answer = httpx2.post(f"{url}/mcp", content=body, headers=headers)

    error = answer.json()["error"]
    assert answer.status_code == 400
    assert error["code"] in (-32_600, -32_700)
    assert "\n" not in error["message"]
    assert len(error["message"]) < 120
