"""Conversion of a `ModelCall` to the arguments of `client.messages.create`, with strict schemas and
cache breakpoints (`cache_control`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any

import anthropic

from handoff_queue.shared.types.context_edits import (
    CLEAR_TOOL_USES,
    CLEARING_BETA,
    COMPACTION_BETA,
)
from handoff_queue.shared.types.model import (
    COMPACTION,
    Block,
    MessageParam,
    ModelCall,
    ProviderClearing,
    SystemPrompt,
)

MAX_STRICT_TOOLS = 20
"""The provider's limit of strict tools in one request."""
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
"""Keywords that strict schemas do not support, or that the SDK would remove although they
change the meaning of a schema.
"""
MAX_CACHE_BREAKPOINTS = 4
"""The provider's limit in one request."""
_FOR_5_MINUTES = {"type": "ephemeral"}
_FOR_1_HOUR = {"type": "ephemeral", "ttl": "1h"}


class Option(StrEnum):
    """An option of a request that not every model or server accepts."""

    STRICT = "strict schemas"
    EFFORT = "effort"
    THINKING = "thinking"
    CACHE_1H = "a cache for one hour"
    CLEARING = "clearing by the provider"
    COMPACTION = "compaction by the provider"


def build_request(call: ModelCall, *, without: Collection[Option] = ()) -> dict[str, Any]:
    """Return the arguments of `client.messages.create`.

    Args:
        without: options that the server refuses for this model. Without strict schemas, the system
            prompt contains the schema of the answer.
    """
    is_strict = Option.STRICT not in without
    prefix_mark = turns_mark = _FOR_5_MINUTES
    if Option.CACHE_1H not in without:
        if call.caches_for_1h or call.caches_prefix_for_1h:
            prefix_mark = _FOR_1_HOUR
        if call.caches_for_1h:
            turns_mark = _FOR_1_HOUR
    request: dict[str, Any] = {
        "model": call.model,
        "max_tokens": call.max_output_tokens,
        "messages": _add_breakpoints(call, prefix_mark, turns_mark),
        "system": _build_system_blocks(call.system, prefix_mark),
        "stream": True,
    }
    if call.output_schema is not None:
        _add_output_schema(request, call.output_schema, is_strict=is_strict)
    if call.effort and Option.EFFORT not in without:
        request.setdefault("output_config", {})["effort"] = call.effort.value
    if call.thinking and Option.THINKING not in without:
        request["thinking"] = {"type": call.thinking.value}
    if call.tools:
        request["tools"] = _make_tools_strict(call.tools) if is_strict else list(call.tools)
        if not call.may_call_tools and call.compaction is None:
            request["tool_choice"] = {"type": "none"}
    if call.compaction is not None:
        request["compaction"] = {"type": "summarize", "instructions": call.compaction}
    elif call.clearing is not None and Option.CLEARING not in without:
        request["context_management"] = {"edits": [_build_clearing_edit(call.clearing, call.tools)]}
    return request


def is_cached_for_1h(request: Mapping[str, Any]) -> bool:
    """Return whether a request asks for a cache of one hour. Its first breakpoint has the longest
    time.
    """
    return bool(request["system"][0]["cache_control"] == _FOR_1_HOUR)


def _add_output_schema(
    request: dict[str, Any], schema: Mapping[str, Any], *, is_strict: bool
) -> None:
    """Let the provider enforce the schema of the answer. If it cannot, add the schema to the
    system prompt.
    """
    strict_schema = make_strict(schema) if is_strict else None
    if strict_schema is None:
        request["system"].append({"type": "text", "text": _build_schema_instructions(schema)})
    else:
        request["output_config"] = {"format": {"type": "json_schema", "schema": strict_schema}}


def list_betas(request: Mapping[str, Any]) -> list[str]:
    """Return the values of the header `anthropic-beta` that a request needs."""
    betas: list[str] = []
    if "context_management" in request:
        betas.append(CLEARING_BETA)
    first = request["messages"][0]["content"] if request["messages"] else ""
    has_block = not isinstance(first, str) and first[0].get("type") == COMPACTION
    if has_block or "compaction" in request:
        betas.append(COMPACTION_BETA)
    return betas


def _build_clearing_edit(clearing: ProviderClearing, tools: Iterable[Mapping[str, Any]]) -> Block:
    """Return the edit that clears results of the handoff's own tools. Results of the provider's
    own tools stay, because the report counts the cleared results without their names.
    """
    edit: Block = {
        "type": CLEAR_TOOL_USES,
        "trigger": {"type": "input_tokens", "value": clearing.at_tokens},
        "keep": {"type": "tool_uses", "value": clearing.keep},
        "clear_at_least": {"type": "input_tokens", "value": clearing.at_least},
    }
    of_provider = [str(tool["name"]) for tool in tools if "input_schema" not in tool]
    if of_provider:
        edit["exclude_tools"] = of_provider
    return edit


def _build_system_blocks(system: SystemPrompt, mark: Mapping[str, str]) -> list[Block]:
    """Return the blocks of the system prompt, with cache breakpoints where its builder wants
    them.
    """
    blocks: list[Block] = [{"type": "text", "text": system.common, "cache_control": mark}]
    if system.handoff_rules:
        blocks.append({"type": "text", "text": system.handoff_rules})
        if system.caches_handoff_rules:
            blocks[-1]["cache_control"] = mark
    return blocks


def make_strict(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema in the form that the provider enforces. None: this form would change
    its meaning, for example of an object with free keys.
    """
    return _make_strict(json.dumps(schema))


@lru_cache(maxsize=256)
def _make_strict(schema: str) -> dict[str, Any] | None:
    """Return the strict form of a schema in JSON. It is cached, because each turn sends the
    same schemas.
    """
    try:
        return anthropic.transform_schema(_prepare_schema(json.loads(schema)))
    except (ValueError, TypeError, AssertionError, AttributeError, RecursionError):
        return None


def _prepare_schema(node: Any) -> dict[str, Any]:
    """Return the schema with each list of types as `anyOf`. This changes `node`.

    Raises:
        ValueError: the strict form would lose a part of the schema.
    """
    if not isinstance(node, dict) or any(key in node for key in _LOOSE):
        raise ValueError("not a strict schema")
    if isinstance(node.get("type"), list):
        return _split_type_list(node)
    if node.get("type") == "object":
        if not node.get("properties") or node.get("additionalProperties") not in (None, False):
            raise ValueError("free keys")
        node["properties"] = _prepare_child_schemas(node["properties"])
    if node.get("type") == "array":
        node["items"] = _prepare_schema(node.get("items"))
    for key in ("anyOf", "oneOf"):
        if key in node:
            node[key] = list(map(_prepare_schema, node[key]))
    if "$defs" in node:
        node["$defs"] = _prepare_child_schemas(node["$defs"])
    return node


def _prepare_child_schemas(children: dict[str, Any]) -> dict[str, Any]:
    child_schemas: dict[str, Any] = {}
    for name, child in children.items():
        child_schemas[name] = _prepare_schema(child)
    return child_schemas


def _split_type_list(node: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with a list of types as `anyOf` with one schema for each type."""
    schema: dict[str, Any] = {}
    if "description" in node:
        schema["description"] = node["description"]
    keywords = dict(node)
    types = keywords.pop("type")
    keywords.pop("description", None)
    schema["anyOf"] = []
    for kind in types:
        keywords_of_kind = {} if kind == "null" else keywords
        schema["anyOf"].append(_prepare_schema({"type": kind, **keywords_of_kind}))
    return schema


def _build_schema_instructions(schema: Mapping[str, Any]) -> str:
    return (
        "Your final answer is one JSON value and nothing else. It matches this JSON Schema: "
        + json.dumps(schema, ensure_ascii=False, sort_keys=True)
    )


def _make_tools_strict(tools: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    """Return the tools. At most the first `MAX_STRICT_TOOLS` of the handoff's own tools have
    strict schemas.
    """
    definitions: list[dict[str, Any]] = []
    left = MAX_STRICT_TOOLS
    for tool in tools:
        schema = None
        if left > 0 and "input_schema" in tool:
            left -= 1
            schema = make_strict(tool["input_schema"])
        if schema is None:
            definitions.append(tool)
        else:
            definitions.append({**tool, "input_schema": schema, "strict": True})
    return definitions


def _add_breakpoints(
    call: ModelCall, prefix_mark: Mapping[str, str], turns_mark: Mapping[str, str]
) -> list[MessageParam]:
    """Return the messages with cache breakpoints.

    One is at the last block if the model may call tools, because the next turn repeats everything
    up to this block. Otherwise no turn follows, and a breakpoint would only cost money. The same
    holds for a summary, which the next turn shows in place of this block.

    The next turn has one at the same block again. The provider looks for a cached prefix only in
    the 20 blocks before a breakpoint, and ten calls and their results are more.

    Another one is at the first block of several, which the requests of other handoffs repeat. Only
    this one is left out if the provider's limit is reached.

    Args:
        prefix_mark: breakpoint of the part that other handoffs repeat.
        turns_mark: breakpoint of the part that the next turn repeats.
    """
    messages = list(call.messages)
    left = MAX_CACHE_BREAKPOINTS - 1 - call.system.caches_handoff_rules
    if messages and call.tools and call.may_call_tools:
        if not call.is_summary:
            messages[-1] = _add_cache_breakpoint(messages[-1], -1, turns_mark)
            left -= 1
        place = _find_end_of_last_request(messages)
        if place is not None:
            messages[place] = _add_cache_breakpoint(messages[place], -1, turns_mark)
            left -= 1
    opening = messages[0]["content"] if messages else ""
    if left > 0 and not isinstance(opening, str) and len(opening) > 1:
        messages[0] = _add_cache_breakpoint(messages[0], 0, prefix_mark)
    return messages


def _find_end_of_last_request(messages: Sequence[MessageParam]) -> int | None:
    """Return the index of the message that was the last one before the newest reply. None: there is
    no reply.
    """
    for index in range(len(messages) - 1, 0, -1):
        if messages[index]["role"] == "assistant":
            return index - 1
    return None


def _add_cache_breakpoint(
    message: MessageParam, index: int, mark: Mapping[str, str]
) -> MessageParam:
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
