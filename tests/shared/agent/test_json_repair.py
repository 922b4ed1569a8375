from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.agent.json_repair import (
    describe_text,
    find_draft,
    find_json_object,
    parse_partial_object,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), values, max_size=4)


@given(objects)
def test_a_bare_object_is_itself(value: dict[str, object]) -> None:
    assert find_json_object(json.dumps(value)) == value


@given(objects)
def test_an_object_in_a_code_fence_within_prose_is_found(value: dict[str, object]) -> None:
    assert (
        find_json_object(f"Here you are:\n```json\n{json.dumps(value, indent=1)}\n```\nEnjoy.")
        == value
    )


def test_the_largest_object_within_prose_is_used() -> None:
    assert find_json_object(
        'As {"a": 1} shows, the answer is {"output": "x", "claims": []}. Good.'
    ) == {"output": "x", "claims": []}


@pytest.mark.parametrize(
    "text", ["", "no json", "[1, 2]", "{", '{"a": NaN}', "{" * 100_000, '{"a":' * 50_000]
)
def test_a_text_without_an_object_is_none(text: str) -> None:
    assert find_json_object(text) is None


def test_a_lone_surrogate_becomes_something_that_can_be_stored() -> None:
    value = find_json_object('{"a": "\\ud800"}')
    assert json.dumps(value, ensure_ascii=False).encode()


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    parsed = find_json_object(text)

    assert parsed is None or isinstance(json.dumps(parsed), str)
    assert find_draft(text) in ("", (parse_partial_object(text) or {}).get("output"))


@given(st.text(min_size=1), st.integers(0, 200))
def test_the_draft_of_a_cut_envelope_is_a_beginning_of_its_output(output: str, cut: int) -> None:
    text = json.dumps({"status": "ok", "output": output})
    draft = find_draft(text[: min(cut, len(text))])
    assert output.startswith(draft)


def test_a_truncated_object_keeps_its_complete_parts() -> None:
    assert parse_partial_object('{"status": "ok", "output": "It is') == {
        "status": "ok",
        "output": "It is",
    }


def test_an_object_inside_a_truncated_object_is_not_the_answer() -> None:
    assert find_json_object('{"output": "x", "claims": [{"id": "c1"}, {"id": ') is None
    assert find_json_object('```json\n{"output": "x", "claims": [{"id": "c1"}') is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("I would rather not.", "plain text (19 characters)"),
        ('{"output": "It is', "JSON that is broken or cut off"),
        ('```json\n{"output": ', "JSON that is broken or cut off"),
        ("[1, 2]", "a JSON list"),
        ("```json\n[1]\n```", "a JSON list"),
        ('"done"', "a JSON value that is not an object"),
        ('{"output": NaN}', "JSON that cannot be stored (NaN is not a number in JSON)"),
        (
            '{"output": 1e' + "9" * 100 + "}",
            "JSON that cannot be stored (1e999999999999999999 is not a number in JSON)",
        ),
        (
            '{"output": ' + "[" * 101 + "]" * 101 + "}",
            "JSON that cannot be stored (has more than 100 levels of lists and objects)",
        ),
    ],
)
def test_a_value_in_place_of_an_object_is_named_and_not_quoted(text: str, message: str) -> None:
    assert describe_text(text) == message


MISTAKES = [
    ('{"output": "two\nlines\tand a tab"}', "two\nlines\tand a tab"),
    ('{"output": "a\r\nb\x00\x1f"}', "a\r\nb\x00\x1f"),
    (r'{"output": "C:\dir and \d+ and \(x\)"}', r"C:\dir and \d+ and \(x\)"),
    (r'{"output": "half \u12 an escape"}', r"half \u12 an escape"),
    (r'{"output": "a\\ whole \" one \n"}', 'a\\ whole " one \n'),
    (r'{"output": "C:\dir\", "claims": [], "path": "\\host\"}', "C:\\dir\\"),
    ('{"output": "x,}", "claims": [1, 2,], }', "x,}"),
]
WRAPPINGS = [
    "{}",
    "```json\n{}\n```",
    "Here it is: {} I hope it helps.",
    "```\n{}",
    "Well:\n```json\n{}\n```\nDone.",
]


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize(("text", "output"), MISTAKES)
def test_the_usual_mistakes_of_models_are_repaired(text: str, output: str, wrapping: str) -> None:
    value = find_json_object(wrapping.replace("{}", text))
    assert value is not None
    assert value["output"] == output


@given(st.dictionaries(st.text(), st.text(), min_size=1, max_size=4), st.sampled_from(WRAPPINGS))
def test_raw_characters_and_trailing_commas_change_no_value(
    value: dict[str, str], wrapping: str
) -> None:
    def written(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    pairs = ",\n".join(f"{written(name)}: {written(text)}" for name, text in value.items())
    whole = "".join(value) + "".join(value.values())
    if "```" not in whole and not any("\ud800" <= letter <= "\udfff" for letter in whole):
        assert find_json_object(wrapping.replace("{}", f"{{{pairs},}}", 1)) == value


def test_code_fences_inside_the_answer_are_kept() -> None:
    text = '```json\n{"output": "Run:\n```python\nprint({})\n```\nDone."}\n```'
    assert find_json_object(text) == {"output": "Run:\n```python\nprint({})\n```\nDone."}


def test_an_object_that_is_cut_off_is_not_closed_by_a_repair() -> None:
    text = '{"output": "two\nlines", "claims": [{"id": "c1"},'
    assert find_json_object(text) is None
    assert parse_partial_object(text) == {"output": "two\nlines", "claims": [{"id": "c1"}]}


@pytest.mark.slow
def test_a_text_of_broken_objects_is_read_in_a_time_linear_in_its_length() -> None:
    """Four times the length would take 16 times as long in a quadratic search."""
    assert seconds_for_broken_objects(8_000) < 8 * seconds_for_broken_objects(2_000)


def seconds_for_broken_objects(objects: int) -> float:
    """Return the lowest processor time of two runs."""
    took = []
    for _ in range(2):
        began = time.thread_time()
        assert find_json_object('x {"a": \\' * objects) is None
        took.append(time.thread_time() - began)
    return min(took)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "1" * 5_000])
def test_the_readable_part_of_an_object_holds_no_number_that_cannot_be_stored(number: str) -> None:
    assert parse_partial_object(f'{{"output": [{number}], "claims": [') is None
