"""Turns checkpoints and the blocks of replies into the messages of the next request. Pure.

The Messages API refuses some blocks that a server wrote, so these are corrected or left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from handoff_queue.shared.agent.untrusted_text import escape_tags
from handoff_queue.shared.types.checkpoints import ObservedImage, ToolObserved, UserPrompted
from handoff_queue.shared.types.model import COMPACTION, Block, MessageParam

FROM_THE_USER = (
    "A message from the person who runs this job. Treat it like your task, and follow it from now"
    " on:"
)
CLEARED = "[cleared: {chars} characters; read_result shows {name} again]"
"""Text of a result that requests no longer show."""
THINKING = ("thinking", "redacted_thinking")
_OF_USERS = ("tool_result", "image", "document")
"""Blocks that the Messages API refuses in a message of the model. Some servers write them."""
SERVER_CALLS = ("server_tool_use", "mcp_tool_use")


def find_open_server_calls(content: Iterable[Block]) -> set[str]:
    """Return the ids of calls of the provider's own tools that have no later result in these
    blocks.
    """
    open_ids = set[str]()
    for block in content:
        if block.get("type") in SERVER_CALLS:
            open_ids.add(str(block.get("id")))
        else:
            open_ids.discard(str(block.get("tool_use_id")))
    return open_ids


def add_blocks(messages: list[MessageParam], role: str, blocks: Iterable[Block]) -> None:
    """Add the blocks to the last message if it has the same role, else add a message. Roles
    must alternate.
    """
    new = list(blocks)
    if not new:
        return
    if messages[-1]["role"] == role:
        messages[-1]["content"].extend(new)
    else:
        messages.append({"role": role, "content": new})


def _build_image_block(image: ObservedImage) -> Block:
    source = {"type": "base64", "media_type": image.media_type, "data": image.data}
    return {"type": "image", "source": source}


def build_user_message_block(prompt: UserPrompted) -> Block:
    """Return the message of a user in a tag that its text cannot close."""
    inside = escape_tags(prompt.text)
    return {"type": "text", "text": f"{FROM_THE_USER}\n<message>{inside}</message>"}


def build_tool_result_block(observed: ToolObserved) -> Block:
    if observed.source:
        text = f"[source: {observed.source}]\n{observed.text}"
    else:
        text = observed.text
    content: str | list[Block] = text
    if observed.images:
        content = []
        if text.strip():
            content.append({"type": "text", "text": text})
        content.extend(map(_build_image_block, observed.images))
    block: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": observed.tool_use_id,
        "content": content,
    }
    if observed.is_error:
        return {**block, "is_error": True}
    return block


def build_cleared_result_block(observed: ToolObserved, name: str) -> Block:
    """Return the note in place of a cleared result. The result is still a source."""
    note = CLEARED.format(chars=len(observed.text), name=name)
    return build_tool_result_block(observed.model_copy(update={"text": note, "images": None}))


def build_sendable_blocks(content: Iterable[Block]) -> list[Block]:
    """Return the blocks of a reply in the form that the API takes back.

    The API refuses blank texts, arguments that are not an object (a cut call), thinking
    without its signature (also cut), and blocks of user messages. It refuses a message of
    thinking alone, so the list is empty then.
    """
    blocks = []
    for block in content:
        match block.get("type"):
            case "text" if not str(block.get("text", "")).strip():
                continue
            case "thinking" if not block.get("signature"):
                continue
            case kind if kind in _OF_USERS or kind == COMPACTION:
                continue  # a summary of the provider is the first block, or left out
            case "tool_use" if not isinstance(block.get("input"), dict):
                blocks.append({**block, "input": {}})
            case _:
                blocks.append(block)
    return _without_lone_thinking(blocks)


def _without_lone_thinking(blocks: list[Block]) -> list[Block]:
    """Return the blocks, or an empty list if all blocks are thinking."""
    for block in blocks:
        if block.get("type") not in THINKING:
            return blocks
    return []


def without_unfinished_calls(
    messages: list[MessageParam], *, is_paused: bool
) -> list[MessageParam]:
    """Drop calls of the provider's own tools that were cut off, and results without a call.
    The API refuses both.

    The last message of a paused turn keeps its unfinished calls: the provider continues them.
    """
    replied_blocks: list[Block] = []
    last_reply: list[Block] = []
    for message in messages:
        if message["role"] == "assistant":
            last_reply = message["content"]
            replied_blocks += last_reply
    unfinished_ids = find_open_server_calls(replied_blocks)
    if is_paused:
        unfinished_ids -= find_open_server_calls(last_reply)
    call_ids: set[str] = set()
    kept_messages: list[MessageParam] = [messages[0]]
    for message in messages[1:]:
        blocks = message["content"]
        if message["role"] == "assistant":
            blocks = _drop_unpaired_blocks(blocks, unfinished_ids, call_ids)
        add_blocks(kept_messages, message["role"], blocks)
    if kept_messages[-1]["role"] == "assistant":
        _strip_end(kept_messages[-1]["content"])
    return kept_messages


def _drop_unpaired_blocks(
    blocks: list[Block], unfinished_ids: set[str], call_ids: set[str]
) -> list[Block]:
    """Return the blocks without unfinished calls and without results of unknown calls. The
    list is empty if only thinking is left.

    Args:
        blocks: blocks of one reply.
        unfinished_ids: ids of unfinished calls.
        call_ids: ids of the calls in earlier replies. This adds the calls of these blocks.
    """
    kept_blocks = []
    for block in blocks:
        kind = str(block.get("type"))
        if kind in SERVER_CALLS:
            if str(block.get("id")) in unfinished_ids:
                continue
            call_ids.add(str(block.get("id")))
        elif kind.endswith("_tool_result") and str(block.get("tool_use_id")) not in call_ids:
            continue
        kept_blocks.append(block)
    return _without_lone_thinking(kept_blocks)


def _strip_end(blocks: list[Block]) -> None:
    """Remove white space at the end of the last text. The API refuses it at the end of a
    conversation.
    """
    if blocks[-1].get("type") == "text":
        blocks[-1] = {**blocks[-1], "text": str(blocks[-1]["text"]).rstrip()}


def sort_results_first(messages: list[MessageParam]) -> list[MessageParam]:
    """Put results before any text, in the order of their calls. A resumed conversation then
    has the same bytes, although results arrive in any order.
    """
    for before, message in pairwise(messages):
        if message["role"] == "user":
            positions: dict[str, int] = {}
            for index, block in enumerate(before["content"]):
                if block.get("type") == "tool_use":
                    positions[block["id"]] = index
            end = len(before["content"])
            message["content"].sort(key=lambda block: _get_position(block, positions, end))
    return messages


def _get_position(block: Block, positions: Mapping[str, int], end: int) -> int:
    """Return the position of the block's call, or `end` if the block is not a result of a call."""
    return positions.get(block.get("tool_use_id", ""), end)
