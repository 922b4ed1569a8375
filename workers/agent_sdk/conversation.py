"""The conversation of a handoff as the CLI of the Claude Agent SDK sees it, and the texts that the
CLI adds to a request. Pure functions.

The worker's record is the conversation. The CLI gets each reply from this record, also after
a kill, so its own record is always the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from handoff_queue.shared.types.model import Block, MessageParam, ModelCall, SystemPrompt

SERVER = "handoff"
"""Name of the MCP server in the CLI that has the worker's tools."""
PREFIX = f"mcp__{SERVER}__"
"""Start of the name of each tool in the CLI."""
GO_ON = "Go on."
NOTHING = "(nothing)"
_ROLE = itemgetter("role")
_BILLING = "x-anthropic-billing-header"
"""Start of a text with the version of the CLI. A new version would change each prompt."""


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """A reply of the model, and the blocks that follow it."""

    content: tuple[Block, ...]
    """The texts and calls of the reply, with the CLI's names of tools."""
    results: tuple[Block, ...] = ()
    """Results of its calls."""
    prompt: str = GO_ON
    """Prompt for the CLI after a reply without calls."""

    @property
    def has_calls(self) -> bool:
        return any(block["type"] == "tool_use" for block in self.content)


def list_turns(messages: Sequence[MessageParam]) -> list[RecordedTurn]:
    """Return the replies in a conversation, oldest first."""
    turns: list[RecordedTurn] = []
    for message in messages:
        blocks = _get_blocks(message)
        if message["role"] == "assistant":
            turns.append(RecordedTurn(_select_blocks_for_cli(blocks)))
        elif turns:
            results = tuple(block for block in blocks if block.get("type") == "tool_result")
            turns[-1] = replace(turns[-1], results=results, prompt=_get_text(blocks) or GO_ON)
    return turns


def with_cli_texts(call: ModelCall, request: Mapping[str, Any]) -> ModelCall:
    """Return the call with the texts that the CLI adds to its request: to the system prompt,
    and to messages of the user.
    """
    system_messages, turns = _split(request.get("messages", ()))
    texts: list[str] = []
    for block in _get_blocks({"content": request.get("system", "")}):
        if not str(block.get("text", "")).startswith(_BILLING):
            texts.append(str(block.get("text", "")))
    for message in system_messages:
        texts.append(_get_text(_get_blocks(message)))
    system = SystemPrompt("\n\n".join(filter(None, texts)))
    return replace(call, system=system, messages=_with_additions(call.messages, turns))


def count_added_bytes(call: ModelCall, sent_call: ModelCall) -> int:
    """Return the bytes that the CLI has added to a call."""
    return _measure_size(sent_call) - _measure_size(call)


def _measure_size(call: ModelCall) -> int:
    """Return the size of the system prompt and the messages of a call as JSON, in bytes."""
    return len(json.dumps([call.system.text, call.messages], ensure_ascii=False).encode())


def get_system_text(request: Mapping[str, Any]) -> str:
    """Return the system prompt of a request as one text."""
    return _get_text(_get_blocks({"content": request.get("system", "")}))


def get_result_text(block: Block) -> str:
    """Return the text of a tool's result."""
    return _get_text(_get_blocks(block))


def _split(
    messages: Iterable[MessageParam],
) -> tuple[list[MessageParam], list[MessageParam]]:
    """Return the system messages before the first reply, and the other messages. A later system
    message becomes a message of the user, and neighbours of the same role are joined.
    """
    system_messages: list[MessageParam] = []
    turns: list[MessageParam] = []
    for message in messages:
        role = message["role"]
        if role == "system" and all(other["role"] == "user" for other in turns):
            system_messages.append(message)
            continue
        if role == "system":
            role = "user"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].extend(_get_blocks(message))
        else:
            turns.append({"role": role, "content": list(_get_blocks(message))})
    return system_messages, turns


def _with_additions(
    recorded: Sequence[MessageParam], requested: Sequence[MessageParam]
) -> tuple[MessageParam, ...]:
    """Return the recorded messages with the texts that the CLI added to user messages. If the
    requested messages do not correspond, return the recorded ones.
    """
    if list(map(_ROLE, recorded)) != list(map(_ROLE, requested)):
        return tuple(recorded)
    merged: list[MessageParam] = []
    for message, requested_message in zip(recorded, requested, strict=True):
        if message["role"] == "user":
            added_blocks = _find_added_blocks(message, requested_message)
            content = [*_get_blocks(message), *added_blocks]
            message = {**message, "content": content}  # noqa: PLW2901
        merged.append(message)
    return tuple(merged)


def _find_added_blocks(recorded: MessageParam, requested: MessageParam) -> list[Block]:
    known = _get_text(_get_blocks(recorded))
    added_blocks: list[Block] = []
    for block in _get_blocks(requested):
        text = str(block.get("text", ""))
        is_own = text.strip() in known or text in (GO_ON, NOTHING)
        if block.get("type") == "text" and not is_own:
            added_blocks.append({"type": "text", "text": text})
    return added_blocks


def _select_blocks_for_cli(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Return the texts and calls of a reply. The CLI has no use for other blocks."""
    cli_blocks: list[Block] = []
    for block in blocks:
        if block.get("type") == "tool_use":
            cli_blocks.append({**block, "name": f"{PREFIX}{block.get('name')}"})
        elif block.get("type") == "text":
            cli_blocks.append({"type": "text", "text": str(block.get("text", ""))})
    return tuple(cli_blocks) or ({"type": "text", "text": NOTHING},)


def _get_blocks(message: Mapping[str, Any]) -> list[Block]:
    content = message.get("content") or []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content)


def _get_text(blocks: Iterable[Block]) -> str:
    texts: list[str] = []
    for block in blocks:
        if block.get("type") == "text":
            texts.append(str(block.get("text", "")))
    return "\n\n".join(texts)
