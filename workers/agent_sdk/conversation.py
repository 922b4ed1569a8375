"""The conversation of a handoff as the program of the Claude Agent SDK sees it, and the texts that
the program adds to a request. Pure functions.

The worker's record is the conversation. The program gets each reply from this record, also after
a kill, so its own record is always the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from handoff_queue.shared.types.model import Block, MessageParam, ModelCall

SERVER = "handoff"
"""Name of the MCP server in the program that has the worker's tools."""
PREFIX = f"mcp__{SERVER}__"
"""Start of the name of each tool in the program."""
GO_ON = "Go on."
NOTHING = "(nothing)"
_BILLING = "x-anthropic-billing-header"
"""Start of a text with the version of the program. A new version would change each prompt."""


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """A reply of the model, and the blocks that follow it."""

    content: tuple[Block, ...]
    """The texts and calls of the reply, with the program's names of tools."""
    results: tuple[Block, ...] = ()
    """Results of its calls."""
    prompt: str = GO_ON
    """Prompt for the program after a reply without calls."""

    @property
    def has_calls(self) -> bool:
        return any(block["type"] == "tool_use" for block in self.content)


def turns_of(messages: Sequence[MessageParam]) -> list[RecordedTurn]:
    """Return the replies in a conversation, oldest first."""
    turns: list[RecordedTurn] = []
    for message in messages:
        blocks = _blocks_of(message)
        if message["role"] == "assistant":
            turns.append(RecordedTurn(_for_program(blocks)))
        elif turns:
            results = tuple(block for block in blocks if block.get("type") == "tool_result")
            turns[-1] = replace(turns[-1], results=results, prompt=_text_in(blocks) or GO_ON)
    return turns


def with_program_texts(call: ModelCall, request: Mapping[str, Any]) -> ModelCall:
    """Return the call with the texts that the program adds to its request: to the system prompt,
    and to messages of the user.
    """
    first, rest = _split(request.get("messages", ()))
    texts: list[str] = []
    for block in _blocks_of({"content": request.get("system", "")}):
        if not str(block.get("text", "")).startswith(_BILLING):
            texts.append(str(block.get("text", "")))
    for message in first:
        texts.append(_text_in(_blocks_of(message)))
    return replace(
        call, system="\n\n".join(filter(None, texts)), messages=_with_additions(call.messages, rest)
    )


def added_bytes(call: ModelCall, sent: ModelCall) -> int:
    """Return the bytes that the program has added to a call."""
    return len(json.dumps([sent.system, sent.messages], ensure_ascii=False).encode()) - len(
        json.dumps([call.system, call.messages], ensure_ascii=False).encode()
    )


def system_text(request: Mapping[str, Any]) -> str:
    """Return the system prompt of a request as one text."""
    return _text_in(_blocks_of({"content": request.get("system", "")}))


def result_texts(block: Block) -> str:
    """Return the text of a tool's result."""
    return _text_in(_blocks_of(block))


def _split(
    messages: Iterable[MessageParam],
) -> tuple[list[MessageParam], list[MessageParam]]:
    """Return the system messages before the first reply, and the other messages. A later system
    message becomes a message of the user, and neighbours of the same role are joined.
    """
    first: list[MessageParam] = []
    rest: list[MessageParam] = []
    for message in messages:
        role = message["role"]
        if role == "system" and all(other["role"] == "user" for other in rest):
            first.append(message)
            continue
        if role == "system":
            role = "user"
        if rest and rest[-1]["role"] == role:
            rest[-1]["content"].extend(_blocks_of(message))
        else:
            rest.append({"role": role, "content": list(_blocks_of(message))})
    return first, rest


def _with_additions(
    ours: Sequence[MessageParam], theirs: Sequence[MessageParam]
) -> tuple[MessageParam, ...]:
    """Return our messages with the texts that only the program's messages of the user have. If
    the messages do not correspond, return ours.
    """
    merged: list[MessageParam] = []
    for our, their in zip_longest(ours, theirs):
        if our is None or their is None or our["role"] != their["role"]:
            return tuple(ours)
        if our["role"] == "user":
            merged.append({**our, "content": [*_blocks_of(our), *_added(our, their)]})
        else:
            merged.append(our)
    return tuple(merged)


def _added(our: MessageParam, their: MessageParam) -> list[Block]:
    known = _text_in(_blocks_of(our))
    added: list[Block] = []
    for block in _blocks_of(their):
        text = str(block.get("text", ""))
        is_own = text.strip() in known or text in (GO_ON, NOTHING)
        if block.get("type") == "text" and not is_own:
            added.append({"type": "text", "text": text})
    return added


def _for_program(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Return the texts and calls of a reply. The program has no use for other blocks."""
    kept: list[Block] = []
    for block in blocks:
        if block.get("type") == "tool_use":
            kept.append({**block, "name": f"{PREFIX}{block.get('name')}"})
        elif block.get("type") == "text":
            kept.append({"type": "text", "text": str(block.get("text", ""))})
    return tuple(kept) or ({"type": "text", "text": NOTHING},)


def _blocks_of(message: Mapping[str, Any]) -> list[Block]:
    content = message.get("content") or []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content)


def _text_in(blocks: Iterable[Block]) -> str:
    texts: list[str] = []
    for block in blocks:
        if block.get("type") == "text":
            texts.append(str(block.get("text", "")))
    return "\n\n".join(texts)
