"""Any schema has a value that is valid and says nothing."""

from __future__ import annotations

import time
from typing import Any

import jsonschema
import pytest
from hypothesis import given

from handoff_queue.shared.providers.offline.schema_placeholders import placeholder
from tests.shared.providers.offline.forms_asked_for import SCHEMAS, TREES, an_object


@pytest.mark.parametrize(
    "schema", SCHEMAS, ids=lambda schema: "-".join(schema.get("properties", schema))[:40]
)
def test_what_stands_for_nothing_is_valid(schema: dict[str, Any]) -> None:
    jsonschema.validate(placeholder(schema), schema, format_checker=jsonschema.FormatChecker())


@given(TREES)
def test_any_schema_of_common_parts_has_one(schema: dict[str, Any]) -> None:
    jsonschema.validate(placeholder(schema), schema)


def test_it_is_the_least_that_is_allowed() -> None:
    form = an_object(
        name={"type": "string"}, count={"type": "integer"}, found={"type": "boolean"}
    ) | {"required": ["name", "count"]}
    assert placeholder(form) == {"name": "unknown", "count": 0}


def test_a_string_that_may_be_anything_is_the_text() -> None:
    assert placeholder(an_object(query={"type": "string"}), text="What is Qdrant?") == {
        "query": "What is Qdrant?"
    }


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(?=x)x"])
def test_no_pattern_takes_long_or_is_too_odd(pattern: str) -> None:
    before = time.process_time()
    assert placeholder({"type": "string", "pattern": pattern}) in ("a", "unknown")
    assert time.process_time() - before < 1
