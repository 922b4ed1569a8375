"""Any schema is filled with what claims say, and always validly."""

from __future__ import annotations

import json
import time
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.agent.offline.schema_filler import fill
from shared.agent.offline.statements import markers_in
from tests.shared.agent.offline.asking_the_model import EXAMPLES, Library, ask, envelope_schema, work

FACTS = ["Qdrant is released under the Apache License 2.0.", "pgvector has up to 16,000 dimensions.", "Milvus is written in Go and C++."]


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


SCHEMAS: list[dict[str, Any]] = [
    _object(title={"type": "string"}, points={"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 3}),
    _object(winner={"enum": ["Weaviate", "Milvus"]}, dimensions={"type": "integer", "minimum": 1}, sure={"type": "boolean"}),
    _object(rows={"type": "array", "items": _object(name={"type": "string", "maxLength": 12}, note={"type": ["string", "null"]})}),
    _object(share={"type": "number", "exclusiveMinimum": 0, "maximum": 1}, day={"type": "string", "format": "date"}),
    _object(tags={"type": "array", "uniqueItems": True, "minItems": 3, "items": {"enum": ["a", "b", "c", "d"]}}),
    _object(code={"type": "string", "pattern": "^[A-Z][a-z]+$"}, kind={"const": "report"}),
    {
        "$defs": {"node": _object(name={"type": "string"}, child={"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]})},
        "$ref": "#/$defs/node",
    },
    {"oneOf": [{"type": "string", "maxLength": 5}, {"type": "array", "items": {"type": "integer"}}]},
    {
        "allOf": [
            _object(a={"type": "string"}) | {"additionalProperties": True},
            {"properties": {"b": {"type": "integer"}}, "required": ["b"]},
        ]
    },
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False, "minItems": 2},
    {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: "-".join(schema.get("properties", schema))[:40])
@pytest.mark.parametrize("facts", [FACTS, []], ids=["with facts", "without"])
def test_what_is_filled_in_is_valid(schema: dict[str, Any], facts: list[str]) -> None:
    jsonschema.validate(fill(schema, facts), schema, format_checker=jsonschema.FormatChecker())


def test_values_are_taken_from_what_the_claims_say() -> None:
    schema = _object(winner={"enum": ["Weaviate", "Milvus"]}, dimensions={"type": "integer"}, licence={"type": "string"})
    licence = "Qdrant is released under the Apache License 2.0."
    facts = [licence.replace("License", "Licence"), *FACTS[1:]]
    assert fill(schema, facts) == {"winner": "Milvus", "dimensions": 16_000, "licence": facts[0]}


def test_without_facts_nothing_is_made_up() -> None:
    assert fill(_object(name={"type": "string"}, count={"type": "integer"}, found={"type": "boolean"})) == {
        "name": "unknown",
        "count": 0,
        "found": False,
    }


def test_an_answer_schema_of_the_user_is_filled_from_the_documents() -> None:
    wanted = _object(summary={"type": "string"}, licence={"type": "string"}, facts={"type": "array", "items": {"type": "string"}})
    answer = work("<task>Research Qdrant with regard to licence.</task>", Library.of(EXAMPLES), schema=envelope_schema(wanted))
    jsonschema.validate(answer["output"], wanted)
    assert "Apache" in answer["output"]["licence"]
    assert markers_in(answer["output"]["licence"]) <= {claim["id"] for claim in answer["claims"]}
    assert all(markers_in(fact) for fact in answer["output"]["facts"])


def test_a_schema_that_comes_in_words_is_obeyed_too() -> None:
    schema = _object(answer={"type": "string"}, score={"type": "integer", "minimum": 3})
    said = (
        f"Be brief. Your final answer is one JSON value and nothing else. It matches this JSON Schema: {__import__('json').dumps(schema)}"
    )
    jsonschema.validate(json.loads(ask("What is Qdrant?", system=said)), schema)


LEAVES = st.one_of(
    st.just({"type": "string"}),
    st.builds(lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more}, st.integers(0, 20), st.integers(0, 20)),
    st.builds(lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more}, st.integers(-9, 9), st.integers(0, 9)),
    st.builds(lambda low: {"type": "number", "exclusiveMinimum": low}, st.integers(-9, 9)),
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.builds(lambda values: {"enum": values}, st.lists(st.text(max_size=5), min_size=1, max_size=4, unique=True)),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda item, least: {"type": "array", "items": item, "minItems": least}, inner, st.integers(0, 3)),
        st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(
            lambda properties: _object(**properties), st.dictionaries(st.sampled_from(["name", "licence", "count"]), inner, max_size=3)
        ),
    ),
    max_leaves=12,
)


@given(TREES, st.sampled_from([FACTS, FACTS[:1], []]))
def test_any_schema_of_common_parts_is_filled_validly(schema: dict[str, Any], facts: list[str]) -> None:
    jsonschema.validate(fill(schema, facts), schema)


def test_no_pattern_takes_long() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}, "required": ["a"]}
    before = time.process_time()
    assert fill(schema, ["a" * 200 + "b"]) == {"a": "a"}
    assert time.process_time() - before < 1


def test_a_pattern_that_re2_does_not_take_is_filled_all_the_same() -> None:
    assert fill({"type": "string", "pattern": "(?=x)x"}) == "unknown"
