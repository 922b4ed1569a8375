"""The time of a validation is bounded for every schema and value."""

from __future__ import annotations

import time
import tracemalloc
from contextlib import AbstractContextManager
from typing import Any

import pytest

from handoff_queue.shared.agent import json_schema_validation
from handoff_queue.shared.agent.json_schema_validation import (
    MAX_CPU_S,
    MAX_STEPS,
    BrokenSchema,
    check_schema,
    find_problem,
    limit_validation,
)
from tests.refusals import refusal_of

MAX_S = 5 * MAX_CPU_S
"""Bound in seconds of processor time. Without a limit, each case takes minutes."""
PART = 10
"""Most cases get a tenth of the steps, and must end within a tenth of the bound."""


@pytest.fixture
def fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit each validation to a tenth of its steps. A step takes as long as with all steps."""

    def limit(steps: int = MAX_STEPS, cpu_s: float = MAX_CPU_S) -> AbstractContextManager[None]:
        return limit_validation(steps // PART, cpu_s)

    monkeypatch.setattr(json_schema_validation, "limit_validation", limit)


def doubled(keyword: str, levels: int = 30) -> dict[str, Any]:
    """Return a schema with one definition for each level, each of which refers twice to the
    next.
    """
    definitions: dict[str, Any] = {
        f"d{level}": {keyword: [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)
    }
    return {"$defs": {**definitions, f"d{levels}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def branching(level: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose branches all lead to the next level of the value."""
    return {
        "$defs": {"node": {**level, "type": ["object", "array", "string"]}},
        "$ref": "#/$defs/node",
    }


def nested(value: Any, levels: int, key: str | None = "a") -> Any:
    for _ in range(levels):
        value = [value] if key is None else {key: value}
    return value


NODE = {"$ref": "#/$defs/node"}
BELOW = {"properties": {"a": NODE}, "required": ["b"]}
IN_CONDITIONS = {
    "if": {"properties": {"a": NODE}},
    "then": {"properties": {"a": NODE}},
    "else": {"properties": {"a": NODE}},
}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_a_schema_that_expands_without_limit_is_refused(keyword: str) -> None:
    with pytest.raises(BrokenSchema, match="against more than 10,000 parts"):
        check_schema(doubled(keyword))


def test_definitions_that_refer_twice_to_the_next_in_conditions_are_refused() -> None:
    definitions: dict[str, Any] = {
        f"d{level}": {
            "if": {"$ref": f"#/$defs/d{level + 1}"},
            "then": {"not": {"$ref": f"#/$defs/d{level + 1}"}},
        }
        for level in range(30)
    }
    schema = {"$defs": {**definitions, "d30": {}}, "items": {"$ref": "#/$defs/d0"}}
    with pytest.raises(BrokenSchema, match="against more than 10,000 parts"):
        check_schema(schema)


def test_parts_for_different_values_do_not_count_together() -> None:
    """A definition whose properties refer twice to the next definition does not multiply the
    work.
    """
    definitions: dict[str, Any] = {
        f"d{level}": {
            "properties": {
                "a": {"$ref": f"#/$defs/d{level + 1}"},
                "b": {"$ref": f"#/$defs/d{level + 1}"},
            }
        }
        for level in range(30)
    }
    schema = {"$defs": {**definitions, "d30": {}}, "$ref": "#/$defs/d0"}

    assert refusal_of(check_schema, schema) is None


@pytest.mark.slow
@pytest.mark.usefixtures("fewer_steps")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": [{"a": [number]} for number in range(20_000)]},
        {"required": [[number] for number in range(20_000)]},
        {
            "$defs": {f"d{number}": {"type": "string"} for number in range(2_000)},
            "allOf": [{"$ref": f"#/x{number}"} for number in range(2_000)],
            **{f"x{number}": {"properties": {"a": {"$ref": "#"}}} for number in range(2_000)},
        },
    ],
    ids=["types", "required", "references"],
)
def test_the_check_of_a_schema_ends(schema: dict[str, Any]) -> None:
    before = time.thread_time()
    with pytest.raises(BrokenSchema):
        check_schema(schema)
    assert time.thread_time() - before < 2 * MAX_S / PART


@pytest.mark.slow
@pytest.mark.usefixtures("fewer_steps")
@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ("x", doubled("allOf")),
        (1, doubled("anyOf")),
        (nested("x", 60), branching({"anyOf": [BELOW, BELOW]})),
        (nested("x", 60), branching({"oneOf": [BELOW, BELOW]})),
        (nested("x", 60), branching({"allOf": [BELOW, BELOW]})),
        (nested("x", 60), branching({"dependentSchemas": {"a": BELOW}, **BELOW})),
        (nested("x", 60), branching(IN_CONDITIONS)),
        (nested("x", 60), branching({"properties": {"a": NODE}, "patternProperties": {"": NODE}})),
        (nested("x", 60, None), branching({"items": NODE, "contains": NODE})),
        ([{"a": "ab" * 400}] * 2_000, {"items": {"properties": {"a": {"pattern": "(a|b)*a(a|b){400}c"}}}}),  # noqa: E501
        ("ab" * 400_000, {"pattern": "(a|b)*a(a|b){400}c"}),
        ({f"k{n}": n for n in range(6_000)}, {"patternProperties": {f"x{n}": {} for n in range(100)}}),  # noqa: E501
        ([0] * 40_000, {"items": {}}),
    ],
    ids=[
        "doubled allOf", "doubled anyOf", "anyOf", "oneOf", "allOf", "dependentSchemas",
        "conditions", "properties", "contains", "many patterns", "long text", "pattern properties",
        "empty schemas",
    ],
)  # fmt: skip
def test_a_value_that_is_too_costly_to_check_does_not_match(value: Any, schema: Any) -> None:
    before = time.thread_time()
    assert "too costly to check" in str(find_problem(value, schema))
    assert time.thread_time() - before < MAX_S / PART


@pytest.mark.slow
def test_the_limit_of_all_steps_ends_a_validation() -> None:
    before = time.thread_time()
    assert "too costly to check" in str(find_problem([0] * 400_000, {"items": {}}))
    assert time.thread_time() - before < MAX_S


@pytest.mark.slow
def test_messages_that_contain_the_whole_value_do_not_fill_the_memory() -> None:
    schema = {"anyOf": [{"type": "integer"}] * 200}
    tracemalloc.start()
    try:
        assert find_problem("x" * 1_000_000, schema)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000  # bytes: 200 complete messages would take 200 MB


def test_a_problem_of_a_long_value_still_names_the_rule() -> None:
    problem = find_problem({"k" * 1_000: "x" * 1_000}, {"additionalProperties": {"maxLength": 9}})
    assert problem is not None
    assert problem.endswith("is too long")
    assert len(problem) < 700


def test_many_unique_objects_are_checked() -> None:
    schema = {"uniqueItems": True}
    items = [{"a": {"b": [number]}} for number in range(5_000)]
    assert find_problem(items, schema) is None
    assert "non-unique" in str(find_problem([*items, items[7]], schema))


@pytest.mark.parametrize(
    ("items", "is_unique"),
    [
        ([1, True, 0, False, "1", None, "null"], True),
        ([1, 1.0], False),
        ([{"a": 1, "b": 2}, {"b": 2.0, "a": 1}], False),
        ([[1, 2], [2, 1]], True),
        ([-0.0, 0], False),
        ([[True], [1]], True),
        ([0.1, 1e300, 10**400], True),
        ([], True),
    ],
)
def test_unique_items_are_compared_as_json_schema_says(items: list[Any], is_unique: bool) -> None:
    assert (find_problem(items, {"uniqueItems": True}) is None) == is_unique
    assert find_problem(items, {"uniqueItems": False}) is None


def test_a_number_beyond_all_floats_can_be_checked_for_its_divisor() -> None:
    assert find_problem(10**400, {"multipleOf": 0.5}) is None
    assert "not a multiple" in str(find_problem(10**400 + 1, {"multipleOf": 3e10}))
    assert find_problem(0.5, {"multipleOf": 5e-324}) is None


@pytest.mark.slow
def test_a_large_ordinary_value_is_checked() -> None:
    item = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in "abcde"},
        "required": list("abcde"),
        "additionalProperties": False,
    }
    value = [dict.fromkeys("abcde", "text") for _ in range(3_000)]
    assert find_problem(value, {"type": "array", "items": item}) is None


def test_a_value_that_is_nested_too_deeply_does_not_match() -> None:
    problem = find_problem(nested("x", 5_000), branching({"properties": {"a": NODE}}))
    assert problem == "$: nested too deeply to be checked; give a flatter value"
