"""Writing one message as the Messages API's server-sent events, in the order in which the real
API sends them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_PIECE_CHARS = 240
"""Characters of one delta: small enough that a draft is seen to grow, large enough to cost nothing.
"""


def events(message: dict[str, Any]) -> Iterator[bytes]:
    """message_start, then each block's start, deltas and stop, then message_delta with the
    final usage, then message_stop.
    """
    opening = {
        **message,
        "content": [],
        "stop_reason": None,
        "usage": {**message["usage"], "output_tokens": 1},
    }
    yield _event("message_start", message=opening)
    yield _event("ping")
    for index, block in enumerate(message["content"]):
        yield from _block_events(index, block)
    delta = {
        "stop_reason": message["stop_reason"],
        "stop_sequence": None,
        "stop_details": None,
        "container": None,
    }
    yield _event(
        "message_delta", delta=delta, usage={"output_tokens": message["usage"]["output_tokens"]}
    )
    yield _event("message_stop")


def _block_events(index: int, block: dict[str, Any]) -> Iterator[bytes]:
    if block["type"] == "tool_use":
        empty, key, kind, text = (
            {**block, "input": {}},
            "partial_json",
            "input_json_delta",
            json.dumps(block["input"], ensure_ascii=False),
        )
    else:
        empty, key, kind, text = {**block, "text": ""}, "text", "text_delta", block["text"]
    yield _event("content_block_start", index=index, content_block=empty)
    for start in range(0, len(text), _PIECE_CHARS):
        yield _event(
            "content_block_delta",
            index=index,
            delta={"type": kind, key: text[start : start + _PIECE_CHARS]},
        )
    yield _event("content_block_stop", index=index)


def _event(name: str, **fields: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields}, ensure_ascii=False)}\n\n".encode()
