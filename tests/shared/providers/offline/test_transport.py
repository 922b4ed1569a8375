"""The offline model answers the SDK's client over HTTP as the real API does."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx2
import pytest

from handoff_queue.shared.providers.offline.conversation import OfflineClaim, RequestParts, Result
from handoff_queue.shared.providers.offline.transport import OfflineTransport, reply_to
from tests.shared.providers.offline.offline_requests import (
    EXAMPLES,
    Library,
    client,
    envelope_schema,
)

QUESTION = [{"role": "user", "content": "<task>Research Qdrant with regard to filtering.</task>"}]


def _body(**changes: Any) -> dict[str, Any]:
    return {"model": "offline", "max_tokens": 4_096, "messages": QUESTION, **changes}


def _posted(body: Any, path: str = "/v1/messages") -> httpx2.Response:
    with httpx2.Client(transport=OfflineTransport(), base_url="http://offline.invalid") as http:
        return (
            http.post(path, content=body) if isinstance(body, bytes) else http.post(path, json=body)
        )


def test_the_same_request_gives_the_same_bytes() -> None:
    body = _body(stream=True, tools=Library.of(EXAMPLES).tools)
    assert _posted(body).content == _posted(body).content


def test_a_streamed_reply_is_the_unstreamed_one() -> None:
    tools: Any = Library.of(EXAMPLES).tools
    messages: Any = QUESTION
    whole = client().messages.create(
        model="offline", max_tokens=4_096, messages=messages, tools=tools
    )
    with client().messages.stream(
        model="offline", max_tokens=4_096, messages=messages, tools=tools
    ) as stream:
        streamed = stream.get_final_message()
    assert [block.type for block in streamed.content] == [block.type for block in whole.content]
    assert [block.input for block in streamed.content if block.type == "tool_use"] == [
        block.input for block in whole.content if block.type == "tool_use"
    ]
    assert streamed.stop_reason == whole.stop_reason == "tool_use"
    assert streamed.usage.input_tokens == whole.usage.input_tokens > 0


def test_events_come_in_the_order_of_the_api() -> None:
    with client().messages.stream(
        model="offline",
        max_tokens=4_096,
        messages=[{"role": "user", "content": "What is a vector?"}],
    ) as stream:
        kinds = [event.type for event in stream]
    once = [
        kind
        for index, kind in enumerate(kinds)
        if kind != "text" and kinds[index - 1 : index] != [kind]
    ]
    assert once[0] == "message_start"
    assert [
        kind
        for kind in once
        if kind in ("content_block_start", "content_block_stop", "message_delta", "message_stop")
    ] == [
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_text_arrives_in_pieces_that_make_up_the_whole() -> None:
    schema = envelope_schema()
    with client().messages.stream(
        model="offline",
        max_tokens=4_096,
        messages=[
            {"role": "user", "content": f"<task>Research the subject: {'long words ' * 60}</task>"}
        ],
        output_config={"format": {"type": "json_schema", "schema": schema}},
    ) as stream:
        pieces = list(stream.text_stream)
        assert "".join(pieces) == stream.get_final_text()
    assert len(pieces) > 1


def test_ids_of_tool_calls_differ_within_a_turn() -> None:
    content = _posted(_body(tools=Library.of(EXAMPLES).tools)).json()["content"]
    ids = [block["id"] for block in content if block["type"] == "tool_use"]
    assert len(set(ids)) == len(ids) > 1


def test_a_reply_over_max_tokens_is_cut_with_that_stop_reason() -> None:
    message = client().messages.create(
        model="offline",
        max_tokens=5,
        messages=[{"role": "user", "content": "What is a vector database?"}],
    )
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 5
    assert [len(block.text) for block in message.content if block.type == "text"] == [20]


def test_the_model_reports_its_own_name_for_every_requested_name() -> None:
    assert _posted(_body(model="claude-opus-5-5")).json()["model"] == "offline"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/messages/count_tokens", "/"])
def test_an_unknown_path_is_not_found(path: str) -> None:
    response = _posted(_body(), path)
    assert response.status_code == 404
    assert response.json()["error"]["type"] == "not_found_error"
    assert response.json()["request_id"] == response.headers["request-id"]


def test_the_client_raises_not_found_for_an_unknown_path() -> None:
    with pytest.raises(anthropic.NotFoundError):
        client().models.retrieve("offline")


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"{not json", "not valid JSON"),
        (b"[]", "JSON object"),
        ({"model": "offline", "max_tokens": 10}, "messages: Field required"),
        ({"messages": QUESTION, "max_tokens": 10}, "model: Field required"),
        (_body(max_tokens=0), "max_tokens"),
        (_body(max_tokens=True), "max_tokens"),
        (_body(messages=[]), "messages.0.role"),
        (_body(messages=[{"role": "robot", "content": "hi"}]), "messages.0.role"),
        (_body(messages=[{"role": "assistant", "content": "hi"}]), "first message"),
        (_body(messages=[{"role": "user"}]), "content"),
        (_body(tools=[{"description": "nameless"}]), "name"),
        (_body(tool_choice={"type": "any"}), "tool_choice"),
        (_body(tools=5), "malformed"),
        (_body(output_config="x"), "malformed"),
        (
            _body(
                messages=[
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}],
                    }
                ]
            ),
            "tool_use_id",
        ),
    ],
)
def test_a_malformed_request_is_refused_by_the_name_of_its_field(body: Any, named: str) -> None:
    response = _posted(body)
    assert response.status_code == 400
    assert response.json()["type"] == "error"
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert named in response.json()["error"]["message"]


def test_a_tool_call_must_be_answered_before_the_next_message() -> None:
    called = {
        "role": "assistant",
        "content": [
            {"type": "tool_use", "id": "t1", "name": "search_documents", "input": {"query": "x"}}
        ],
    }
    response = _posted(_body(messages=[*QUESTION, called, {"role": "user", "content": "and?"}]))
    assert response.status_code == 400
    assert "t1" in response.json()["error"]["message"]


@pytest.mark.slow
def test_a_request_of_a_megabyte_is_answered_quickly() -> None:
    hostile = "a" * 500_000 + " Compare " + "b, " * 150_000
    assert (
        _posted(
            _body(messages=[{"role": "user", "content": f"<task>{hostile}</task>"}])
        ).status_code
        == 200
    )


def test_an_answer_has_only_the_fields_of_its_schema() -> None:
    claim = OfflineClaim(
        "find.c1", "Qdrant is written in Rust.", "a.md", ("It is written in Rust.",)
    )
    result = Result("find", "ok", "Qdrant is written in Rust [find.c1].", (claim,))
    schema: dict[str, Any] = {"properties": {"status": {}, "output": {}, "confidence": {}}}
    (block,) = reply_to(RequestParts("Write about Qdrant.", (result,), schema=schema))
    answer = json.loads(block["text"])
    assert sorted(answer) == ["confidence", "output", "status"]
    assert "[find.c1]" in answer["output"]
