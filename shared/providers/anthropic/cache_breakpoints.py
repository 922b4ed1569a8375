"""Cache breakpoints (`cache_control`) of a request: their places and their time to live.

Another breakpoint is at the end of the system prompt: see `request.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from handoff_queue.shared.types.model import Block, MessageParam, ModelCall

_FOR_5_MINUTES = {"type": "ephemeral"}
_FOR_1_HOUR = {"type": "ephemeral", "ttl": "1h"}


def cache_mark(*, for_1h: bool) -> dict[str, str]:
    """Return the value of `cache_control`."""
    if for_1h:
        return _FOR_1_HOUR
    return _FOR_5_MINUTES


def messages_with_breakpoints(call: ModelCall, mark: Mapping[str, str]) -> list[MessageParam]:
    """Return the messages with cache breakpoints.

    One is at the last block if the agent has tools, because its next turn repeats everything up
    to this block. An agent without tools has one turn, so a breakpoint would only cost money.
    Another one is at the first block of several, which the requests of other handoffs repeat.
    """
    messages = list(call.messages)
    opening = messages[0]["content"] if messages else ""
    if not isinstance(opening, str) and len(opening) > 1:
        messages[0] = _marked(messages[0], 0, mark)
    if messages and call.tools:
        messages[-1] = _marked(messages[-1], -1, mark)
    return messages


def _marked(message: MessageParam, index: int, mark: Mapping[str, str]) -> MessageParam:
    """Return the message with a cache breakpoint at one of its blocks."""
    content = message["content"]
    blocks: list[Block]
    if isinstance(content, str):
        blocks = [{"type": "text", "text": content}]
    else:
        blocks = list(content)
    if blocks and blocks[index].get("type") in ("text", "tool_result"):
        blocks[index] = {**blocks[index], "cache_control": mark}
    return {**message, "content": blocks}
