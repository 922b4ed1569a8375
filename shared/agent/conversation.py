"""The transcript of one handoff, as the model sees it, and the ids of its calls.

Some servers write names and ids that the Messages API refuses when the client sends them back
in the next turn.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from handoff_queue.shared.agent.tool_calls import MAY_HAVE_RUN
from handoff_queue.shared.types.checkpoints import (
    AgentPrompted,
    Checkpoint,
    ModelCallFailed,
    ModelReplied,
    ObservedImage,
    ToolCallStarted,
    ToolObserved,
)
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.model import Block, MessageParam
from handoff_queue.shared.types.usage import NOTHING_USED, Usage

CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
"""Types of the blocks that call a tool: ours, or a tool that the provider runs."""
UNNAMED = "unnamed_tool"
"""The name of a call whose name has no usable character."""
_LONGEST_NAME = 64
_ID = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_UNUSABLE = re.compile(r"[^a-zA-Z0-9_-]+")


def ids_in(content: Iterable[Block]) -> list[str]:
    """Return the ids of the calls in these blocks."""
    items: list[str] = []
    for block in content:
        if block.get("type") in CALLS:
            items.append(str(block.get("id")))
    return items


def with_valid_calls(content: Iterable[Block], taken: Set[str]) -> tuple[Block, ...]:
    """Return the blocks with valid tool names, and with call ids that are valid and unique.

    A valid id that no other call has stays as it is. A result of a provider's tool follows its
    call. New ids are a hash of the old ones, so that a result in a later reply gets the same
    id as its call.

    Args:
        content: The blocks of one reply.
        taken: The ids of all calls in earlier replies.
    """
    used = set(taken)
    renamed: dict[str, str] = {}
    blocks = []
    for block in content:
        kind = str(block.get("type"))
        if kind in CALLS:
            old = _text(block.get("id"))
            new = _free_id(old, kind, used)
            used.add(new)
            renamed[old] = new
            blocks.append({**block, "id": new, "name": _valid_name(block.get("name"))})
        elif kind.endswith("_tool_result"):
            old = _text(block.get("tool_use_id"))
            new = renamed.get(old) or (old if _ID.fullmatch(old) else _hashed(old, kind, 0))
            blocks.append({**block, "tool_use_id": new})
        else:
            blocks.append(block)
    return tuple(blocks)


def _free_id(old: str, kind: str, used: Set[str]) -> str:
    if _ID.fullmatch(old) and old not in used:
        return old
    number = 0
    while (new := _hashed(old, kind, number)) in used:
        number += 1
    return new


def _hashed(old: str, kind: str, number: int) -> str:
    """Return a valid id made of an old one. The prefixes are those of the provider."""
    prefixes = {"tool_use": "toolu", "mcp_tool_use": "mcptoolu", "mcp_tool_result": "mcptoolu"}
    digest = hashlib.sha256(f"{number}:{old}".encode()).hexdigest()
    return f"{prefixes.get(kind, 'srvtoolu')}_{digest[:24]}"


def _valid_name(name: Any) -> str:
    valid = _UNUSABLE.sub("_", _text(name).strip())[:_LONGEST_NAME]
    if valid.strip("_-"):
        return valid
    return UNNAMED


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""


LAST_TURN = "This is your last turn: you can call no more tools. Give your answer now, as complete as possible."
UNUSABLE = "Your answer cannot be used: "
TOO_LONG = (
    "Your answer was cut off because it was too long. Give it again, whole, and much shorter."
)
EMPTY = f"{UNUSABLE}it is empty."
_THINKING = ("thinking", "redacted_thinking")
_OF_USERS = ("tool_result", "image", "document")
"""Blocks that the Messages API refuses in a message of the model. Some servers write them."""
_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
MOST_IMAGES = 20
"""Images in one conversation. With more, the Messages API takes only images of at most 2,000 pixels
a side.
"""
MOST_IMAGE_CHARS = 10_000_000
"""Characters of base64 in one conversation. Redis stores them, and each request of the conversation
carries them.
"""
NO_ROOM_FOR_IMAGE = "[an image is left out: this conversation holds as many images as it can]"


@dataclass(frozen=True, slots=True)
class Conversation:
    """The conversation after the opening. It grows by `plus`; every property follows from the
    checkpoints alone.
    """

    opening: MessageParam
    checkpoints: tuple[Checkpoint, ...] = ()

    def plus(self, *checkpoints: Checkpoint) -> Conversation:
        return Conversation(self.opening, (*self.checkpoints, *checkpoints))

    @property
    def turns(self) -> int:
        """Model calls made, those without a reply included."""
        total = 0
        for checkpoint in self.checkpoints:
            total += isinstance(checkpoint, ModelReplied | ModelCallFailed)
        return total

    @property
    def failures_in_a_row(self) -> int:
        """Calls without a reply since the last reply."""
        count = 0
        for checkpoint in reversed(self.checkpoints):
            if isinstance(checkpoint, ModelReplied):
                break
            count += isinstance(checkpoint, ModelCallFailed)
        return count

    @property
    def usage(self) -> Usage:
        return sum(
            (
                item.usage
                for item in self.checkpoints
                if isinstance(item, ModelReplied | ModelCallFailed)
            ),
            NOTHING_USED,
        )

    @property
    def replied_tokens(self) -> int:
        """Return the tokens that replies have really used. A failed call counts with its upper
        bound in the budget, but says nothing about this conversation.
        """
        total = 0
        for item in self.checkpoints:
            if isinstance(item, ModelReplied):
                total += item.usage.total_tokens
        return total

    @property
    def last_reply(self) -> ModelReplied | None:
        for item in reversed(self.checkpoints):
            if isinstance(item, ModelReplied):
                return item
        return None

    @property
    def since_reply(self) -> tuple[Checkpoint, ...]:
        """Return the checkpoints after the last reply."""
        for index in range(len(self.checkpoints), 0, -1):
            if isinstance(self.checkpoints[index - 1], ModelReplied):
                return self.checkpoints[index:]
        return self.checkpoints

    @property
    def unanswered(self) -> list[Block]:
        """Tool calls of the last reply that have no result yet."""
        reply = self.last_reply
        answered: set[str] = set()
        for item in self.since_reply:
            if isinstance(item, ToolObserved):
                answered.add(item.tool_use_id)
        if reply:
            blocks: list[Block] = []
            for block in calls_of(reply):
                if block["id"] not in answered:
                    blocks.append(block)
            return blocks
        return []

    @property
    def started(self) -> set[str]:
        """Calls of tools that are not safe to repeat, and may have run."""
        tool_use_ids: set[str] = set()
        for item in self.since_reply:
            if isinstance(item, ToolCallStarted):
                tool_use_ids.add(item.tool_use_id)
        return tool_use_ids

    @property
    def acted(self) -> bool:
        """Return whether a tool that is not safe to repeat may have run."""
        return any(isinstance(item, ToolCallStarted) for item in self.checkpoints)

    def may_have_run(self, call: Block) -> bool:
        """Return whether an earlier call of this tool with these arguments was interrupted."""
        cut = {
            item.tool_use_id
            for item in self.checkpoints
            if isinstance(item, ToolObserved) and item.text == MAY_HAVE_RUN
        }
        replies = (
            (item for item in self.checkpoints if isinstance(item, ModelReplied)) if cut else ()
        )
        return any(
            block["id"] in cut
            and (block.get("name"), block.get("input")) == (call.get("name"), call.get("input"))
            for reply in replies
            for block in calls_of(reply)
        )

    @property
    def open_reply(self) -> ModelReplied | None:
        """Return the last reply if it has had no effect yet: it was neither sent back for a fix nor
        continued, and some of its calls have no result. Else None.
        """
        reply = self.last_reply
        if reply is None or any(
            isinstance(item, AgentPrompted | ModelCallFailed) for item in self.since_reply
        ):
            return None
        if calls_of(reply):
            if self.unanswered:
                return reply
            return None
        if _is_pause(reply):
            return None
        return reply

    @property
    def is_paused(self) -> bool:
        """Return whether the provider has paused the model's turn. Only results of tools may follow
        such a turn.
        """
        reply = self.last_reply
        if reply is None or any(isinstance(item, AgentPrompted) for item in self.since_reply):
            return False
        if _is_pause(reply):
            return True
        return bool(calls_of(reply)) and bool(_open_server_calls(reply.content))

    @property
    def called_names(self) -> list[str]:
        """Names of the tools that the model or the provider has called, each once."""
        calls: list[dict[str, Any]] = []
        for replied_block in self._replied_blocks:
            if replied_block.get("type") in CALLS:
                calls.append(replied_block)
        return list(dict.fromkeys(str(block.get("name")) for block in calls))

    @property
    def ids(self) -> set[str]:
        """Ids of all calls so far."""
        return set(ids_in(self._replied_blocks))

    @property
    def _replied_blocks(self) -> list[Block]:
        replies = (item for item in self.checkpoints if isinstance(item, ModelReplied))
        blocks: list[Block] = []
        for reply in replies:
            blocks += reply.content
        return blocks

    @property
    def repairs(self) -> int:
        """Return how many answers were sent back to the model as invalid."""
        total = 0
        for item in self.checkpoints:
            total += isinstance(item, AgentPrompted) and item.text.startswith((UNUSABLE, TOO_LONG))
        return total

    @property
    def is_told_last(self) -> bool:
        return any(
            isinstance(item, AgentPrompted) and item.text == LAST_TURN for item in self.checkpoints
        )

    @property
    def drafts(self) -> list[str]:
        """Texts of the model that may be worth keeping, newest first."""
        texts = (
            text_of(item.content)
            for item in reversed(self.checkpoints)
            if isinstance(item, ModelReplied)
        )
        drafts: list[str] = []
        for text in texts:
            if text.strip():
                drafts.append(text)
        return drafts

    def with_room_for(self, observed: ToolObserved) -> ToolObserved:
        """Return the result without the images that this conversation has no room for."""
        if not observed.images:
            return observed
        stored = list[ObservedImage]()
        for item in self.checkpoints:
            if isinstance(item, ToolObserved):
                stored.extend(item.images or ())
        kept = list[ObservedImage]()
        chars = sum(len(image.data) for image in stored)
        for image in observed.images:
            fits = chars + len(image.data) <= MOST_IMAGE_CHARS
            if fits and len(stored) + len(kept) < MOST_IMAGES:
                kept.append(image)
                chars += len(image.data)
        if len(kept) == len(observed.images):
            return observed
        text = f"{observed.text}\n{NO_ROOM_FOR_IMAGE}".strip()
        return observed.model_copy(update={"text": text, "images": tuple(kept) or None})

    def source_of(self, call_id: str, handoff: AgentHandoff) -> str | None:
        """Return the name under which the result of a call is cited:
        `tool:STEP.ATTEMPT/TOOL#NUMBER`.

        The number counts the handoff's calls of that tool, from 1. None: there is no such call.
        """
        counts = Counter[str]()
        for block in self._replied_blocks:
            if block.get("type") == "tool_use":
                name = str(block.get("name"))
                counts[name] += 1
                if block["id"] == call_id:
                    return f"tool:{handoff.step_id}.{handoff.attempt}/{name}#{counts[name]}"
        return None

    @property
    def messages(self) -> tuple[MessageParam, ...]:
        """The conversation as the Messages API takes it: roles alternate, and each call's
        result comes first in the next message.

        A paused turn stays as it is, so that the provider continues it.
        """
        messages: list[MessageParam] = [{"role": "user", "content": list(self.opening["content"])}]
        for checkpoint in self.checkpoints:
            match checkpoint:
                case ModelReplied():
                    _add(messages, "assistant", _sendable(checkpoint.content))
                case ToolObserved():
                    _add(messages, "user", [_result_block(checkpoint)])
                case AgentPrompted():
                    _add(messages, "user", [{"type": "text", "text": checkpoint.text}])
                case ToolCallStarted() | ModelCallFailed():
                    pass
        return tuple(_in_order(_without_unfinished_calls(messages, is_paused=self.is_paused)))


def calls_of(reply: ModelReplied) -> list[Block]:
    calls: list[Block] = []
    for block in reply.content:
        if block.get("type") == "tool_use":
            calls.append(block)
    return calls


def _is_pause(reply: ModelReplied) -> bool:
    """Return whether the provider paused a turn that used the provider's own tools.

    The API takes no conversation that ends with another message of the model.
    """
    kinds: set[str] = set()
    for block in reply.content:
        kinds.add(str(block.get("type")))
    has_server_blocks = any(
        kind in _SERVER_CALLS or kind.endswith("_tool_result") for kind in kinds
    )
    return reply.stop_reason == "pause_turn" and has_server_blocks


def _open_server_calls(content: Iterable[Block]) -> set[str]:
    """Return ids of calls that the provider runs itself and that no result follows in these blocks."""
    is_open = set[str]()
    for block in content:
        if block.get("type") in _SERVER_CALLS:
            is_open.add(str(block.get("id")))
        else:
            is_open.discard(str(block.get("tool_use_id")))
    return is_open


def text_of(content: Iterable[Block]) -> str:
    """Return the final text: all text after the last block that is not text (a server-side search),
    or all text if no text follows that block.
    """
    blocks = list(content)
    tail: list[str] = []
    for block in reversed(blocks):
        if block.get("type") != "text":
            break
        tail.insert(0, str(block.get("text", "")))
    if "".join(tail).strip():
        return "".join(tail)
    return "".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")


def _add(messages: list[MessageParam], role: str, blocks: Iterable[Block]) -> None:
    """Append to the last message if it is of the same role: consecutive ones are one to the API."""
    new = list(blocks)
    if not new:
        return
    if messages[-1]["role"] == role:
        messages[-1]["content"].extend(new)
    else:
        messages.append({"role": role, "content": new})


def _image_block(image: ObservedImage) -> Block:
    source = {"type": "base64", "media_type": image.media_type, "data": image.data}
    return {"type": "image", "source": source}


def _result_block(observed: ToolObserved) -> Block:
    if observed.source:
        shown = f"[source: {observed.source}]\n{observed.text}"
    else:
        shown = observed.text
    content: str | list[Block] = shown
    if observed.images:
        if shown.strip():
            text = [{"type": "text", "text": shown}]
        else:
            text = []
        content = [*text, *(_image_block(image) for image in observed.images)]
    block: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": observed.tool_use_id,
        "content": content,
    }
    if observed.is_error:
        return {**block, "is_error": True}
    return block


def _sendable(content: Iterable[Block]) -> list[Block]:
    """Return a reply in the form that the API takes back.

    The API refuses empty texts, arguments that are not an object (a cut call), thinking without its
    signature (also cut), a message with thinking alone, and blocks of user messages.
    """
    blocks = []
    for block in content:
        match block.get("type"):
            case "text" if not str(block.get("text", "")).strip():
                continue
            case "thinking" if not block.get("signature"):
                continue
            case kind if kind in _OF_USERS:
                continue
            case "tool_use" if not isinstance(block.get("input"), dict):
                blocks.append({**block, "input": {}})
            case _:
                blocks.append(block)
    if any(block.get("type") not in _THINKING for block in blocks):
        return blocks
    return []


def _without_unfinished_calls(
    messages: list[MessageParam], *, is_paused: bool
) -> list[MessageParam]:
    """Drop calls of the provider's own tools that were cut off, and results without a call.
    The API refuses both.

    The last message of a paused turn keeps its unfinished calls: the provider continues them.
    """
    assistant = [message for message in messages if message["role"] == "assistant"]
    unfinished = _open_server_calls(block for item in assistant for block in item["content"])
    if is_paused and assistant:
        unfinished -= _open_server_calls(assistant[-1]["content"])
    called: set[str] = set()
    kept: list[MessageParam] = [messages[0]]
    for message in messages[1:]:
        blocks = message["content"]
        if message["role"] == "assistant":
            blocks = _in_pairs(blocks, unfinished, called)
        _add(kept, message["role"], blocks)
    if kept[-1]["role"] == "assistant":
        _strip_end(kept[-1]["content"])
    return kept


def _in_pairs(blocks: list[Block], unfinished: set[str], called: set[str]) -> list[Block]:
    """Return the blocks without unfinished calls, and without results of unknown calls. Add
    their calls to `called`.
    """
    kept = []
    for block in blocks:
        kind = str(block.get("type"))
        if kind in _SERVER_CALLS:
            if str(block.get("id")) in unfinished:
                continue
            called.add(str(block.get("id")))
        elif kind.endswith("_tool_result") and str(block.get("tool_use_id")) not in called:
            continue
        kept.append(block)
    if any(block.get("type") not in _THINKING for block in kept):
        return kept
    return []


def _strip_end(blocks: list[Block]) -> None:
    """Remove white space at the end of a paused turn: the API refuses it."""
    if blocks[-1].get("type") == "text":
        blocks[-1] = {**blocks[-1], "text": str(blocks[-1]["text"]).rstrip()}


def _in_order(messages: list[MessageParam]) -> list[MessageParam]:
    """Put results before any text, in the order of their calls, so that a resumed conversation
    has the same bytes.
    """
    for before, message in pairwise(messages):
        if message["role"] == "user":
            order = {
                block["id"]: index
                for index, block in enumerate(before["content"])
                if block.get("type") == "tool_use"
            }
            behind = len(before["content"])
            message["content"].sort(
                key=lambda block: order.get(block.get("tool_use_id", ""), behind)
            )
    return messages
