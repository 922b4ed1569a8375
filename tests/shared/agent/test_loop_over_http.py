"""The agent loop works over HTTP with the adapter and server-sent events."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from handoff_queue.shared.agent.batch_rules import BatchRules
from handoff_queue.shared.agent.model_fallback import ModelChoice
from handoff_queue.shared.types.errors import Deferred
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus, StopReason
from handoff_queue.testing import (
    MessagesServer,
    Reply,
    Script,
    error_reply,
    in_turn,
    json_reply,
    text_reply,
    tool_call_reply,
)
from handoff_queue.testing.replies import stream_events
from tests.doubles.agent_runs import Run, answer_reply, envelope, run_with_replies
from tests.doubles.handoffs import a_handoff, a_tool
from tests.doubles.served_model import model_at

SECOND = "claude-sonnet-5-5"
"""A model after the model of `Run`."""
LOOK = a_tool("look", lambda arguments: f"found {arguments['q']}")


def model_for(script: Script, **options: Any) -> tuple[HandoffResult, Run, MessagesServer]:
    run = run_with_replies(text_reply("never used"), tools=(LOOK,), **options)
    with MessagesServer(script) as server, model_at(server.url) as run.model:
        return run.go(), run, server


def test_a_tool_call_and_an_answer() -> None:
    result, _, server = model_for(in_turn(tool_call_reply(("look", {"q": "rust"})), answer_reply()))
    assert result.status is ResultStatus.OK
    assert result.turns == len(server.requests) == 2
    assert server.requests[1]["messages"][2]["content"][0]["content"] == "found rust"


def think_and_decline(request: dict[str, Any]) -> Reply:
    """Reply as a first model that thinks, calls a tool and declines the next turn, and as a second
    model that answers.
    """
    if request["model"] == SECOND:
        return answer_reply()
    if len(request["messages"]) > 1:
        return text_reply("No.", stop_reason="refusal")
    call = tool_call_reply(("look", {"q": "rust"}))
    return replace(call, blocks=({"type": "thinking", "thinking": "Hm."}, *call.blocks))


@pytest.mark.parametrize("is_batched", [False, True])
def test_another_model_goes_on_after_the_thinking_and_the_tool_call_of_the_first(
    is_batched: bool,
) -> None:
    with MessagesServer(think_and_decline) as server, model_at(server.url) as model:
        run = run_with_replies(tools=(LOOK,), fallbacks=(ModelChoice(SECOND),))
        run.model = model
        if is_batched:
            assert model.batches is not None
            run.batches = BatchRules(model.batches, until=run.clock.now() + 3_600)
        result = go_to_the_end(run)
    assert (result.status, result.model) == (ResultStatus.OK, SECOND)
    assert server.violations == []
    assert len(server.batches.paid) == (3 if is_batched else 0)
    sent = server.requests[-1]["messages"][1]["content"]
    assert [block["type"] for block in sent] == ["tool_use"]


def test_a_busy_model_gets_one_live_call_after_its_batch_and_then_the_next_model_a_batch() -> None:
    def reply_to(request: dict[str, Any]) -> Reply:
        return answer_reply() if request["model"] == SECOND else error_reply(529)

    with MessagesServer(reply_to) as server, model_at(server.url) as model:
        run = run_with_replies(bucket="first", fallbacks=(ModelChoice(SECOND, "second"),))
        run.model = model
        assert model.batches is not None
        run.batches = BatchRules(model.batches, until=run.clock.now() + 3_600)
        result = go_to_the_end(run)
    assert (result.status, result.turns) == (ResultStatus.OK, 2)
    assert [request["model"] for request in server.requests] == [run.model_name] * 2 + [SECOND]
    assert len(server.batches.created) == 2


def go_to_the_end(run: Run) -> HandoffResult:
    """Run the handoff again after each deferral, until it has a result."""
    while True:
        try:
            return run.go()
        except Deferred as deferred:
            run.clock.now_s += deferred.seconds
            run.checkpoints = run.checkpoints.reopened()


def test_an_answer_in_a_code_fence_within_prose_is_read() -> None:
    text = f"Sure! Here is the answer:\n```json\n{json.dumps(envelope())}\n```\nAnything else?"
    handoff = a_handoff(expected_output_format={"type": ["string", "object"]})
    assert model_for(in_turn(text_reply(text)), handoff=handoff)[0].status is ResultStatus.OK


@pytest.mark.parametrize(
    "trouble",
    [
        error_reply(429, retry_after="1"),
        error_reply(500),
        error_reply(529),
        text_reply("half an answ", cut_after_events=4),
        text_reply("x", raw_events=("event: message_start\ndata: {\n\n",)),
        Reply(),
        text_reply('{"status": "ok", "outp', stop_reason="max_tokens"),
        json_reply({"status": "ok", "output": "", "claims": []}),
        json_reply({"status": "ok", "output": "Done.", "claims": []}),
    ],
    ids=["429", "500", "529", "cut", "garbage", "empty", "truncated", "nothing", "done"],
)
def test_trouble_that_passes_costs_one_turn(trouble: Reply) -> None:
    result, _, server = model_for(in_turn(trouble, answer_reply()))
    assert result.status is ResultStatus.OK
    assert result.turns == len(server.requests) == 2


@pytest.mark.parametrize(
    ("trouble", "reason", "requests"),
    [
        (error_reply(401), StopReason.MODEL_ERROR, 1),
        (error_reply(400, "prompt is too long"), StopReason.MODEL_ERROR, 1),
        (error_reply(500), StopReason.MODEL_ERROR, 5),
        (text_reply("no", stop_reason="refusal"), StopReason.REFUSED, 1),
        (Reply(), StopReason.INVALID_OUTPUT, 2),
        (
            json_reply({"status": "ok", "output": "I completed the task"}),
            StopReason.INVALID_OUTPUT,
            2,
        ),
    ],
    ids=["401", "400", "500", "refusal", "empty", "done"],
)
def test_trouble_that_stays_is_a_failure_with_a_reason(
    trouble: Reply, reason: StopReason, requests: int
) -> None:
    result, _, server = model_for(in_turn(trouble))
    assert (result.status, result.stop_reason, len(server.requests)) == (
        ResultStatus.FAILED,
        reason,
        requests,
    )
    assert result.error
    assert "canary" not in result.to_json()


def test_valid_nonsense_is_a_result_without_claims() -> None:
    result, _, _ = model_for(in_turn(json_reply(envelope("Lorem ipsum dolor.", claims=[]))))
    assert result.status is ResultStatus.OK
    assert result.claims == ()


@pytest.mark.parametrize(
    "mistake",
    [
        {"status": "OK"},
        {"status": "Success"},
        {"status": "completed."},
        {"status": None},
        {"confidence": None},
        {"confidence": "high"},
        {"needs": None, "problem": None},
    ],
)
def test_an_answer_that_a_server_has_not_enforced_costs_no_turn(mistake: dict[str, object]) -> None:
    result, _, server = model_for(in_turn(json_reply({**envelope(), **mistake})))
    assert result.status is ResultStatus.OK
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("Incomplete", ResultStatus.PARTIAL),
        ("partially complete", ResultStatus.PARTIAL),
        ("Needs-Input", ResultStatus.NEEDS_INPUT),
        ("ERROR", ResultStatus.FAILED),
        ("failure", ResultStatus.FAILED),
        ("partiallyCompleted", ResultStatus.PARTIAL),
        ("needsInput", ResultStatus.NEEDS_INPUT),
        ("needs clarification", ResultStatus.NEEDS_INPUT),
        ("**Failed**", ResultStatus.FAILED),
        ("'error',", ResultStatus.FAILED),
    ],
)
def test_a_synonym_of_a_status_is_that_status(status: str, expected: ResultStatus) -> None:
    reply = json_reply(envelope(status=status, problem="No file.", needs="The file."))
    assert model_for(in_turn(reply))[0].status is expected


def test_raw_line_breaks_and_lone_backslashes_cost_no_turn() -> None:
    text = '{"status": "done", "output": "Line one.\nC:\\dir", "claims": null,}'
    result, _, server = model_for(in_turn(text_reply(text)))
    assert (result.status, result.output) == (ResultStatus.OK, "Line one.\nC:\\dir")
    assert len(server.requests) == 1


def as_data_lines(reply: Reply) -> Reply:
    """Return the reply as a stream without `event:` lines, as some servers send it."""
    events = stream_events(replace(reply, model="m"))
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return replace(reply, raw_events=(*lines, "data: [DONE]\n\n"), cut_after_events=0)


def test_a_stream_without_event_lines_is_read() -> None:
    replies = (
        as_data_lines(tool_call_reply(("look", {"q": "rust"}))),
        as_data_lines(answer_reply()),
    )
    result, _, server = model_for(in_turn(*replies))
    assert result.status is ResultStatus.OK
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"message": "model not loaded"}},
        {"error": {"message": "model not loaded", "type": "model_error"}},
        {"error": {"message": "model not loaded", "code": "not_loaded"}},
        {"error": {"message": "model not loaded", "type": "invalid_request_error"}},
        {"type": "error", "error": {"message": "model not loaded"}},
        {"error": "model not loaded"},
        {"error": "model not loaded", "message": "Load it first."},
        {"detail": "model not loaded"},
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_an_error_with_status_200_is_reported_and_costs_nothing(
    error: dict[str, object], as_json: bool
) -> None:
    as_event = Reply(raw_events=(f"data: {json.dumps(error)}\n\n",), cut_after_events=0)
    reply = Reply(body=json.dumps(error)) if as_json else as_event
    result, _, server = model_for(in_turn(reply))

    assert result.stop_reason is StopReason.MODEL_ERROR
    assert "model not loaded" in (result.error or "")
    assert len(server.requests) == 1
    assert result.usage.total_tokens == 0


@pytest.mark.parametrize("kind", ["api_error", "overloaded_error", "unavailable_error", "timeout"])
def test_an_error_with_status_200_that_may_pass_costs_one_turn(kind: str) -> None:
    error = {"error": {"type": kind, "message": "Loading the model."}}
    result, _, server = model_for(in_turn(Reply(body=json.dumps(error)), answer_reply()))
    assert result.status is ResultStatus.OK
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("kind", "start"),
    [
        ("text/plain", ""),
        ("text/event-stream", ""),
        ("text/event-stream", "data: "),
        ("application/problem+json", ""),
    ],
)
def test_an_error_is_reported_for_every_content_type(kind: str, start: str) -> None:
    body = start + json.dumps({"error": {"message": "model not loaded"}})
    result, _, server = model_for(in_turn(Reply(body=body, headers={"content-type": kind})))
    assert "model not loaded" in (result.error or "")
    assert len(server.requests) == 1
