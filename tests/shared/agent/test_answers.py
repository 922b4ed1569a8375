from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.agent.answers import draft_in, json_object_in, partial_object_in, what_came

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), values, max_size=4)


@given(objects)
def test_a_bare_object_is_itself(value: dict[str, object]) -> None:
    assert json_object_in(json.dumps(value)) == value


@given(objects)
def test_a_fenced_object_amid_prose_is_found(value: dict[str, object]) -> None:
    assert (
        json_object_in(f"Here you are:\n```json\n{json.dumps(value, indent=1)}\n```\nEnjoy.")
        == value
    )


def test_the_largest_object_amid_prose_is_taken() -> None:
    assert json_object_in(
        'As {"a": 1} shows, the answer is {"output": "x", "claims": []}. Good.'
    ) == {"output": "x", "claims": []}


@pytest.mark.parametrize(
    "text", ["", "no json", "[1, 2]", "{", '{"a": NaN}', "{" * 100_000, '{"a":' * 50_000]
)
def test_what_is_no_object_is_none(text: str) -> None:
    assert json_object_in(text) is None


def test_a_lone_surrogate_becomes_something_that_can_be_stored() -> None:
    value = json_object_in('{"a": "\\ud800"}')
    assert json.dumps(value, ensure_ascii=False).encode()


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    json_object_in(text)
    partial_object_in(text)
    draft_in(text)


@given(st.text(min_size=1), st.integers(0, 200))
def test_the_draft_of_a_cut_envelope_is_a_beginning_of_its_output(output: str, cut: int) -> None:
    text = json.dumps({"status": "ok", "output": output})
    draft = draft_in(text[: min(cut, len(text))])
    assert output.startswith(draft)


def test_a_cut_object_keeps_what_there_is() -> None:
    assert partial_object_in('{"status": "ok", "output": "It is') == {
        "status": "ok",
        "output": "It is",
    }


def test_what_stands_inside_an_object_that_was_cut_off_is_not_the_answer() -> None:
    assert json_object_in('{"output": "x", "claims": [{"id": "c1"}, {"id": ') is None
    assert json_object_in('```json\n{"output": "x", "claims": [{"id": "c1"}') is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("I would rather not.", "plain text (19 characters)"),
        ('{"output": "It is', "JSON that is broken or cut off"),
        ('```json\n{"output": ', "JSON that is broken or cut off"),
        ("[1, 2]", "a JSON list"),
        ("```json\n[1]\n```", "a JSON list"),
        ('"done"', "a JSON value that is no object"),
    ],
)
def test_what_came_instead_of_an_object_is_named_and_not_quoted(text: str, said: str) -> None:
    assert what_came(text) == said
