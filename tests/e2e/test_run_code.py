"""The coder runs the code that it writes, in a sandbox of its worker."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from handoff_queue import JobStatus, Mode, Request
from handoff_queue.shared.agent.prices import CONTAINER_MICROUSD
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.testing import (
    Json,
    MessagesServer,
    Reply,
    RunningSystem,
    answer_properties,
    json_reply,
    result_reply,
    running_system,
    tool_call_reply,
)
from handoff_queue.workers.specialists import BUILT_IN
from handoff_queue.workers.tools.code_execution import SERVER_TYPE
from tests.needs_sandbox import NEEDS_SANDBOX

pytestmark = [pytest.mark.slow, NEEDS_SANDBOX]

FUNCTION = """def primes(limit):
    found = []
    for number in range(2, limit + 1):
        if all(number % prime for prime in found if prime * prime <= number):
            found.append(number)
    return found
"""
PROGRAM = (
    f"{FUNCTION}\nassert primes(1) == []\nassert primes(10) == [2, 3, 5, 7]\n"
    "print(primes(30))\nopen('outputs/primes.txt', 'w').write(str(primes(100)))\n"
)
CALCULATOR = """---
name: calculator
description: Calculates a value that a task describes. Not for text.
sandbox: provider
---
You calculate with `code_execution`, and answer with the value.
"""
RAN: tuple[Json, ...] = (
    {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "bash_code_execution",
        "input": {"command": "echo $((2 + 2))"},
    },
    {
        "type": "bash_code_execution_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": {
            "type": "bash_code_execution_result",
            "stdout": "4\n",
            "stderr": "",
            "return_code": 0,
            "content": [],
        },
    },
)
"""Blocks of a reply in which the provider has run code."""
PLAN = {
    "steps": [
        {
            "id": "primes",
            "specialist": "coder",
            "task": "Write a Python function to calculate prime numbers.",
            "depends_on": [],
            "fallback": "-",
        }
    ],
    "synthesis": "merge",
    "why": "",
}


def script(request: Json) -> Reply:
    """Plan one step for the coder, run the program, read its file again, and answer. A request
    with the tool of the provider gets code that has run.
    """
    if any(tool.get("name") == "code_execution" for tool in request.get("tools", [])):
        has_run = len(request["messages"]) > 1
        return result_reply("It is 4.") if has_run else Reply(RAN, stop_reason="pause_turn")
    properties = answer_properties(request)
    if "steps" in properties:
        return json_reply(PLAN)
    if "verdict" in properties:
        return json_reply({"verdict": "PASS", "revisions": [], "open_points": []})
    results = tool_results(request)
    if not results:
        return tool_call_reply(("run_code", {"code": PROGRAM}))
    if len(results) == 1:
        digest = results[0]["files"][0]["digest"]
        code = "print(open('inputs/primes.txt').read())"
        return tool_call_reply(("run_code", {"code": code, "inputs": [digest]}))
    return result_reply(f"```python\n{FUNCTION}```")


def tool_results(request: Json) -> list[Json]:
    """Return the results of the tool in a request. Each is in a frame for foreign data."""
    results: list[Json] = []
    for message in request["messages"]:
        for block in message["content"]:
            if block["type"] == "tool_result":
                text = block["content"]
                results.append(json.loads(text[text.index("{") : text.rindex("}") + 1]))
    return results


@pytest.fixture(scope="module")
def model() -> Iterator[MessagesServer]:
    with MessagesServer(script) as server:
        yield server


@pytest.fixture(scope="module")
def system(
    model: MessagesServer, forked_children: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningSystem]:
    folder = tmp_path_factory.mktemp("specialists")
    text = (BUILT_IN / "coder.md").read_text()
    (folder / "coder.md").write_text(text.replace("tools:", "sandbox: local\ntools:", 1))
    (folder / "calculator.md").write_text(CALCULATOR)
    with running_system(model, specialists=folder) as running:
        yield running


def test_the_coder_runs_the_function_that_it_answers_with(
    model: MessagesServer, system: RunningSystem
) -> None:
    request = Request("Write a Python function to calculate prime numbers", mode=Mode.TEAM)

    result = system.jobs.result(system.jobs.submit(request), wait_s=90)

    assert result.status == JobStatus.OK, result.notes
    assert FUNCTION in str(result.answer)
    conversations = [tool_results(request) for request in model.requests]
    first, second = max(conversations, key=len)
    assert first["exit_code"] == second["exit_code"] == 0
    assert first["stdout"] == "[2, 3, 5, 7, 11, 13, 17, 19, 23, 29]\n"
    (file,) = first["files"]
    text = second["stdout"].rstrip("\n")
    assert text.startswith("[2, 3, 5, 7, ")
    assert (file["digest"], file["bytes"]) == (compute_digest(text), len(text))
    assert second["inputs"] == {"inputs/primes.txt": file["source"]}


def test_code_at_the_provider_runs_within_a_model_call_and_has_its_price(
    model: MessagesServer, system: RunningSystem
) -> None:
    request = Request("What is 2 + 2?", specialists=("calculator",), mode=Mode.SINGLE)

    result = system.jobs.result(system.jobs.submit(request), wait_s=90)

    assert result.status == JobStatus.OK, result.notes
    first, second = model.requests[-2:]
    assert {"type": SERVER_TYPE, "name": "code_execution"} in first["tools"]
    assert second["messages"][-1]["content"][: len(RAN)] == [*RAN]
    container_usd = CONTAINER_MICROUSD / 1_000_000
    assert container_usd <= result.usage["cost_usd"] < 2 * container_usd, "one reply ran code"
