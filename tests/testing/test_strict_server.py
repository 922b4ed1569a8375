"""A test fails if a request broke a rule of the Messages API, even if the client has hidden
the error.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from handoff_queue.testing import BrokenRules, MessagesServer, Reply, text_reply
from handoff_queue.testing.signatures import Signatures

Json = dict[str, Any]
HEADERS = {
    "anthropic-version": "2026-10-21",
    "x-api-key": "k",
    "content-type": "application/json",
}
MODEL = "m"
VALID: Json = {"model": MODEL, "max_tokens": 1, "messages": [{"role": "user", "content": "Hello"}]}
THINKING: Json = {"type": "thinking", "thinking": "Let me think."}
CALL: Json = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
SEARCH: Json = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
HITS: Json = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
RESULT: Json = {"type": "tool_result", "tool_use_id": "t", "content": "found"}


def send(server: MessagesServer, request: Json, **headers: str) -> tuple[int, Json]:
    """Send a request, and return the status and the body of the reply."""
    body = json.dumps(request).encode()
    http_request = urllib.request.Request(f"{server.url}/v1/messages", body, {**HEADERS, **headers})
    try:
        with urllib.request.urlopen(http_request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def with_reply(*blocks: Json) -> Json:
    """Return a request whose conversation contains these blocks as the assistant's reply."""
    results = [RESULT] if any(block["type"] == "tool_use" for block in blocks) else []
    content = [*results, {"type": "text", "text": "Go on."}]
    messages = [
        *VALID["messages"],
        {"role": "assistant", "content": list(blocks)},
        {"role": "user", "content": content},
    ]
    return {**VALID, "messages": messages}


def test_a_refused_request_gets_the_apis_error_and_fails_the_test() -> None:
    answers: list[tuple[int, Json]] = []

    def send_a_bad_request() -> None:
        with MessagesServer(lambda _: text_reply("x")) as server:
            answers.append(send(server, {**VALID, "max_tokens": 0}))
            assert server.requests == [], "the script gets no invalid request"

    with pytest.raises(BrokenRules, match="max_tokens"):
        send_a_bad_request()
    status, body = answers[0]
    assert (status, body["error"]["type"]) == (400, "invalid_request_error")
    assert body["error"]["message"].startswith("max_tokens: ")


def test_a_good_request_is_answered() -> None:
    with MessagesServer(lambda _: text_reply("x")) as server:
        assert send(server, VALID)[0] == 200


def test_a_lenient_server_accepts_broken_rules() -> None:
    with MessagesServer(
        lambda _: text_reply("x"), lenient_because="a local server without checks"
    ) as server:
        assert send(server, {**VALID, "max_tokens": 0})[0] == 200


@pytest.mark.slow
def test_a_request_of_more_than_32_megabytes_is_refused() -> None:
    with MessagesServer(lambda _: text_reply("x")) as server:
        assert send(server, {**VALID, "system": "x" * 33_600_000})[0] == 413
        assert server.violations
        server.violations.clear()


def test_changed_thinking_is_refused_over_http() -> None:
    with MessagesServer(lambda _: Reply(blocks=(THINKING, CALL))) as server:
        thinking, call = send(server, VALID)[1]["content"]
        tools = [{"name": "look", "input_schema": {"type": "object"}}]
        request = with_reply({**thinking, "thinking": "Let me sleep."}, call) | {"tools": tools}
        assert send(server, request)[0] == 400
        assert "Invalid `signature`" in server.violations[0]
        server.violations.clear()


@pytest.fixture
def signatures() -> Signatures:
    return Signatures()


def test_unchanged_thinking_is_accepted(signatures: Signatures) -> None:
    blocks = signatures.sign(
        (THINKING, {"type": "redacted_thinking", "data": "x"}, CALL), "tool_use", MODEL
    )
    assert list(signatures.find_violations(with_reply(*blocks))) == []


@pytest.mark.parametrize("change", ["its words", "its signature", "its place", "an older one"])
def test_changed_or_moved_thinking_is_a_violation(signatures: Signatures, change: str) -> None:
    text = {"type": "text", "text": "So."}
    first, middle, call = signatures.sign((THINKING, text, CALL), "tool_use", MODEL)
    changed = {
        "its words": (first | {"thinking": "Other"}, middle, call),
        "its signature": (first | {"signature": "1.1.1.0"}, middle, call),
        "its place": (middle, first, call),
        "an older one": (
            first | {"signature": Signatures().sign((THINKING,), None, MODEL)[0]["signature"]},
            call,
        ),
    }[change]
    assert any(
        "Invalid `signature`" in line for line in signatures.find_violations(with_reply(*changed))
    )


def test_a_call_without_its_thinking_is_a_violation(signatures: Signatures) -> None:
    *_, call = signatures.sign((THINKING, CALL), "tool_use", MODEL)
    assert any("must be sent back" in line for line in signatures.find_violations(with_reply(call)))


def test_a_call_without_the_thinking_of_another_model_is_accepted(signatures: Signatures) -> None:
    *_, call = signatures.sign((THINKING, CALL), "tool_use", "another-model")
    assert list(signatures.find_violations(with_reply(call))) == []


def test_a_missing_thinking_block_is_a_violation(signatures: Signatures) -> None:
    first, _, call = signatures.sign((THINKING, THINKING, CALL), "tool_use", MODEL)
    assert list(signatures.find_violations(with_reply(first, call)))


def test_text_after_a_paused_turn_is_a_violation(signatures: Signatures) -> None:
    blocks = signatures.sign((SEARCH, HITS), "pause_turn", MODEL)
    assert list(signatures.find_violations(with_reply(*blocks))) == [
        "messages.2: nothing can follow a paused turn"
    ]


def test_a_continued_paused_turn_is_accepted(signatures: Signatures) -> None:
    paused = signatures.sign((THINKING,), "pause_turn", MODEL)
    continued = signatures.sign(({"type": "text", "text": "So."},), "end_turn", MODEL)
    assert list(signatures.find_violations(with_reply(*paused, *continued))) == []
