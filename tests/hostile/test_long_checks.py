"""Large values whose checks take seconds. One token cannot use up the threads of the server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from handoff_queue.supervisor.serve.request_limits import MAX_CHECKS, CallerTurns
from tests.waiting import MAX_WAIT_S

MANY = 100
"""More than the threads of a process."""
JOB = {"text": "Look.", "answer_schema": {"type": "object"}}
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "submit", "arguments": JOB},
}
REQUESTS: dict[str, tuple[str, Any]] = {
    "a job": ("/v1/jobs", JOB),
    "a quote": ("/v1/quotes?wait_s=0", JOB),
    "a schedule": ("/v1/schedules", {"name": "x", "cron": "0 0 1 1 *", "job": JOB}),
    "a call over MCP": ("/mcp", CALL),
}


@pytest.fixture
def ended() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_checks_of_one_caller_leave_threads_for_the_others(ended: threading.Event) -> None:
    running = threading.Semaphore(0)

    def check() -> bool:
        running.release()
        return ended.wait()

    async def check_all() -> tuple[str, int]:
        turns = CallerTurns()
        checks = [asyncio.create_task(turns.run("a", check)) for _ in range(MANY)]
        await asyncio.to_thread(running.acquire)
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                of_another = await turns.run("b", lambda: "checked")
        finally:
            ended.set()
        return of_another, sum(await asyncio.gather(*checks))

    assert asyncio.run(check_all()) == ("checked", MANY)


def test_a_caller_runs_a_few_checks_at_the_same_time(ended: threading.Event) -> None:
    lock = threading.Lock()
    at_once: list[int] = [0]
    most: list[int] = [0]

    def check() -> None:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        ended.wait(0.01)
        with lock:
            at_once[0] -= 1

    async def check_all() -> None:
        turns = CallerTurns()
        await asyncio.gather(*(turns.run("a", check) for _ in range(20)))

    asyncio.run(check_all())

    assert 0 < most[0] <= MAX_CHECKS


@pytest.mark.parametrize(("path", "body"), REQUESTS.values(), ids=REQUESTS)
def test_each_request_with_a_job_waits_for_the_turn_of_its_caller(
    path: str, body: Any, http: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    run = CallerTurns.run

    async def noted(self: CallerTurns, caller: str, function: Any, *args: Any) -> Any:
        checked.append(function.__name__)
        return await run(self, caller, function, *args)

    monkeypatch.setattr(CallerTurns, "run", noted)
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    http.post(path, content=json.dumps(body), headers=headers)

    assert {"prepare_request", "add_schedule"} & set(checked)
    assert {"parse_body", "parse_arguments"} & set(checked)
