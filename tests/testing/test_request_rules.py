"""The strict server accepts and refuses the same requests as the Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import anthropic
import pytest
from anthropic.types import message_create_params

from handoff_queue.testing.request_rules import (
    FIELDS,
    find_header_violations,
    find_schema_violations,
    find_violations,
)

Json = dict[str, Any]
OBJECT = {"type": "object", "properties": {}, "additionalProperties": False}
TOOL = {"name": "look", "description": "Looks.", "input_schema": OBJECT}


def text(content: str = "Hello") -> Json:
    return {"type": "text", "text": content}


def call(id_: Any = "toolu_1", name: Any = "look", arguments: Any = None) -> Json:
    input_ = {} if arguments is None else arguments
    return {"type": "tool_use", "id": id_, "name": name, "input": input_}


def result(id_: str = "toolu_1", **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": id_, "content": "found", **more}


def search(id_: str = "srvtoolu_1") -> Json:
    return {"type": "server_tool_use", "id": id_, "name": "web_search", "input": {"query": "q"}}


def hits(id_: str = "srvtoolu_1") -> Json:
    return {"type": "web_search_tool_result", "tool_use_id": id_, "content": []}


def user(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Json) -> Json:
    return {"role": "assistant", "content": list(blocks)}


def request(*messages: Json, **more: Any) -> Json:
    base = {"model": "m", "max_tokens": 10, "stream": True, "tools": [TOOL]}
    return {**base, "messages": list(messages) or [user(text())], **more}


VALID: Mapping[str, Json] = {
    "one question": request(),
    "a plain string": request({"role": "user", "content": "Hello"}),
    "neighbours of one role": request(user(text()), user(text())),
    "a call and its result": request(
        user(text()), assistant(text(), call()), user(result(), text("Go on."))
    ),
    "results in any order": request(
        user(text()), assistant(call("a"), call("b")), user(result("b"), result("a"))
    ),
    "a search and its hits": request(
        user(text()), assistant(search(), hits(), text("So.")), user(text())
    ),
    "a paused search": request(user(text()), assistant(text("Wait."), search())),
    "a paused search beside a call": request(
        user(text()), assistant(search(), call()), user(result())
    ),
    "a system message between": request(
        user(text()), {"role": "system", "content": "Be brief."}, user(text())
    ),
    "four breakpoints": request(
        user(*[{**text(), "cache_control": {"type": "ephemeral"}} for _ in range(4)])
    ),
    "a named tool": request(tool_choice={"type": "tool", "name": "look"}),
    "a tool of the provider": request(
        tools=[{"type": "web_search_20250305", "name": "web_search"}]
    ),
    "a tool name of 128 characters": request(tools=[{**TOOL, "name": "n" * 128}]),
}

UMLAUT_SCHEMA = {"type": "object", "properties": {"größe": {"type": "string"}}}
INVALID: Mapping[str, tuple[Json, str]] = {
    "no object": ([], "must be a JSON object"),  # type: ignore[dict-item]
    "an unknown field": (request(temperature=0), "temperature: Extra inputs"),
    "no model": (request(model=""), "model: Field required"),
    "no output": (request(max_tokens=0), "max_tokens"),
    "an output that is not a number": (request(max_tokens=True), "max_tokens"),
    "no messages": (request() | {"messages": []}, "at least one message"),
    "an unknown role": (request({"role": "tool", "content": "x"}), "messages.0.role"),
    "an unknown field of a message": (
        request({"role": "user", "content": "x", "name": "y"}),
        "messages.0.name: Extra inputs",
    ),
    "an empty message": (request(user()), "non-empty content"),
    "a block without a type": (request(user({"text": "x"})), "messages.0.content.0.type"),
    "the assistant first": (request(assistant(text()), user(text())), "must use the `user` role"),
    "white space at the end": (
        request(user(text()), assistant(search(), hits(), text("So. "))),
        "trailing whitespace",
    ),
    "the assistant last": (request(user(text()), assistant(text("So."))), "must end with a user"),
    "an empty text": (request(user(text(" \n"))), "non-whitespace text"),
    "an empty text in the system prompt": (request(system=[text("")]), "system.0: text content"),
    "an empty text in a result": (
        request(user(text()), assistant(call()), user(result(content=[text("")]))),
        "non-whitespace text",
    ),
    "a call of the user": (request(user(call())), "can only be in `assistant` messages"),
    "a result of the assistant": (
        request(user(text()), assistant(result()), user(text())),
        "can only be in `user` messages",
    ),
    "an id with a bar": (
        request(user(text()), assistant(call("call|1")), user(result("call|1"))),
        "messages.1.content.0.tool_use.id: String should match",
    ),
    "an empty id": (request(user(text()), assistant(call("")), user(result(""))), "tool_use.id"),
    "a name of 300 characters": (
        request(user(text()), assistant(call(name="n" * 300)), user(result())),
        "tool_use.name: String should match",
    ),
    "arguments that are not an object": (
        request(user(text()), assistant(call(arguments="{")), user(result())),
        "tool_use.input: Input should be a valid dictionary",
    ),
    "an unknown field of a result": (
        request(user(text()), assistant(call()), user(result(name="look"))),
        "tool_result.name: Extra inputs",
    ),
    "an id of an earlier turn": (
        request(user(text()), assistant(call()), user(result()), assistant(call()), user(result())),
        "ids must be unique: toolu_1",
    ),
    "a call without a result": (
        request(user(text()), assistant(call("a"), call("b")), user(result("a"))),
        "without `tool_result` blocks immediately after: b",
    ),
    "a call at the end": (request(user(text()), assistant(call())), "without `tool_result`"),
    "a result without a call": (request(user(result())), "unexpected `tool_use_id`"),
    "two results of one call": (
        request(user(text()), assistant(call()), user(result(), result())),
        "must have a single result",
    ),
    "a text before a result": (
        request(user(text()), assistant(call()), user(text(), result())),
        "must come before any other content",
    ),
    "a text between results": (
        request(
            user(text()),
            assistant(call("a"), call("b")),
            user(result("a"), text(), result("b")),
        ),
        "must come before any other content",
    ),
    "text behind an unfinished search": (
        request(user(text()), assistant(search()), user(text("Answer now."))),
        "messages.1: `server_tool_use` ids were found without their result",
    ),
    "text behind a search beside a call": (
        request(user(text()), assistant(search(), call()), user(result(), text())),
        "`server_tool_use` ids were found without their result",
    ),
    "hits without a search": (
        request(user(text()), assistant(hits(), text("So.")), user(text())),
        "found in `web_search_tool_result` blocks",
    ),
    "two tools of one name": (request(tools=[TOOL, TOOL]), "Tool names must be unique: look"),
    "a tool name of 129 characters": (request(tools=[{**TOOL, "name": "n" * 129}]), "tools.0.name"),
    "a tool name with a dot": (request(tools=[{**TOOL, "name": "a.b"}]), "tools.0.name"),
    "a parameter with an umlaut": (
        request(tools=[{**TOOL, "input_schema": UMLAUT_SCHEMA}]),
        "Property keys should match pattern",
    ),
    "a schema without its type": (
        request(tools=[{**TOOL, "input_schema": {}}]),
        "tools.0.input_schema.type: Input should be 'object'",
    ),
    "alternatives at the top": (
        request(tools=[{**TOOL, "input_schema": {**OBJECT, "anyOf": [OBJECT]}}]),
        "at the top level",
    ),
    "21 strict tools": (
        request(tools=[{**TOOL, "name": f"n{n}", "strict": True} for n in range(21)]),
        "at most 20",
    ),
    "a choice without tools": (
        request(tools=[], tool_choice={"type": "auto"}),
        "may only be specified while providing tools",
    ),
    "a choice that is not there": (
        request(tool_choice={"type": "tool", "name": "walk"}),
        "not found in provided tools",
    ),
    "calls without tools": (
        request(user(text()), assistant(call()), user(result()), tools=[]),
        "tools: Field required",
    ),
    "a strict tool outside the subset": (
        request(tools=[{**TOOL, "strict": True, "input_schema": {"type": "object"}}]),
        "must be explicitly set to false",
    ),
    "an output format that is not a schema": (
        request(output_config={"format": {"type": "text"}}),
        "output_config.format: Input should be a JSON schema",
    ),
    "an output schema outside the subset": (
        request(output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}}),
        "must be explicitly set to false",
    ),
    "five breakpoints": (
        request(user(*[{**text(), "cache_control": {"type": "ephemeral"}} for _ in range(5)])),
        "A maximum of 4 blocks",
    ),
    "an unknown breakpoint": (
        request(user({**text(), "cache_control": {"type": "long"}})),
        "cache_control.type",
    ),
    "a breakpoint on thinking": (
        request(
            user(text()),
            assistant({"type": "thinking", "thinking": "x", "cache_control": {}}, text()),
            user(text()),
        ),
        "cache_control: Extra inputs",
    ),
}


@pytest.mark.parametrize("valid", VALID.values(), ids=VALID)
def test_a_good_request_breaks_no_rule(valid: Json) -> None:
    assert list(find_violations(deepcopy(valid))) == []


@pytest.mark.parametrize(("invalid", "message"), INVALID.values(), ids=INVALID)
def test_a_bad_request_breaks_a_rule_that_is_named(invalid: Json, message: str) -> None:
    assert any(message in line for line in find_violations(invalid)), list(find_violations(invalid))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "string", "maxLength": 3}, "keyword 'maxLength' is not supported"),
        ({"type": "string", "pattern": "a"}, "keyword 'pattern' is not supported"),
        ({"type": ["string", "null"]}, "type ['string', 'null'] is not supported"),
        ({"type": "object", "additionalProperties": True}, "must be explicitly set to false"),
        ({**OBJECT, "required": ["a"]}, "required names no property: a"),
        ({"type": "array", "minItems": 2, "items": OBJECT}, "'minItems' values other than 0 or 1"),
        ({"type": "string", "format": "regex"}, "String format 'regex' is not supported"),
        ({"description": "anything"}, "a schema needs a type"),
        ({"enum": [{"a": 1}]}, "complex types within enums"),
        ({"$ref": "https://example.com/a.json"}, "external $ref is not supported"),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
            "recursive schemas are not supported: a",
        ),
    ],
)
def test_a_schema_outside_the_supported_subset_is_refused(schema: Json, message: str) -> None:
    assert any(message in line for line in find_schema_violations("schema", schema))


def test_the_sdks_tool_schemas_stay_within_the_supported_subset() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "maxLength": 3, "format": "regex"},
            "b": {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
            "c": {"type": "array", "items": {"$ref": "#/$defs/d"}, "minItems": 7},
        },
        "required": ["a"],
        "$defs": {"d": {"enum": ["x", 1]}},
    }
    assert list(find_schema_violations("schema", anthropic.transform_schema(schema))) == []


@pytest.mark.parametrize("missing", ["anthropic-version", "authorization", "content-type"])
def test_a_request_without_a_header_is_refused(missing: str) -> None:
    headers = {
        "anthropic-version": "2026-10-21",
        "authorization": "Bearer k",
        "content-type": "application/json",
    }
    assert list(find_header_violations(headers)) == []
    assert len(list(find_header_violations({**headers, missing: ""}))) == 1


def test_the_known_fields_match_the_installed_sdk() -> None:
    known = message_create_params.MessageCreateParamsBase.__annotations__.keys() | {"stream"}
    assert known == FIELDS
