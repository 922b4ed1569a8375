"""JSON with very many values in wrong places. The error of each would cost memory and time, and all
other callers would wait. So such a text is refused before it is validated.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.types.handoff import (
    MAX_RESULT_VALUES,
    HandoffResult,
    ResultStatus,
    parse_result,
)
from handoff_queue.shared.types.json_values import JsonCounter, has_more_values
from handoff_queue.supervisor.serve.request_body import MAX_VALUES, JobBody
from handoff_queue.workers.tools import sandbox, tool_call_process

MCP = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
MANY = b"0," * MAX_VALUES + b"0"
FRAMES = {
    "images of a tool": b'{"text": "", "images": [' + MANY + b"]}",
    "fields of a tool": b'{"text": "", "images": [], "more": {' + MANY + b"}}",
}
BODIES: dict[str, tuple[str, bytes]] = {
    "specialists": ("/v1/jobs", b'{"text": "x", "specialists": [' + MANY + b"]}"),
    "a quote": ("/v1/quotes", b'{"text": "x", "specialists": [' + MANY + b"]}"),
    "a schedule": ("/v1/schedules", b'{"name": "x", "cron": [' + MANY + b"]}"),
    "a call over MCP": (
        "/mcp",
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "submit",'
        b' "arguments": {"text": "x", "specialists": [' + MANY + b"]}}}",
    ),
    "a batch over MCP": ("/mcp", b"[" + MANY + b"]"),
}


def never(*_: object, **__: object) -> Any:
    raise AssertionError("the values were validated")


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_the_frame_of_a_tool_is_not_validated(
    frame: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_call_process, "CallResult", never)

    assert tool_call_process.parse_result(frame) is None


def test_the_result_of_a_sandbox_is_not_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.SandboxRun, "model_validate_json", never)

    with pytest.raises(ToolFailed, match="ended its sandbox without a result"):
        sandbox.parse_run(b'{"files": {' + MANY + b"}}")


def test_the_result_of_a_worker_is_unreadable_and_not_validated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HandoffResult, "model_validate_json", never)

    result = parse_result('{"claims": [' + "0," * MAX_RESULT_VALUES + "0]}")

    assert result.status is ResultStatus.FAILED


@pytest.mark.parametrize("digits", ["9" * 4_300, "-1", "1" + "0" * 10])
def test_a_sandbox_cannot_forge_a_number_that_no_text_can_hold(digits: str) -> None:
    forged = {"exit_code": 0, "stopped": "", "stdout": "", "stderr": "", "files": {}}
    text = json.dumps(forged)[:-1] + f', "left_out": {digits}}}'

    with pytest.raises(ToolFailed, match="ended its sandbox without a result"):
        sandbox.parse_run(text.encode())


@pytest.mark.parametrize(("path", "body"), BODIES.values(), ids=BODIES)
def test_a_body_is_refused_with_one_line(
    path: str, body: bytes, http: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobBody, "model_validate_json", never)

    response = http.post(path, content=body, headers=MCP)

    assert response.status_code == 413
    assert f"the body has more than {MAX_VALUES:,} values" in response.text


def test_the_problem_of_a_body_names_a_limited_number_of_fields(http: TestClient) -> None:
    fields = {f"field-{number}": 0 for number in range(5_000)}

    response = http.post("/v1/jobs", json={"text": "x", **fields})

    assert response.status_code == 422
    assert len(response.json()["errors"]) == 1_000


@pytest.mark.parametrize("piece_bytes", [1, 3, 1_000])
@pytest.mark.parametrize(
    "text",
    [
        '{"a": [1, 2, {"b": "x, y [ {"}]}',
        '["\\"", "\\\\", "\\\\\\"", "[,{", [], {}]',
        '["",\n",",\r"[", 1]',
    ],
)
def test_values_are_counted_outside_of_texts_only(text: str, piece_bytes: int) -> None:
    data = text.encode()
    counter = JsonCounter()
    pieces = [data[begin : begin + piece_bytes] for begin in range(0, len(data), piece_bytes)]
    counts = [counter.count(piece) for piece in pieces]

    value = json.loads(text)
    groups, commas = _groups_and_commas(value)
    assert sum(count.groups for count in counts) == groups
    assert sum(count.commas for count in counts) == commas
    assert has_more_values(text, groups + commas)
    assert not has_more_values(text, groups + commas + 1)


def _groups_and_commas(value: Any) -> tuple[int, int]:
    if not isinstance(value, list | dict):
        return 0, 0
    inner = list(value.values()) if isinstance(value, dict) else value
    groups, commas = 1, max(0, len(inner) - 1)
    for item in inner:
        of_item = _groups_and_commas(item)
        groups, commas = groups + of_item[0], commas + of_item[1]
    return groups, commas


def test_a_long_text_with_few_values_is_not_too_much() -> None:
    assert not has_more_values(b'["' + b"1,2,[{" * 100_000 + b'"]', 10)


def many_of(kind: str, count: int) -> dict[str, Any]:
    fact = {"subject": "pump", "attribute": "power", "value": "1", "source": "a"}
    forms: dict[str, dict[str, Any]] = {
        "forbidden": {"gates": {"forbidden": ["a"] * count}},
        "required": {"gates": {"required": ["a"] * count}},
        "sections": {"gates": {"sections": ["a"] * count}},
        "numbers": {"gates": {"numbers": [1] * count}},
        "facts": {"facts": {"facts": [fact] * count}},
    }
    return {"text": "x", **forms[kind]}


@pytest.mark.parametrize(
    ("kind", "most"),
    [("forbidden", 100), ("required", 100), ("sections", 100), ("numbers", 100), ("facts", 2_000)],
)
def test_an_answer_is_compared_with_a_limited_number_of_conditions(kind: str, most: int) -> None:
    """A supervisor compares them all, and compiles each pattern whenever it reads the job."""
    JobBody.model_validate_json(json.dumps(many_of(kind, most)))

    with pytest.raises(ValidationError, match="too_long"):
        JobBody.model_validate_json(json.dumps(many_of(kind, most + 1)))
