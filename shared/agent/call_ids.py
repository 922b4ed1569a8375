"""Valid names and unique ids for the tool calls of a reply.

Some servers write names and ids that the Messages API refuses when the client sends them back in the next turn.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Set
from typing import Any

from handoff_queue.shared.types.model import Block

CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
"""Types of the blocks that call a tool: ours, or a tool that the provider runs."""
UNNAMED = "unnamed_tool"
"""The name of a call whose name has no usable character."""
_LONGEST_NAME = 64
_ID = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_UNUSABLE = re.compile(r"[^a-zA-Z0-9_-]+")


def ids_in(content: Iterable[Block]) -> list[str]:
    """Return the ids of the calls in these blocks."""
    return [str(block.get("id")) for block in content if block.get("type") in CALLS]


def with_valid_calls(content: Iterable[Block], taken: Set[str]) -> tuple[Block, ...]:
    """Return the blocks with valid tool names, and with call ids that are valid and unique.

    A valid id that no other call has stays as it is. A result of a provider's tool follows its call. New ids are a hash of the old
    ones, so that a result in a later reply gets the same id as its call.

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
    return valid if valid.strip("_-") else UNNAMED


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
