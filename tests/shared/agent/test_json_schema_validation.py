from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.agent.json_schema_validation import (
    BrokenSchema,
    check_schema,
    find_problem,
)
from handoff_queue.shared.providers.anthropic.request import make_strict
from tests.machine_pace import measure
from tests.refusals import refusal_of


def test_a_problem_is_one_line_with_its_place() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert find_problem({"a": "x\ny"}, schema) == "$.a: 'x\\ny' is not of type 'integer'"
    assert find_problem({"a": 1}, schema) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "#/$defs/none"},
        {"type": "nothing"},
        {"pattern": "("},
        {"properties": 7},
    ],
)
def test_a_broken_schema_is_reported_and_no_reference_is_fetched(schema: dict[str, Any]) -> None:
    with pytest.raises(BrokenSchema):
        find_problem({"a": "text"} if "properties" in schema else "text", schema)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "nothing"}, "is not a JSON Schema .* at type"),
        ({"items": [{"type": "string"}]}, "is not a JSON Schema"),
        ({"$ref": "http://x.example/y"}, "refers to http://x.example/y, and nothing is fetched"),
        ({"$ref": "#/nope"}, "refers to #/nope, which it does not have"),
        (
            {"properties": {"a": {"items": {"$ref": "#nope"}}}},
            "refers to #nope, which it does not have",
        ),
        ({"$ref": "#/a", "a": {"$ref": "#/b"}}, "refers to #/b, which it does not have"),
        ({"$ref": "#/a", "a": 7}, "is not a JSON Schema"),
        ({"$ref": "#"}, "refers to itself without an end"),
        ({"anyOf": [{"type": "null"}, {"$ref": "#"}]}, "refers to itself without an end"),
        (
            {
                "$ref": "#/$defs/A",
                "$defs": {"A": {"allOf": [{"$ref": "#/$defs/B"}]}, "B": {"$ref": "#/$defs/A"}},
            },
            "without an end",
        ),
        ({"enum": []}, "has an empty enum"),
        ({"properties": {"a": {"enum": []}}}, "has an empty enum"),
        ({"pattern": "(?=a)b"}, "cannot be used: the pattern"),
        ({"const": {1, 2}}, "must be a mapping of JSON values"),
        (["a"], "must be a mapping of JSON values"),
    ],
)
def test_an_unusable_schema_is_refused_before_the_run(schema: object, message: str) -> None:
    with pytest.raises(BrokenSchema, match=message) as refused:
        check_schema(schema)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {
            "$defs": {"node": {"properties": {"left": {"$ref": "#/$defs/node"}}}},
            "$ref": "#/$defs/node",
        },
        {"items": {"$ref": "#"}},
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"a": {"type": "string"}},
            "$ref": "#/definitions/a",
        },
        {"$defs": {"a": {"$anchor": "here"}}, "allOf": [{"$ref": "#here"}, {"$ref": "#here"}]},
        {
            "properties": {"$ref": {"type": "string"}, "enum": {"type": "array"}},
            "const": {"$ref": "#/nope", "enum": []},
        },
    ],
)
def test_an_unusual_but_valid_schema_is_accepted(schema: dict[str, Any]) -> None:
    assert refusal_of(check_schema, schema) is None


EVIL = "^(a+)+$"
LONG = "a" * 100_000 + "b"


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (LONG, {"type": "string", "pattern": EVIL}),
        (LONG, {"$schema": "https://json-schema.org/draft/2020-12/schema", "pattern": EVIL}),
        (
            [LONG],
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "items": {"$ref": "#/$defs/A"},
                "$defs": {"A": {"pattern": EVIL}},
            },
        ),
        (
            [LONG],
            {"items": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": EVIL}},
        ),
        (
            {LONG: 1},
            {"patternProperties": {EVIL: {"type": "string"}}, "additionalProperties": False},
        ),
        (
            {LONG: 1},
            {
                "patternProperties": {EVIL: {"type": "string"}},
                "additionalProperties": {"type": "string"},
            },
        ),
    ],
)
def test_no_pattern_takes_long(value: Any, schema: dict[str, Any]) -> None:
    assert measure(lambda: find_problem(value, schema), limit_s=1) < 1
    assert find_problem(value, schema)


def test_patterns_are_matched_anywhere_and_cover_additional_properties() -> None:
    schema = {
        "patternProperties": {"^x-": {"type": "integer"}},
        "properties": {"n": {"pattern": r"\d{2}"}},
        "additionalProperties": False,
    }
    assert find_problem({"x-a": 1, "n": "no 42."}, schema) is None
    assert "'x'" in str(find_problem({"x-a": "x"}, schema))
    assert "'y' was unexpected" in str(find_problem({"y": 1}, schema))
    assert "does not match" in str(find_problem({"n": "4"}, schema))


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "(", "a{2000}", "(?<!x)y"])
@pytest.mark.parametrize("keyword", ["pattern", "patternProperties"])
def test_a_pattern_that_re2_does_not_take_is_named(pattern: str, keyword: str) -> None:
    schema = {"properties": {"a": {keyword: pattern if keyword == "pattern" else {pattern: {}}}}}
    with pytest.raises(BrokenSchema, match="is not a regular expression of RE2"):
        find_problem({"a": 7}, schema)


@pytest.mark.parametrize(
    ("patterns", "fault"),
    [
        ([f"^x{number}$" for number in range(300)], "300 different patterns are too many"),
        ([rf"\pL{{1,40}}{number}" for number in range(100)], "are too large together"),
    ],
    ids=["many", "large"],
)
@pytest.mark.parametrize("keyword", ["pattern", "patternProperties"])
def test_a_schema_with_too_many_patterns_is_refused_before_it_compiles_all(
    patterns: list[str], fault: str, keyword: str
) -> None:
    schema: dict[str, Any] = {"patternProperties": {pattern: {} for pattern in patterns}}
    if keyword == "pattern":
        parts = {f"p{number}": {"pattern": pattern} for number, pattern in enumerate(patterns)}
        schema = {"properties": {"default": {"properties": parts}}}
    with pytest.raises(BrokenSchema, match=f"{fault}.*use"):
        check_schema(schema)
    with pytest.raises(BrokenSchema, match=f"{fault}.*use"):
        find_problem({}, schema)


def test_a_pattern_that_a_schema_repeats_counts_once() -> None:
    date = {"pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}

    assert find_problem({"p1": "x"}, {"properties": {f"p{n}": date for n in range(1_000)}})


@pytest.mark.parametrize("keyword", ["unevaluatedProperties", "unevaluatedItems"])
def test_a_keyword_without_a_bounded_check_is_refused_with_the_keyword_to_use(keyword: str) -> None:
    schema = {"$defs": {"a": {keyword: False}}, "allOf": [{"$ref": "#/$defs/a"}]}
    with pytest.raises(BrokenSchema, match=f"has {keyword}, which is not supported; use "):
        check_schema(schema)
    with pytest.raises(BrokenSchema, match=f"has {keyword}, which is not supported"):
        find_problem({}, schema)


def test_a_property_may_have_the_name_of_a_refused_keyword() -> None:
    schema = {"properties": {"unevaluatedProperties": {"type": "string"}}}

    assert refusal_of(check_schema, schema) is None


def test_a_property_named_pattern_is_not_a_pattern() -> None:
    schema = {
        "properties": {
            "pattern": {"type": "string"},
            "p": {"enum": [{"pattern": "("}]},
            "q": {"const": {"pattern": "("}},
        }
    }
    assert (
        find_problem({"pattern": "(", "p": {"pattern": "("}, "q": {"pattern": "("}}, schema) is None
    )


def test_lists_of_types_become_alternatives() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": ["string", "null"]}},
        "required": ["a"],
    }
    enforced = make_strict(schema)
    assert enforced is not None
    assert enforced["properties"]["a"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "properties": {"a": {"type": "string"}},
        },
        {"type": "array"},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {"not": {"type": "string"}}}},
        {"type": "object", "properties": {"a": True}},
    ],
)
def test_a_schema_that_strictness_would_change_is_not_enforced(schema: dict[str, Any]) -> None:
    assert make_strict(schema) is None


def test_the_given_schema_is_not_changed() -> None:
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}
    make_strict(schema)
    assert schema == {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}


def test_a_schema_that_is_nested_too_deeply_is_refused_with_that_reason() -> None:
    schema: dict[str, Any] = {}
    for _ in range(300):
        schema = {"properties": {"a": schema}}

    with pytest.raises(BrokenSchema, match="more than 100 levels"):
        check_schema(schema)
