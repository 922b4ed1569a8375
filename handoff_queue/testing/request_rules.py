"""The rules of the Messages API for a request, as pure functions.

`violations(request)` yields one line for each broken rule, in the form of the API's own
messages: `messages.2.content.0: ...`.
Sources: the parameter types of the installed `anthropic` package, its `transform_schema`, and
error messages that users of the API have reported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

Json = dict[str, Any]

MAX_REQUEST_BYTES = 32 * 1024 * 1024
MAX_CACHE_BREAKPOINTS = 4
MAX_STRICT_TOOLS = 20
FIELDS = frozenset(
    "cache_control container diagnostics inference_geo max_tokens messages metadata model"
    " output_config service_tier speed stop_sequences stream system thinking tool_choice tools"
    " user_profile_id workspace_id".split()
)
"""Top-level fields: those of `anthropic.types.MessageCreateParams`."""
BETA_FIELDS = {
    "context_management": "context-management-2025-06-27",
    "compaction": "compact-2026-09-04",
}
"""Further top-level fields, and the value of the header `anthropic-beta` that each needs."""
ID = re.compile(r"[a-zA-Z0-9_-]+")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
PARAMETER_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
THINKING = ("thinking", "redacted_thinking")
_ROLES = ("user", "assistant", "system")
_SCHEMA_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
_SCHEMA_KEYWORDS = frozenset(
    "$defs $ref additionalProperties allOf anyOf const description enum format items minItems"
    " properties required title type".split()
)
"""All keywords that `anthropic.transform_schema` may leave in a schema."""
_STRING_FORMATS = frozenset(
    "date-time time date duration email hostname uri ipv4 ipv6 uuid".split()
)
_USER_BLOCKS = frozenset({"text", "tool_result", "image", "document", "search_result"})


def find_header_violations(headers: Mapping[str, str]) -> Iterator[str]:
    """Yield broken rules of headers, given by lower-case names."""
    if not headers.get("anthropic-version"):
        yield "anthropic-version: header is required"
    if not headers.get("x-api-key") and not headers.get("authorization"):
        yield "x-api-key: header is required"
    if "application/json" not in headers.get("content-type", ""):
        yield "content-type: must be application/json"


def parse_betas(headers: Mapping[str, str]) -> frozenset[str]:
    """Return the betas that the headers name."""
    names = headers.get("anthropic-beta", "").split(",")
    return frozenset(name.strip() for name in names if name.strip())


def find_violations(request: Any, betas: Collection[str] = ()) -> Iterator[str]:
    """Yield broken rules of a request's body. If its shape is wrong, no further rule is applied.

    Args:
        betas: see `parse_betas`.
    """
    wrong_shape = list(_check_shape(request, betas))
    yield from wrong_shape
    if wrong_shape:
        return
    for rule in RULES:
        yield from rule(request)


def _check_shape(request: Any, betas: Collection[str]) -> Iterator[str]:
    """Check the types of the fields that the other rules read."""
    if not isinstance(request, dict):
        yield "The request body must be a JSON object"
        return
    beta_fields = {name for name, beta in BETA_FIELDS.items() if beta in betas}
    for name in sorted(request.keys() - FIELDS - beta_fields):
        yield f"{name}: Extra inputs are not permitted"
    if not isinstance(request.get("model"), str) or not request["model"]:
        yield "model: Field required"
    limit = request.get("max_tokens")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        yield "max_tokens: Input should be greater than or equal to 1"
    if not isinstance(request.get("stream", False), bool):
        yield "stream: Input should be a valid boolean"
    if not isinstance(request.get("system", []), str | list):
        yield "system: Input should be a valid list"
    tools = request.get("tools", [])
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        yield "tools: Input should be a valid list"
    yield from _check_message_shapes(request.get("messages"))


def _check_message_shapes(messages: Any) -> Iterator[str]:
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    for place, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            yield f"messages.{place}.role: Input should be 'user', 'assistant' or 'system'"
            continue
        for name in sorted(message.keys() - {"role", "content"}):
            yield f"messages.{place}.{name}: Extra inputs are not permitted"
        content = message.get("content")
        if not isinstance(content, str | list) or not content:
            yield f"messages.{place}: all messages must have non-empty content"
        elif isinstance(content, list):
            for index, block in enumerate(content):
                if not isinstance(block, dict) or not isinstance(block.get("type"), str):
                    yield f"messages.{place}.content.{index}.type: Field required"


def get_blocks(message: Json) -> list[Json]:
    """Return the content as blocks; a plain string is one text block."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def merge_messages(messages: Iterable[Json]) -> list[Json]:
    """Return the messages with neighbours of the same role joined, as the API reads them.
    System messages are left out.
    """
    merged_messages: list[Json] = []
    for message in messages:
        if message["role"] == "system":
            continue
        if merged_messages and merged_messages[-1]["role"] == message["role"]:
            merged_messages[-1]["content"] = [*merged_messages[-1]["content"], *get_blocks(message)]
        else:
            merged_messages.append({"role": message["role"], "content": list(get_blocks(message))})
    return merged_messages


def iterate_blocks(messages: Iterable[Json]) -> Iterator[Json]:
    """Yield the blocks of all messages."""
    for message in messages:
        yield from get_blocks(message)


def are_tool_results(blocks: Iterable[Json]) -> bool:
    """Return whether all blocks are results of tools that the client ran."""
    return all(block["type"] == "tool_result" for block in blocks)


def _list_ids(blocks: Iterable[Json], kind: str, field: str) -> list[str]:
    """Return the ids in this field of the blocks of this kind."""
    ids: list[str] = []
    for block in blocks:
        if block["type"] == kind:
            ids.append(str(block.get(field)))
    return ids


def _find_repeated_names(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, in alphabetical order."""
    counts = Counter(names)
    return sorted(name for name, count in counts.items() if count > 1)


def _check_roles(request: Json) -> Iterator[str]:
    """Check that a user's message comes first, and that the last message is a user's unless
    the provider paused the model's turn.
    """
    messages = merge_messages(request["messages"])
    if not messages or messages[0]["role"] != "user":
        yield "messages.0.role: the first message must use the `user` role"
    if not messages or messages[-1]["role"] != "assistant":
        return
    last = messages[-1]["content"][-1]
    if last["type"] == "text" and str(last.get("text", "")) != str(last.get("text", "")).rstrip():
        yield "messages: final assistant content cannot end with trailing whitespace"
    if not _has_server_blocks(messages[-1]["content"]):
        yield (
            "messages: the conversation must end with a user message (no turn of the model is"
            " paused)"
        )


def _has_server_blocks(blocks: Iterable[Json]) -> bool:
    return any(is_server_call(block) or is_server_result(block) for block in blocks)


def _check_texts(request: Json) -> Iterator[str]:
    """Check that no text is empty."""
    places: list[tuple[str, Any]] = []
    for place, message in enumerate(request["messages"]):
        places.append((f"messages.{place}.content", message["content"]))
    if "system" in request:
        places.append(("system", request["system"]))
    for where, content in places:
        if isinstance(content, str):
            if not content.strip():
                yield f"{where}: text content blocks must contain non-whitespace text"
            continue
        for index, block in enumerate(content):
            yield from _check_text(f"{where}.{index}", block)


def _check_text(where: str, block: Json) -> Iterator[str]:
    if block["type"] == "text":
        text = block.get("text")
        if not isinstance(text, str) or not text.strip():
            yield f"{where}: text content blocks must contain non-whitespace text"
    inner = block.get("content")
    if block["type"] == "tool_result" and isinstance(inner, list):
        for index, part in enumerate(inner):
            yield from _check_text(f"{where}.content.{index}", part)


def _check_blocks(request: Json) -> Iterator[str]:
    """Check the blocks that each role may send, and their fields."""
    for place, message in enumerate(request["messages"]):
        for index, block in enumerate(get_blocks(message)):
            where, kind = f"messages.{place}.content.{index}", block["type"]
            if message["role"] == "user" and kind not in (*_USER_BLOCKS, "compaction"):
                yield f"{where}: `{kind}` blocks can only be in `assistant` messages"
            elif message["role"] == "assistant" and kind in _USER_BLOCKS - {"text"}:
                yield f"{where}: `{kind}` blocks can only be in `user` messages"
            elif kind in ("tool_use", "server_tool_use"):
                yield from _check_call(where, block)
            elif kind == "tool_result":
                yield from _check_result(where, block)
            if kind in THINKING and "cache_control" in block:
                yield f"{where}.cache_control: Extra inputs are not permitted"


def _check_call(where: str, block: Json) -> Iterator[str]:
    if not _is(ID, block.get("id")):
        yield f"{where}.{block['type']}.id: String should match pattern '^{ID.pattern}$'"
    if not _is(TOOL_NAME, block.get("name")):
        yield f"{where}.{block['type']}.name: String should match pattern '^{TOOL_NAME.pattern}$'"
    if not isinstance(block.get("input"), dict):
        yield f"{where}.{block['type']}.input: Input should be a valid dictionary"


def _check_result(where: str, block: Json) -> Iterator[str]:
    if not _is(ID, block.get("tool_use_id")):
        yield f"{where}.tool_result.tool_use_id: String should match pattern '^{ID.pattern}$'"
    if not isinstance(block.get("content", ""), str | list):
        yield f"{where}.tool_result.content: Input should be a valid string"
    for name in sorted(
        block.keys() - {"type", "tool_use_id", "content", "is_error", "cache_control"}
    ):
        yield f"{where}.tool_result.{name}: Extra inputs are not permitted"


def _is(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _check_ids(request: Json) -> Iterator[str]:
    """Check that ids of calls are unique in the conversation."""
    ids: list[str] = []
    for block in iterate_blocks(request["messages"]):
        if block["type"] in ("tool_use", "server_tool_use"):
            ids.append(str(block.get("id")))
    for name in _find_repeated_names(ids):
        yield f"messages: `tool_use` ids must be unique: {name}"


def _check_results(request: Json) -> Iterator[str]:
    """Check that each call of an assistant message is answered exactly once, at the beginning
    of the next message.
    """
    messages = merge_messages(request["messages"])
    call_ids: list[str] = []
    for place, message in enumerate(messages):
        blocks = message["content"]
        result_ids = _list_ids(blocks, "tool_result", "tool_use_id")
        if missing := [name for name in call_ids if name not in result_ids]:
            yield (
                f"messages.{place}: `tool_use` ids were found without `tool_result` blocks"
                f" immediately after: {', '.join(missing)}"
            )
        if unknown := [name for name in result_ids if name not in call_ids]:
            yield (
                f"messages.{place}: unexpected `tool_use_id` found in `tool_result` blocks:"
                f" {', '.join(unknown)}"
            )
        if len(set(result_ids)) < len(result_ids):
            yield f"messages.{place}: each `tool_use` must have a single result"
        if not are_tool_results(blocks[: len(result_ids)]):
            yield f"messages.{place}: `tool_result` blocks must come before any other content"
        call_ids = _list_ids(blocks, "tool_use", "id")
    if call_ids:
        yield (
            f"messages.{len(messages) - 1}: `tool_use` ids were found without `tool_result` blocks:"
            f" {', '.join(call_ids)}"
        )


def is_server_call(block: Json) -> bool:
    """Return whether the block is a call that the provider runs."""
    return block["type"] in ("server_tool_use", "mcp_tool_use")


def is_server_result(block: Json) -> bool:
    """Return whether the block is the result of a call that the provider runs."""
    return str(block["type"]).endswith("_tool_result")


def find_open_server_calls(blocks: Iterable[Json]) -> list[str]:
    """Return the ids of server-side calls without a result."""
    open_calls: dict[str, None] = {}
    for block in blocks:
        if is_server_call(block):
            open_calls[str(block.get("id"))] = None
        elif is_server_result(block):
            open_calls.pop(str(block.get("tool_use_id")), None)
    return list(open_calls)


def _check_server_results(request: Json) -> Iterator[str]:
    """Check that each result of a server-side call comes after its call."""
    messages = merge_messages(request["messages"])
    known: set[str] = set()
    for place, message in enumerate(messages):
        for index, block in enumerate(message["content"]):
            if is_server_call(block):
                known.add(str(block.get("id")))
            elif is_server_result(block) and str(block.get("tool_use_id")) not in known:
                yield (
                    f"messages.{place}.content.{index}: unexpected `tool_use_id` found in"
                    f" `{block['type']}` blocks: {block.get('tool_use_id')}"
                )


def _check_server_calls(request: Json) -> Iterator[str]:
    """Check that a message whose server-side call never gets a result is followed by results
    of the client's tools only.
    """
    messages = merge_messages(request["messages"])
    model_blocks: list[Json] = []
    for message in messages:
        if message["role"] == "assistant":
            model_blocks += message["content"]
    open_calls = set(find_open_server_calls(model_blocks))
    for place, (message, following) in enumerate(pairwise(messages)):
        pending: list[str] = []
        for name in find_open_server_calls(message["content"]):
            if name in open_calls:
                pending.append(name)
        has_own_calls = any(block["type"] == "tool_use" for block in message["content"])
        if pending and not (has_own_calls and are_tool_results(following["content"])):
            yield (
                f"messages.{place}: `server_tool_use` ids were found without their result blocks: "
                f"{', '.join(pending)}"
            )


def _check_tools(request: Json) -> Iterator[str]:
    tools = request.get("tools", [])
    names = [str(tool.get("name")) for tool in tools]
    for name in _find_repeated_names(names):
        yield f"tools: Tool names must be unique: {name}"
    for place, tool in enumerate(tools):
        if not _is(TOOL_NAME, tool.get("name")):
            yield f"tools.{place}.name: String should match pattern '^{TOOL_NAME.pattern}$'"
        if tool.get("type", "custom") == "custom":
            yield from _check_input_schema(f"tools.{place}.input_schema", tool.get("input_schema"))
    if sum(tool.get("strict") is True for tool in tools) > MAX_STRICT_TOOLS:
        yield f"tools: at most {MAX_STRICT_TOOLS} tools can be strict"
    choice = request.get("tool_choice")
    if choice is not None and not tools:
        yield "tool_choice: may only be specified while providing tools"
    elif choice is not None and choice.get("type") == "tool" and choice.get("name") not in names:
        yield f"tool_choice.name: tool {choice.get('name')!r} not found in provided tools"
    call_kinds = ("tool_use", "tool_result", "server_tool_use")
    has_calls = any(block["type"] in call_kinds for block in iterate_blocks(request["messages"]))
    if has_calls and not tools:
        yield "tools: Field required: the messages hold `tool_use` or `tool_result` blocks"


def _check_input_schema(where: str, schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield f"{where}.type: Input should be 'object'"
        return
    for keyword in ("oneOf", "allOf", "anyOf"):
        if keyword in schema:
            yield f"{where}: does not support oneOf, allOf, or anyOf at the top level"
    for name in schema.get("properties", {}):
        if not PARAMETER_NAME.fullmatch(name):
            yield (
                f"{where}.properties: Property keys should match pattern"
                f" '^{PARAMETER_NAME.pattern}$': {name!r}"
            )


def _iterate_parts(schema: Any) -> Iterator[Json]:
    """Yield the schema and every schema inside it."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            yield part
            for keyword in ("properties", "$defs"):
                waiting += list(part.get(keyword, {}).values())
            for keyword in ("items", "anyOf", "allOf", "oneOf"):
                if keyword in part:
                    waiting.append(part[keyword])


def _check_schemas(request: Json) -> Iterator[str]:
    """Check that enforced schemas lie within the subset that the API supports."""
    format_ = request.get("output_config", {}).get("format")
    if format_ is not None:
        if format_.get("type") != "json_schema" or not isinstance(format_.get("schema"), dict):
            yield "output_config.format: Input should be a JSON schema"
        else:
            yield from find_schema_violations("output_config.format.schema", format_["schema"])
    for place, tool in enumerate(request.get("tools", [])):
        if tool.get("strict") and isinstance(tool.get("input_schema"), dict):
            yield from find_schema_violations(f"tools.{place}.input_schema", tool["input_schema"])


def find_schema_violations(where: str, schema: Json) -> Iterator[str]:
    """Yield the parts of a schema that structured output and strict tools do not support."""
    for part in _iterate_parts(schema):
        for keyword in sorted(part.keys() - _SCHEMA_KEYWORDS):
            yield f"{where}: keyword {keyword!r} is not supported"
        kind = part.get("type")
        if kind is not None and kind not in _SCHEMA_TYPES:
            yield f"{where}: type {kind!r} is not supported"
        if kind == "object" and part.get("additionalProperties") is not False:
            yield (
                f"{where}: For 'object' type, 'additionalProperties' must be explicitly set to"
                " false"
            )
        missing: list[Any] = []
        for name in part.get("required", ()):
            if name not in part.get("properties", {}):
                missing.append(name)
        if missing:
            yield f"{where}: required names no property: {', '.join(missing)}"
        if part.get("minItems", 0) not in (0, 1):
            yield (
                f"{where}: For 'array' type, 'minItems' values other than 0 or 1 are not supported"
            )
        if "format" in part and part["format"] not in _STRING_FORMATS:
            yield f"{where}: String format {part['format']!r} is not supported"
        if not part.keys() & {"type", "anyOf", "allOf", "enum", "const", "$ref"}:
            yield f"{where}: a schema needs a type"
        if any(isinstance(value, dict | list) for value in part.get("enum", ())):
            yield f"{where}: complex types within enums are not supported"
    yield from _check_references(where, schema)


def _check_references(where: str, schema: Json) -> Iterator[str]:
    """Check that references lead to `$defs` of the same schema, and never in a circle."""
    definitions = schema.get("$defs", {})
    leads_to: dict[str, set[str]] = {}
    for name, definition in definitions.items():
        leads_to[name] = _find_targets(definition)
    for part in _iterate_parts(schema):
        name = str(part.get("$ref", ""))
        if "$ref" in part and name.removeprefix("#/$defs/") not in definitions:
            yield f"{where}: external $ref is not supported: {name}"
    for start, targets in leads_to.items():
        seen: set[str] = set()
        waiting = list(targets)
        while waiting:
            name = waiting.pop().removeprefix("#/$defs/")
            if name not in seen:
                seen.add(name)
                waiting += leads_to.get(name, ())
        if start in seen:
            yield f"{where}: recursive schemas are not supported: {start}"


def _find_targets(schema: Json) -> set[str]:
    """Return the targets of all references in a schema."""
    targets: set[str] = set()
    for part in _iterate_parts(schema):
        if "$ref" in part:
            targets.add(str(part["$ref"]))
    return targets


def _check_cache(request: Json) -> Iterator[str]:
    """Check the number and the type of the cache breakpoints."""
    places: list[Json] = [*request.get("tools", [])]
    if isinstance(request.get("system"), list):
        places += request["system"]
    places.extend(iterate_blocks(request["messages"]))
    breakpoints: list[Any] = []
    for place in places:
        if place.get("cache_control"):
            breakpoints.append(place["cache_control"])
    if len(breakpoints) > MAX_CACHE_BREAKPOINTS:
        yield (
            f"A maximum of {MAX_CACHE_BREAKPOINTS} blocks with cache_control may be provided. "
            f"Found {len(breakpoints)}."
        )
    if any(mark.get("type") != "ephemeral" for mark in breakpoints):
        yield "cache_control.type: Input should be 'ephemeral'"


RULES: tuple[Callable[[Json], Iterator[str]], ...] = (
    _check_roles,
    _check_texts,
    _check_blocks,
    _check_ids,
    _check_results,
    _check_server_results,
    _check_server_calls,
    _check_tools,
    _check_schemas,
    _check_cache,
)
