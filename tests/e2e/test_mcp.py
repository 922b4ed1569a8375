"""The queue as an MCP server, with real workers and a real MCP client: over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult

from handoff_queue import Request, connect
from tests import forked_processes
from tests.e2e.commands import BAD_INPUT, DOCUMENTS, NO_REDIS, REQUEST, Handoff, error_line
from tests.e2e.fleet import Fleet
from tests.e2e.test_serve import served
from tests.mcp_client import (
    CreatedTask,
    Task,
    Tasks,
    connected,
    get_task,
    listen_until_the_end,
    text_of,
    until,
    update_task,
)
from tests.running_system import RunningSystem

pytestmark = pytest.mark.slow

TEXTS = {file.name: file.read_text() for file in sorted(DOCUMENTS.glob("*.md"))}


def over_stdio(
    redis_url: str,
    *,
    tasks: bool = True,
    python: str | None = None,
    extension: Tasks | None = None,
) -> Client:
    """Return a client that starts `handoff mcp`, as a desktop application does.

    `python`: the interpreter. None: the command is forked.
    """
    command = ["-P", "-m", "handoff_queue.supervisor.cli.main", "mcp"]
    environment = {"HANDOFF_REDIS_URL": redis_url, "PYTHONPATH": str(Path(__file__).parents[2])}
    return Client(
        StdioServerParameters(
            command=python or forked_processes.python(), args=command, env=environment
        ),
        extensions=[extension or Tasks()] if tasks else None,
    )


def test_a_client_over_stdio_submits_a_job_and_reads_its_answer(system: RunningSystem) -> None:
    async def run() -> tuple[Any, CallToolResult, Any]:
        async with over_stdio(system.redis_url, tasks=False, python=sys.executable) as client:
            submitted = await client.call_tool("submit", {"text": REQUEST, "documents": TEXTS})
            assert submitted.structured_content is not None
            job_id = submitted.structured_content["job_id"]

            async def ended() -> CallToolResult | None:
                result = await client.call_tool("result", {"job_id": job_id, "wait_s": 60})
                assert result.structured_content is not None
                return result if result.structured_content["answer"] else None

            result = await until(ended)
            events = await client.call_tool("events", {"job_id": job_id})
            specialists = await client.call_tool("list_specialists")
            return specialists.structured_content, result, events.structured_content

    specialists, result, events = asyncio.run(run())

    assert "researcher" in {specialist["name"] for specialist in specialists["specialists"]}
    assert result.structured_content is not None
    assert result.structured_content["status"] == "ok"
    assert result.structured_content["citations"]
    assert text_of(result).startswith(result.structured_content["answer"])
    assert events["events"][-1]["event"]["type"] == "job_ended"
    assert events["events"][0]["event"]["actor"]["via"] == "mcp"


def test_a_call_over_stdio_waits_for_the_answer_as_a_task(system: RunningSystem) -> None:
    async def run() -> CallToolResult:
        async with over_stdio(system.redis_url) as client:
            return await client.call_tool("submit", {"text": REQUEST, "documents": TEXTS})

    result = asyncio.run(run())

    assert result.structured_content is not None
    assert result.structured_content["status"] == "ok"


def test_a_client_over_stdio_is_notified_of_the_end_of_its_task(system: RunningSystem) -> None:
    seen = Tasks()

    async def run() -> str:
        async with over_stdio(system.redis_url, extension=seen) as client:
            created = await client.session.call_tool(
                "submit", {"text": REQUEST, "documents": TEXTS}, allow_claimed=True
            )
            assert isinstance(created, CreatedTask)
            await listen_until_the_end(client.session, taskIds=[created.task_id])
            return created.task_id

    task_id = asyncio.run(run())

    assert {state.task_id for state in seen.notified} == {task_id}
    assert seen.notified[-1].status == "completed"
    assert seen.notified[-1].result is not None


def test_a_person_approves_a_plan_through_a_task(system: RunningSystem, handoff: Handoff) -> None:
    async def run(url: str) -> tuple[dict[str, Any], Task]:
        async with connected(url) as client:
            arguments = {
                "text": REQUEST,
                "documents": {"a.md": "Qdrant is fast."},
                "approvals": {"what": ["plan"]},
            }
            created = await client.session.call_tool("submit", arguments, allow_claimed=True)
            assert isinstance(created, CreatedTask)

            async def at(status: str) -> Task | None:
                task = await get_task(client.session, created.task_id)
                return task if task.status == status else None

            asked = await until(lambda: at("input_required"))
            assert asked.input_requests is not None
            ((key, request),) = asked.input_requests.items()
            decision = {"action": "accept", "content": {"decision": "approve", "note": "Go on."}}
            await update_task(client.session, created.task_id, {key: decision})
            return request, await until(lambda: at("completed"))

    with served(handoff, system.url_of("console")) as (_, url):
        request, ended = asyncio.run(run(url))

    assert request["method"] == "elicitation/create"
    assert ended.result is not None
    (approval,) = ended.result["structuredContent"]["approvals"]
    assert (approval["what"], approval["decision"], approval["note"]) == (
        "plan",
        "approved",
        "Go on.",
    )


def test_a_task_survives_a_kill_of_the_server_the_supervisors_and_the_workers(
    fleet: Fleet, handoff: Handoff
) -> None:
    held = fleet.model.hold("mcp-kill", "a")
    fleet.model.plans["mcp-kill"] = {"a": ""}
    redis_url, console_url = fleet.system.redis_url, fleet.system.url_of("console")

    async def submit(url: str) -> str:
        async with connected(url) as client:
            created = await client.session.call_tool(
                "submit", {"text": "plan mcp-kill"}, allow_claimed=True
            )
            assert isinstance(created, CreatedTask)
            return created.task_id

    with served(handoff, console_url) as (process, url):
        task_id = asyncio.run(submit(url))
        assert held.arrived.wait(30)
        process.send_signal(signal.SIGKILL)
        for name, pid in fleet.system.processes.get_pids().items():
            if name != "redis":
                fleet.kill(pid)
        process.wait()

    async def follow(client: Client) -> Task:
        async def ended() -> Task | None:
            task = await get_task(client.session, task_id)
            return task if task.status == "completed" else None

        return await until(ended)

    async def result_over_http(url: str) -> Task:
        async with connected(url) as client:
            return await follow(client)

    async def result_over_stdio() -> Task:
        async with over_stdio(redis_url) as client:
            return await follow(client)

    with served(handoff, console_url) as (_, url):
        over_http = asyncio.run(result_over_http(url))
    again = asyncio.run(result_over_stdio())
    held.release.set()

    assert over_http.result is not None
    assert over_http.result["structuredContent"]["status"] == "ok"
    assert again.result == over_http.result
    assert fleet.model.calls["mcp-kill", "a", 1] == 2


def test_the_command_without_a_broker_is_one_line(handoff: Handoff) -> None:
    unset = handoff.run("mcp", HANDOFF_REDIS_URL="")
    away = handoff.run("mcp", HANDOFF_REDIS_URL="redis://127.0.0.1:1/0")

    assert "HANDOFF_REDIS_URL is not set" in error_line(unset, BAD_INPUT)
    assert "Redis cannot be reached" in error_line(away, NO_REDIS)


HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "a test", "version": "1"},
    },
}


def call_of(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def answers_to(
    handoff: Handoff, redis_url: str, *messages: dict[str, Any], options: tuple[str, ...] = ()
) -> dict[int, Any]:
    """Write messages to `handoff mcp`, close its stdin, and return the answers by their id."""
    lines = "".join(f"{json.dumps(message)}\n" for message in (HELLO, *messages))
    done = handoff.run("mcp", *options, stdin=lines, HANDOFF_REDIS_URL=redis_url, timeout_s=45)
    assert (done.returncode, done.stderr) == (0, "")
    answers = map(json.loads, done.stdout.splitlines())
    return {answer["id"]: answer for answer in answers}


def test_calls_right_before_the_end_of_stdin_are_answered(
    handoff: Handoff, system: RunningSystem
) -> None:
    answers = answers_to(
        handoff,
        system.redis_url,
        call_of(1, "submit", text=REQUEST, idempotency_key="last words"),
        call_of(2, "list_specialists"),
        call_of(3, "cancel", job_id="j-000000000000"),
    )

    assert set(answers) == {0, 1, 2, 3}
    assert answers[1]["result"]["structuredContent"]["job_id"]
    assert answers[2]["result"]["structuredContent"]["specialists"]
    assert answers[3]["result"]["isError"]


def test_a_call_that_the_client_has_cancelled_does_not_hold_up_the_end(
    handoff: Handoff, redis_url: str
) -> None:
    job_id = connect(redis_url).submit(Request(REQUEST))  # without a worker, it never ends
    cancelled = {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": 1},
    }

    answers = answers_to(
        handoff, redis_url, call_of(1, "result", job_id=job_id, wait_s=60), cancelled
    )

    assert set(answers) == {0}


def test_a_client_over_stdio_has_the_access_level_and_the_tenant_of_the_command(
    handoff: Handoff, redis_url: str
) -> None:
    jobs = connect(redis_url)
    own, foreign = (jobs.submit(Request(REQUEST, tenant=name)) for name in ("acme", "globex"))
    answers = answers_to(
        handoff,
        redis_url,
        call_of(1, "status", job_id=own),
        call_of(2, "status", job_id=foreign),
        call_of(3, "approve", job_id=own, question=1),
        call_of(4, "cancel", job_id=own),
        call_of(5, "submit", text=REQUEST),
        call_of(6, "submit", text=REQUEST, tenant="globex"),
        options=("--access", "submit", "--tenant", "acme"),
    )

    refused = {number for number, answer in answers.items() if answer["result"].get("isError")}
    assert refused == {2, 3, 4, 6}
    assert f"there is no job {foreign}" in str(answers[2])
    assert "this needs operate" in str(answers[3])
    submitted = answers[5]["result"]["structuredContent"]["job_id"]
    assert jobs.store.jobs.find_owner(submitted) == "acme"
    assert not jobs.info(own).status.has_ended
