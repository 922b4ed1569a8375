from __future__ import annotations

from typing import Any

import pytest

from shared.agent.anthropic_request import strict
from shared.agent.schemas import BrokenSchema, problem_with


def test_a_problem_is_one_line_that_says_where() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert problem_with({"a": "x\ny"}, schema) == "$.a: 'x\\ny' is not of type 'integer'"
    assert problem_with({"a": 1}, schema) is None


@pytest.mark.parametrize(
    "schema",
    [{"$ref": "http://127.0.0.1:9/schema.json"}, {"$ref": "#/$defs/none"}, {"type": "nothing"}, {"pattern": "("}, {"properties": 7}],
)
def test_a_broken_schema_says_so_and_nothing_is_fetched(schema: dict[str, Any]) -> None:
    with pytest.raises(BrokenSchema):
        problem_with({"a": "text"} if "properties" in schema else "text", schema)


def test_lists_of_types_become_alternatives() -> None:
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}
    enforced = strict(schema)
    assert enforced is not None
    assert enforced["properties"]["a"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}, "properties": {"a": {"type": "string"}}},
        {"type": "array"},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {"not": {"type": "string"}}}},
        {"type": "object", "properties": {"a": True}},
    ],
)
def test_a_schema_that_strictness_would_change_is_not_enforced(schema: dict[str, Any]) -> None:
    assert strict(schema) is None


def test_the_schema_that_is_given_stays_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}
    strict(schema)
    assert schema == {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}
