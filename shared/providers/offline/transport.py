"""The offline model as a transport of the SDK's HTTP client. It opens no socket.

    transport = OfflineTransport()
    http_client = anthropic.DefaultHttpxClient(transport=transport)
    anthropic.Anthropic(api_key="offline", http_client=http_client)

It also works with AsyncAnthropic and DefaultAsyncHttpxClient. The schema of the answer selects
the role that the offline model plays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import httpx2

from handoff_queue.shared.agent.markdown_answer import with_notes
from handoff_queue.shared.providers.offline import planning, reviewing
from handoff_queue.shared.providers.offline.conversation import (
    RefusedRequest,
    RequestParts,
    only_properties,
)
from handoff_queue.shared.providers.offline.specialist import build_answer, next_calls
from handoff_queue.shared.settings.settings import OFFLINE_MODEL

Block = dict[str, Any]
_ROLES: Mapping[frozenset[str], Callable[[RequestParts], dict[str, Any]]] = {
    frozenset({"route", "specialist"}): planning.choose_route,
    frozenset({"steps", "synthesis"}): planning.plan,
    frozenset({"resolutions"}): planning.resolve_needs,
    frozenset({"decision", "why"}): planning.replan,
    frozenset({"verdict", "revisions"}): reviewing.assess,
    frozenset({"settlements"}): reviewing.settle_conflicts,
    frozenset({"rulings"}): reviewing.leave_points_undecided,
}
"""Functions of the supervisor's roles, by fields that only the answers of the role have."""
_ENVELOPE = frozenset({"status", "output"})
"""Fields of each specialist's answer. A specialist without tools has no field for claims."""
_FACT_CHECK = frozenset({"verdict", "wrong", "why"})


def reply_to(conversation: RequestParts) -> list[Block]:
    """Return the content blocks of the reply: tool calls, or the final text.

    Raises:
        RefusedRequest: the schema of the answer belongs to no role and to no specialist.
    """
    fields = frozenset(conversation.schema.get("properties", {}))
    for marks, role in _ROLES.items():
        if marks <= fields:
            return [_build_text_block(role(conversation))]
    if conversation.schema and not fields >= _ENVELOPE:
        names = ", ".join(sorted(fields)) or "no fields"
        raise RefusedRequest(f"the offline model has no answer in the form with {names}")
    output_fields = frozenset(conversation.output_format.get("properties", {}))
    if output_fields == _FACT_CHECK:
        return [_build_text_block(reviewing.check_facts(conversation))]
    if "scores" in output_fields and '\n{"answer":' in conversation.task:
        return [_build_text_block(reviewing.grade(conversation))]
    if calls := next_calls(conversation):
        return calls
    envelope = build_answer(conversation)
    if not conversation.schema:
        return [{"type": "text", "text": _format_markdown(conversation, envelope)}]
    return [_build_text_block(only_properties(envelope, conversation.schema))]


def _format_markdown(conversation: RequestParts, envelope: dict[str, Any]) -> str:
    """Return an answer with the notes that the request asks for."""
    if not conversation.has_notes:
        return str(envelope["output"])
    if not conversation.has_claims:
        envelope = {**envelope, "claims": []}
    return with_notes(envelope)


def _build_text_block(value: dict[str, Any]) -> Block:
    return {"type": "text", "text": json.dumps(value, ensure_ascii=False, indent=1)}


_CHARS_PER_TOKEN = 4
"""Estimate without a tokenizer. Tokens of the offline model cost nothing."""
_DELTA_CHARS = 240
"""Characters of one delta of a stream. With few characters, a reader sees the text grow."""


class OfflineTransport(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """Answers `POST /v1/messages`.

    The transport has no state and is thread-safe. The same request always gets the same bytes.
    """

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return _build_response(request, request.read())

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return _build_response(request, await request.aread())


class _Stream(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __init__(self, message: dict[str, Any]) -> None:
        self._message = message

    def __iter__(self) -> Iterator[bytes]:
        return _iterate_events(self._message)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for event in self:
            yield event


def _build_response(request: httpx2.Request, body: bytes) -> httpx2.Response:
    digest = hashlib.sha256(body).hexdigest()
    request_id = f"req_offline_{digest[:16]}"
    headers = {"request-id": request_id}
    if request.url.path != "/v1/messages" or request.method != "POST":
        requested_route = f"{request.method} {request.url.path}"
        text = f"Not found: {requested_route} (the offline model serves POST /v1/messages only)"
        return _build_error(404, "not_found_error", text, request_id)
    try:
        values = _parse(body)
        message = _build_message(values, digest)
    except RefusedRequest as error:
        return _build_error(400, "invalid_request_error", str(error), request_id)
    if values.get("stream"):
        headers["content-type"] = "text/event-stream"
        return httpx2.Response(200, headers=headers, stream=_Stream(message))
    return httpx2.Response(200, headers=headers, json=message)


def _build_error(status: int, kind: str, text: str, request_id: str) -> httpx2.Response:
    error = {"type": kind, "message": text}
    content = {"type": "error", "error": error, "request_id": request_id}
    return httpx2.Response(status, headers={"request-id": request_id}, json=content)


def _parse(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError as error:
        raise RefusedRequest(f"The request body is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise RefusedRequest("The request body must be a JSON object")
    return value


def _build_message(request: dict[str, Any], digest: str) -> dict[str, Any]:
    """Return the message that answers a request. Its ids come from the digest of the request's
    body.
    """
    content = reply_to(RequestParts.from_request(request))
    stop_reason = "end_turn"
    for index, block in enumerate(content):
        if block["type"] == "tool_use":
            block["id"] = f"toolu_offline_{digest[:16]}_{index}"
            stop_reason = "tool_use"
    if _count_tokens(content) > request["max_tokens"]:
        content, stop_reason = _cut_content(content, request["max_tokens"]), "max_tokens"
    input_parts: list[Any] = []
    for key in ("system", "messages", "tools", "output_config"):
        input_parts.append(request.get(key))
    usage = {
        "input_tokens": _estimate(json.dumps(input_parts, ensure_ascii=False)),
        "output_tokens": min(_count_tokens(content), request["max_tokens"]),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    return {
        "id": f"msg_offline_{digest[:24]}",
        "type": "message",
        "role": "assistant",
        "model": OFFLINE_MODEL,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": usage,
    }


def _estimate(text: str) -> int:
    """Return the number of tokens of a text, at least 1."""
    return max(1, -(-len(text) // _CHARS_PER_TOKEN))


def _count_tokens(content: list[dict[str, Any]]) -> int:
    text = ""
    for block in content:
        text += block.get("text") or json.dumps(block)
    return _estimate(text)


def _cut_content(content: list[dict[str, Any]], max_tokens: int) -> list[dict[str, Any]]:
    """Return the blocks cut to `max_tokens`. A tool call and all blocks after it are left out."""
    left = max_tokens * _CHARS_PER_TOKEN
    kept_blocks: list[dict[str, Any]] = []
    for block in content:
        if block["type"] != "text" or left <= 0:
            break
        kept_blocks.append({**block, "text": block["text"][:left]})
        left -= len(block["text"])
    return kept_blocks


def _iterate_events(message: dict[str, Any]) -> Iterator[bytes]:
    """Yield the server-sent events of a message, in the order of the real API."""
    usage = {**message["usage"], "output_tokens": 1}
    opening = {**message, "content": [], "stop_reason": None, "usage": usage}
    yield _build_event("message_start", message=opening)
    yield _build_event("ping")
    for index, block in enumerate(message["content"]):
        yield from _block_events(index, block)
    delta = {
        "stop_reason": message["stop_reason"],
        "stop_sequence": None,
        "stop_details": None,
        "container": None,
    }
    usage = {"output_tokens": message["usage"]["output_tokens"]}
    yield _build_event("message_delta", delta=delta, usage=usage)
    yield _build_event("message_stop")


def _block_events(index: int, block: dict[str, Any]) -> Iterator[bytes]:
    if block["type"] == "tool_use":
        empty = {**block, "input": {}}
        kind, key = "input_json_delta", "partial_json"
        text = json.dumps(block["input"], ensure_ascii=False)
    else:
        empty = {**block, "text": ""}
        kind, key = "text_delta", "text"
        text = block["text"]
    yield _build_event("content_block_start", index=index, content_block=empty)
    for start in range(0, len(text), _DELTA_CHARS):
        delta = {"type": kind, key: text[start : start + _DELTA_CHARS]}
        yield _build_event("content_block_delta", index=index, delta=delta)
    yield _build_event("content_block_stop", index=index)


def _build_event(name: str, **fields: Any) -> bytes:
    data = json.dumps({"type": name, **fields}, ensure_ascii=False)
    return f"event: {name}\ndata: {data}\n\n".encode()
