"""An empty form is not an answer. A short answer is an answer."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import JsonValue

from handoff_queue.shared.agent.empty_outputs import is_empty_form

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "The product's name"},
        "kind": {"enum": ["array", "number", ""]},
        "price": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}


@pytest.mark.parametrize(
    "output",
    [
        {"name": ""},
        {"name": " \n", "price": 0, "tags": []},
        {"name": "string", "price": 0.0},
        {"name": "the product's  name", "price": None},
        {"name": "Name", "tags": ["...", "tags"]},
        [{"name": ""}, {"name": "string", "sold": False}],
    ],
)
def test_blanks_and_words_of_the_schema_are_not_content(output: JsonValue) -> None:
    assert is_empty_form(output, FORM)


@pytest.mark.parametrize(
    "output",
    [
        {"name": "Qdrant"},
        {"name": "", "price": 9.5},
        {"name": "", "sold": True},
        {"kind": "array"},
        {"tags": []},
        {"price": 0},
        {"price": None},
        [],
        {},
        "name",
        0,
        None,
    ],
)
def test_one_word_a_figure_a_choice_or_a_form_without_texts_is_content(output: JsonValue) -> None:
    assert not is_empty_form(output, FORM)


def test_a_broken_schema_contributes_no_words() -> None:
    assert not is_empty_form({"a": "b"}, {"type": ["object", 7], "properties": [1], "enum": 3})
