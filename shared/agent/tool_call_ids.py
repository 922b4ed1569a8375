"""Valid names and ids of the tool calls in a reply. Pure.

Some servers write tool names and call ids that the Messages API refuses when the client sends
them back in the next turn.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Set
from typing import Any

from handoff_queue.shared.types.model import Block

CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
"""Types of the blocks that call a tool. `tool_use` calls our tool; the provider runs the others."""
UNNAMED = "unnamed_tool"
"""Replacement for a tool name without a usable character."""
_MAX_NAME_CHARS = 64
"""Most characters of the name of a tool in the Messages API."""
_ID = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_UNUSABLE = re.compile(r"[^a-zA-Z0-9_-]+")


def list_ids(content: Iterable[Block]) -> list[str]:
    """Return the ids of the calls in these blocks."""
    ids: list[str] = []
    for block in content:
        if block.get("type") in CALLS:
            ids.append(str(block.get("id")))
    return ids


def with_valid_calls(content: Iterable[Block], earlier_ids: Set[str]) -> tuple[Block, ...]:
    """Return the blocks with valid tool names, and with call ids that are valid and unique.

    A valid and unique id stays as it is. Any other id becomes a hash of the old one. The
    result of a provider's tool gets the id of its call, also if the call is in an earlier
    reply.

    Args:
        content: blocks of one reply.
        earlier_ids: ids of all calls in earlier replies.
    """
    used_ids = set(earlier_ids)
    new_ids: dict[str, str] = {}
    blocks = []
    for block in content:
        kind = str(block.get("type"))
        if kind in CALLS:
            old = _clean_text(block.get("id"))
            new = _find_free_id(old, kind, used_ids)
            used_ids.add(new)
            new_ids[old] = new
            blocks.append({**block, "id": new, "name": _clean_name(block.get("name"))})
        elif kind.endswith("_tool_result"):
            old = _clean_text(block.get("tool_use_id"))
            new = new_ids.get(old) or _choose_valid_id(old, kind)
            blocks.append({**block, "tool_use_id": new})
        else:
            blocks.append(block)
    return tuple(blocks)


def _choose_valid_id(old: str, kind: str) -> str:
    if _ID.fullmatch(old):
        return old
    return _make_block_id(old, kind, 0)


def _find_free_id(old: str, kind: str, used_ids: Set[str]) -> str:
    if _ID.fullmatch(old) and old not in used_ids:
        return old
    number = 0
    while (new := _make_block_id(old, kind, number)) in used_ids:
        number += 1
    return new


def _make_block_id(old: str, kind: str, number: int) -> str:
    """Return a valid id: the provider's prefix for this type of block, and a hash of the old
    id. Different numbers give different ids.
    """
    prefixes = {"tool_use": "toolu", "mcp_tool_use": "mcptoolu", "mcp_tool_result": "mcptoolu"}
    digest = hashlib.sha256(f"{number}:{old}".encode()).hexdigest()
    return f"{prefixes.get(kind, 'srvtoolu')}_{digest[:24]}"


def _clean_name(name: Any) -> str:
    valid = _UNUSABLE.sub("_", _clean_text(name).strip())[:_MAX_NAME_CHARS]
    if valid.strip("_-"):
        return valid
    return UNNAMED


def _clean_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""
