"""Conversion of a `ModelCall` to the arguments of `client.messages.create`: caching, and strict
schemas.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import anthropic

from handoff_queue.shared.types.model import Block, MessageParam, ModelCall

MOST_STRICT_TOOLS = 20
"""The provider's limit of strict tools in one request."""
_EPHEMERAL = {"type": "ephemeral"}
_LOOSE = (
    "allOf",
    "not",
    "if",
    "patternProperties",
    "dependentSchemas",
    "prefixItems",
    "$dynamicRef",
    "definitions",
)
"""Keywords that strict output does not know, or whose removal changes the meaning of a schema."""


def request_of(call: ModelCall, *, plainly: bool = False) -> dict[str, Any]:
    """Return the request.

    Args:
        plainly: True to omit strictness, for servers that refuse `output_config` or `strict`.
    """
    request: dict[str, Any] = {
        "model": call.model,
        "max_tokens": call.max_output_tokens,
        "messages": _with_cached_end(call.messages),
        "system": [{"type": "text", "text": call.system, "cache_control": _EPHEMERAL}],
        "stream": True,
    }
    if call.output_schema is not None:
        if plainly:
            schema = None
        else:
            schema = strict(call.output_schema)
        if schema is not None:
            request["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        else:
            request["system"].append({"type": "text", "text": _in_words(call.output_schema)})
    if call.tools:
        request["tools"] = [_tool(tool, plainly) for tool in _strict_first(call.tools)]
        if not call.may_call_tools:
            request["tool_choice"] = {"type": "none"}
    return request


def strict(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema as the provider enforces it, or None if enforcement would change its
    meaning (an object with free keys).
    """
    return _strict(json.dumps(schema))


@lru_cache(maxsize=256)
def _strict(schema: str) -> dict[str, Any] | None:
    """Return the cached strict schema: each turn sends the same few schemas."""
    try:
        return anthropic.transform_schema(_prepared(json.loads(schema)))
    except (ValueError, TypeError, AssertionError, AttributeError, RecursionError):
        return None


def _prepared(node: Any) -> dict[str, Any]:
    """Return the schema with lists of types as anyOf.

    Raises:
        ValueError: strictness would lose a part of the schema.
    """
    if not isinstance(node, dict) or any(key in node for key in _LOOSE):
        raise ValueError("not a strict schema")
    if isinstance(node.get("type"), list):
        rest = {key: value for key, value in node.items() if key not in ("type", "description")}
        if "description" in node:
            about = {"description": node["description"]}
        else:
            about = {}
        return {
            **about,
            "anyOf": [
                _prepared({"type": kind, **(rest if kind != "null" else {})})
                for kind in node["type"]
            ],
        }
    if node.get("type") == "object":
        if not node.get("properties") or node.get("additionalProperties") not in (None, False):
            raise ValueError("free keys")
        node["properties"] = {name: _prepared(child) for name, child in node["properties"].items()}
    if node.get("type") == "array":
        node["items"] = _prepared(node.get("items"))
    for key in ("anyOf", "oneOf"):
        if key in node:
            node[key] = [_prepared(child) for child in node[key]]
    if "$defs" in node:
        node["$defs"] = {name: _prepared(child) for name, child in node["$defs"].items()}
    return node


def _in_words(schema: Mapping[str, Any]) -> str:
    return (
        "Your final answer is one JSON value and nothing else. It matches this JSON Schema: "
        + json.dumps(schema, ensure_ascii=False, sort_keys=True)
    )


def _strict_first(tools: tuple[dict[str, Any], ...]) -> list[tuple[dict[str, Any], bool]]:
    left = MOST_STRICT_TOOLS
    marked = []
    for tool in tools:
        is_strict = left > 0 and "input_schema" in tool
        left -= is_strict
        marked.append((tool, is_strict))
    return marked


def _tool(marked: tuple[dict[str, Any], bool], plainly: bool) -> dict[str, Any]:
    tool, may_be_strict = marked
    if plainly or not may_be_strict:
        return tool
    schema = strict(tool["input_schema"])
    if schema is None:
        return tool
    return {**tool, "input_schema": schema, "strict": True}


def _with_cached_end(messages: tuple[MessageParam, ...]) -> list[MessageParam]:
    """Return the messages with the last block as a cache breakpoint: the next turn of the loop
    repeats everything up to it.
    """
    if not messages:
        return []
    *before, last = messages
    content = last["content"]
    blocks: list[Block] = (
        [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    )
    if blocks and blocks[-1].get("type") in ("text", "tool_result"):
        blocks[-1] = {**blocks[-1], "cache_control": _EPHEMERAL}
    return [*before, {**last, "content": blocks}]
