"""JSON Schemas of common kinds: a fixed list and a strategy."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st


def object_schema(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


SCHEMAS: list[dict[str, Any]] = [
    object_schema(
        title={"type": "string"},
        points={"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 3},
    ),
    object_schema(
        winner={"enum": ["Weaviate", "Milvus"]},
        dimensions={"type": "integer", "minimum": 1},
        sure={"type": "boolean"},
    ),
    object_schema(
        rows={
            "type": "array",
            "items": object_schema(
                name={"type": "string", "maxLength": 12}, note={"type": ["string", "null"]}
            ),
        }
    ),
    object_schema(
        share={"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        day={"type": "string", "format": "date"},
    ),
    object_schema(
        tags={
            "type": "array",
            "uniqueItems": True,
            "minItems": 3,
            "items": {"enum": ["a", "b", "c", "d"]},
        }
    ),
    object_schema(code={"type": "string", "pattern": "^[A-Z][a-z]+$"}, kind={"const": "report"}),
    {
        "$defs": {
            "node": object_schema(
                name={"type": "string"},
                child={"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            )
        },
        "$ref": "#/$defs/node",
    },
    {
        "oneOf": [
            {"type": "string", "maxLength": 5},
            {"type": "array", "items": {"type": "integer"}},
        ]
    },
    {
        "allOf": [
            object_schema(a={"type": "string"}) | {"additionalProperties": True},
            {"properties": {"b": {"type": "integer"}}, "required": ["b"]},
        ]
    },
    {
        "type": "array",
        "prefixItems": [{"type": "string"}, {"type": "integer"}],
        "items": False,
        "minItems": 2,
    },
    {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2},
]


LEAVES = st.one_of(
    st.just({"type": "string"}),
    st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more},
        st.integers(0, 20),
        st.integers(0, 20),
    ),
    st.builds(
        lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more},
        st.integers(-9, 9),
        st.integers(0, 9),
    ),
    st.builds(lambda low: {"type": "number", "exclusiveMinimum": low}, st.integers(-9, 9)),
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.builds(
        lambda values: {"enum": values},
        st.lists(st.text(max_size=5), min_size=1, max_size=4, unique=True),
    ),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(
            lambda item, least: {"type": "array", "items": item, "minItems": least},
            inner,
            st.integers(0, 3),
        ),
        st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(
            lambda properties: object_schema(**properties),
            st.dictionaries(st.sampled_from(["name", "licence", "count"]), inner, max_size=3),
        ),
    ),
    max_leaves=12,
)
