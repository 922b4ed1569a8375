"""A message of the model as the events of a stream of the Messages API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from handoff_queue.shared.types.model import Block

Event = dict[str, Any]
PING: Event = {"type": "ping"}


def events_of(message_id: str, model: str, content: Sequence[Block]) -> Iterator[Event]:
    """Yield the events of one message with texts and calls of tools.

    The usage is zero: the worker counts the tokens, not the program.

    Args:
        message_id: id of the message. The program joins messages of the same id.
    """
    stop_reason = "end_turn"
    message: Event = {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
    yield {"type": "message_start", "message": message}
    for index, block in enumerate(content):
        if block["type"] == "tool_use":
            stop_reason = "tool_use"
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        else:
            empty = {**block, "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": stop_reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": 0}}
    yield {"type": "message_stop"}


def as_server_sent(event: Event) -> bytes:
    """Return an event in the form of a server-sent event."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
