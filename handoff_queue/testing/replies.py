"""Replies of a `MessagesServer`, and functions that read the requests."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from handoff_queue.shared.agent.markdown_answer import with_notes

Json = dict[str, Any]
"""A JSON object."""
USAGE: Json = {"input_tokens": 100, "output_tokens": 20}
"""Token counts of a reply that sets none."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One response of the server."""

    blocks: tuple[Json, ...] = ()
    """Content blocks of the message, in the form of the API."""
    stop_reason: str | None = "end_turn"
    """Stop reason of the message, in the form of the API."""
    usage: Json = field(default_factory=USAGE.copy)
    """Token counts of the message, in the form of the API."""
    context_management: Json | None = None
    """Report about edits of the request, in the form of the API. None: no report."""
    model: str | None = None
    """Name of the model. None: the requested model."""
    status: int = 200
    """HTTP status."""
    headers: dict[str, str] = field(default_factory=dict)
    """HTTP headers."""
    body: str | None = None
    """Body of the response, instead of a message: an error or garbage."""
    chunk_chars: int = 12
    """Characters of each delta of a stream."""
    cut_after_events: int | None = None
    """Number of events of a stream after which the server closes the connection. None: the
    server sends all events.
    """
    stall: threading.Event | None = None
    """Event that the server waits for before the end of a stream, without a time limit."""
    stall_before_headers: bool = False
    """True: the server waits for `stall` before it sends anything."""
    duration_s: float = 0.0
    """Seconds that the reply takes."""
    as_json: bool = False
    """True: the server ignores `stream: true` and sends one JSON object."""
    raw_events: tuple[str, ...] = ()
    """Text that the server sends before the events of a stream."""
    on_sent: Callable[[bool], None] | None = None
    """Function that the server calls after the last byte. Its argument is False if the client
    had closed the connection.
    """


Script = Callable[[Json], Reply]
"""A function that returns the reply to the body of a request."""


def text_reply(text: str, **options: Any) -> Reply:
    """Return a reply with one text block.

    Args:
        options: other fields of `Reply`.
    """
    return Reply(blocks=({"type": "text", "text": text},), **options)


def json_reply(value: Any, **options: Any) -> Reply:
    """Return a reply whose text is this value as JSON."""
    return text_reply(json.dumps(value), **options)


def claim(
    id: str,  # noqa: A002 (the name in the answer)
    text: str,
    *,
    source: str | None = None,
    quote: str | None = None,
    subject: str | None = None,
    attribute: str | None = None,
    value: str | None = None,
    unit: str | None = None,
    date: str | None = None,
) -> Json:
    """Return a claim of a specialist's result. The output refers to the claim as `[id]`.

    Args:
        id: `c1`, `c2`, ...
        source: path of the document, URL of the page, or name of the tool's result; with `quote`.
        quote: text of the source, letter by letter.
        subject: the thing that has a value. Claims with `subject`, `attribute` and `value` are
            compared with the claims of other steps.
        attribute: name of the value.
        value: the value, such as `8,849`.
        unit: unit of the value.
        date: date of the value.

    Raises:
        ValueError: only one of `source` and `quote` was given.
    """
    if (source is None) != (quote is None):
        raise ValueError("a claim needs `source` and `quote` together")
    sources: list[Json] = []
    if source is not None:
        sources.append({"source": source, "quote": quote})
    parts = {
        "subject": subject,
        "attribute": attribute,
        "value": value,
        "unit": unit,
        "date": date,
    }
    return {"id": id, "text": text, **_without_none(parts), "sources": sources}


def specialist_result(
    output: Any,
    *,
    status: str = "ok",
    claims: Sequence[Json] = (),
    confidence: float = 0.9,
    needs: str | None = None,
    problem: str | None = None,
) -> Json:
    """Return the result of a specialist as a JSON object. A specialist with an output schema must
    answer with this object. `result_reply` sends it in the form that the specialist must use.

    Args:
        output: text, or a value of the output schema of the specialist.
        status: `ok`, `partial`, `needs_input` or `failed`.
        claims: statements that have a source or a value; see `claim`.
        confidence: 0.0 to 1.0.
        needs: question of a specialist whose status is `needs_input`.
        problem: reason of a specialist whose status is `partial` or `failed`.
    """
    return {
        "status": status,
        "output": output,
        "claims": list(claims),
        "confidence": confidence,
        **_without_none({"needs": needs, "problem": problem}),
    }


def _without_none(fields: Json) -> Json:
    """Return the fields without the fields that are None, which an answer leaves out."""
    return {name: value for name, value in fields.items() if value is not None}


def result_reply(
    output: Any,
    *,
    status: str = "ok",
    claims: Sequence[Json] = (),
    confidence: float = 0.9,
    needs: str | None = None,
    problem: str | None = None,
    **options: Any,
) -> Reply:
    """Return a reply with the result of a specialist, in the form that the specialist must use.
    A text becomes Markdown with notes, and another output becomes JSON.

    Args:
        output: text, or a value of the output schema of the specialist.
        status: `ok`, `partial`, `needs_input` or `failed`.
        claims: statements that have a source or a value; see `claim`.
        confidence: 0.0 to 1.0.
        needs: question of a specialist whose status is `needs_input`.
        problem: reason of a specialist whose status is `partial` or `failed`.
        options: other fields of `Reply`.
    """
    result = specialist_result(
        output, status=status, claims=claims, confidence=confidence, needs=needs, problem=problem
    )
    if output is None or isinstance(output, str):
        return text_reply(with_notes(result), **options)
    return json_reply(result, **options)


def tool_call_reply(*calls: tuple[str, Json], text: str = "", **options: Any) -> Reply:
    """Return a reply that calls tools. Each call gets a unique id.

    Args:
        calls: the name and the arguments of each call.
        text: text before the calls.
        options: other fields of `Reply`.
    """
    blocks: list[Json] = [{"type": "text", "text": text}] if text else []
    for name, arguments in calls:
        id_ = f"toolu_{secrets.token_hex(8)}"
        blocks.append({"type": "tool_use", "id": id_, "name": name, "input": arguments})
    return Reply(blocks=tuple(blocks), stop_reason="tool_use", **options)


def error_reply(status: int, message: str = "no", kind: str = "api_error", **headers: str) -> Reply:
    """Return an error response of the API.

    Args:
        status: HTTP status.
        message: text of the error.
        kind: type of the error, such as `rate_limit_error`.
        headers: HTTP headers. An underscore in a name stands for a dash.
    """
    body = json.dumps({"type": "error", "error": {"type": kind, "message": message}})
    http_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, body=body, headers=http_headers)


def in_turn(*replies: Reply) -> Script:
    """Return a script that gives the replies in order. Each further request gets the last one."""
    left = list(replies)
    lock = threading.Lock()

    def reply(_request: Json) -> Reply:
        with lock:
            if len(left) > 1:
                return left.pop(0)
            return left[0]

    return reply


def first_message_text(request: Json) -> str:
    """Return the text of a request's first message, which holds the task."""
    return "".join(block.get("text", "") for block in request["messages"][0]["content"])


def answer_properties(request: Json) -> Json:
    """Return the properties of the requested JSON answer. They tell a script which agent
    calls. The result is empty if the request does not ask for JSON: a specialist without an
    output schema calls.
    """
    answer_format = request.get("output_config", {}).get("format", {})
    properties: Json = answer_format.get("schema", {}).get("properties", {})
    return properties


def convert_to_message(reply: Reply) -> Json:
    """Return the reply as one JSON object."""
    message: Json = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": list(reply.blocks),
        "stop_reason": reply.stop_reason,
        "stop_sequence": None,
        "usage": reply.usage,
    }
    if reply.context_management is not None:
        message["context_management"] = reply.context_management
    return message


def stream_events(reply: Reply) -> list[Json]:
    """Return the reply as the events of a stream."""
    start = {
        **convert_to_message(replace(reply, context_management=None)),
        "content": [],
        "stop_reason": None,
        "usage": {**reply.usage, "output_tokens": 1} if reply.usage else {},
    }
    iterations = start["usage"].pop("iterations", None)
    events: list[Json] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(reply.blocks):
        empty, deltas = _split_block(block, reply.chunk_chars)
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        for delta in deltas:
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    end: Json = {
        "type": "message_delta",
        "delta": {"stop_reason": reply.stop_reason, "stop_sequence": None},
    }
    if "output_tokens" in reply.usage:
        end["usage"] = {"output_tokens": reply.usage["output_tokens"]}
    if iterations is not None:
        end["usage"]["iterations"] = iterations
    if reply.context_management is not None:
        end["context_management"] = reply.context_management
    return [*events, end, {"type": "message_stop"}]


def _split_block(block: Json, size: int) -> tuple[Json, list[Json]]:
    """Return the empty form of a content block, which starts it in a stream, and its deltas.

    Args:
        size: characters of each delta.
    """
    match block["type"]:
        case "text":
            empty = {**block, "text": ""}
            return empty, _split_text("text_delta", "text", block["text"], size)
        case "tool_use":
            text = block["input"]
            if not isinstance(text, str):
                text = json.dumps(text)
            empty = {**block, "input": {}}
            return empty, _split_text("input_json_delta", "partial_json", text, size)
        case "thinking":
            deltas = _split_text("thinking_delta", "thinking", block["thinking"], size)
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, deltas
        case _:
            return block, []


def _split_text(kind: str, field_name: str, text: str, size: int) -> list[Json]:
    deltas: list[Json] = []
    for at in range(0, len(text), size):
        deltas.append({"type": kind, field_name: text[at : at + size]})
    return deltas
