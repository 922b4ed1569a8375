"""A condition is checked before it is stored, and evaluated without running code."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.types.condition_evaluator import Undecided, evaluate_condition
from handoff_queue.shared.types.condition_syntax import (
    MAX_CHARS,
    InvalidCondition,
    When,
    find_problem,
    parse_condition,
)

TRIAGE: dict[str, Any] = {
    "status": "ok",
    "confidence": 0.9,
    "output": {
        "category": "refund",
        "amount": 120.5,
        "urgent": False,
        "note": None,
        "tags": ["late", "cable"],
        "Order no.": "A-1042",
        "lines": [{"sku": "x"}],
    },
}
ROW = {"amount": "250", "country": "CH", "Order no.": "A-1042", "empty": ""}


def is_met(text: str, item: Any = ROW, output: Any = None) -> bool:
    triage = TRIAGE if output is None else {**TRIAGE, "output": output}
    return evaluate_condition(
        parse_condition(text), {"triage": triage, "look-up": triage}, item
    ).is_met


@pytest.mark.parametrize(
    "text",
    [
        'triage.output.category == "refund"',
        "triage.output.category != 'complaint' and triage.output.amount <= 500",
        "100 < triage.output.amount < 500",
        'triage.output.category in ["refund", "return"]',
        'triage.output.category in ("refund", "return")',
        'triage.output.category not in ["complaint"]',
        '"late" in triage.output.tags',
        '"category" in triage.output and "colour" not in triage.output',
        '"fund" in triage.output.category',
        "len(triage.output.tags) == 2",
        "not triage.output.urgent",
        "triage.output.urgent == false or triage.output.urgent == False",
        "triage.output.note == null",
        'triage.status == "ok" and triage.confidence >= 0.5',
        'triage.output["Order no."] == "A-1042"',
        'triage.output.lines[0].sku == "x" and triage.output.lines[-1].sku == "x"',
        'steps["look-up"].output.category == "refund"',
        "item.amount > 200",
        'item["Order no."] == triage.output["Order no."]',
        'item.country in ["CH", "DE"]',
        "-1 < triage.output.amount",
        'triage.output.category == "refund" or triage.output.missing == 1',
    ],
)
def test_a_condition_that_is_met(text: str) -> None:
    assert is_met(text)


@pytest.mark.parametrize(
    "text",
    [
        'triage.output.category == "complaint"',
        "triage.output.urgent",
        "item.amount > 1000",
        'item.amount == "250.0"',
        "triage.output.urgent == 0",
        'item.country == 5 or item.empty == 0 or item.empty != ""',
        'triage.output.category == "x" and triage.output.missing == 1',
        "100 < triage.output.amount < 110",
    ],
)
def test_a_condition_that_is_not_met(text: str) -> None:
    assert not is_met(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "triage.output.colour == 1",
            "triage.output has no field 'colour' (known: category, amount,",
        ),
        ("triage.output.category", 'triage.output.category is "refund", not true or false'),
        ("triage.output.category.x == 1", "triage.output.category is \"refund\", which has no 'x'"),
        ("triage.output.category > 5", "neither is the greater"),
        ("triage.output.note > 5", "triage.output.note is null"),
        ("triage.output.tags == 1", "compare one of its fields, or its len()"),
        ("triage.output.tags[7] == 1", "triage.output.tags has 2 items, and none at 7"),
        ("len(triage.output.amount) == 1", "triage.output.amount is 120.5, which has no length"),
        ("1 in triage.output.category", "triage.output.category is a text"),
        ("1 in triage.output.amount", "which holds nothing"),
        ("not triage.output.amount", "not true or false"),
    ],
)
def test_a_result_that_does_not_decide_a_condition_is_named(text: str, why: str) -> None:
    with pytest.raises(Undecided) as undecided:
        is_met(text)

    assert why in str(undecided.value)
    assert "\n" not in str(undecided.value)


def test_an_output_that_is_text_has_no_fields() -> None:
    with pytest.raises(Undecided, match="which has no 'category'"):
        is_met('triage.output.category == "refund"', output="A refund.")


def test_a_reason_names_the_condition_and_the_values_that_decided_it() -> None:
    text = 'triage.output.category == "complaint" and triage.output.amount > 5'
    verdict = evaluate_condition(parse_condition(text), {"triage": TRIAGE})

    assert verdict.why == (
        'its condition is not met: triage.output.category == "complaint" and'
        ' triage.output.amount > 5 (triage.output.category is "refund")'
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is not an expression"),
        ("triage.output.x ==", "it is not an expression"),
        ("1 == 1", "it uses no step and no item"),
        ("true", "it uses no step and no item"),
        ("triage == 1", "triage is a step; write triage.output or .status"),
        ("triage.category == 1", "a step has output, status, confidence; write triage.output"),
        ("triage.output.x = 1", "it is not an expression"),
        ("triage.output.x is None", "write == or !="),
        ("triage.output.__class__ == 1", "no field begins with _"),
        ("triage.output['x'].__class__ == 1", "no field begins with _"),
        ("triage.output.x() == 1", "only len(x) can be called"),
        ("open('/etc/passwd') == triage.output", "only len(x) can be called"),
        ("len(triage.output.x, 1) == 1", "only len(x) can be called"),
        ("len(*triage.output.x) == 1", "no condition may have"),
        ("triage.output.x + 1 == 2", "it calculates"),
        ("look-up.output.x == 2", 'steps["look-up"].output'),
        ("9 ** 9 ** 9 == triage.output.x", "it calculates"),
        ("[y for y in triage.output.x] == []", "no condition may have"),
        ("(lambda: 1)() == triage.output.x", "only len(x) can be called"),
        ("triage.output.x if True else False", "no condition may have"),
        ("(y := triage.output.x) == 1", "no condition may have"),
        ("f'{triage.output.x}' == 'x'", "no condition may have"),
        ("triage.output.x[1:2] == 1", "needs a name or a number in []"),
        ("triage.output.x[y] == 1", "needs a name or a number in []"),
        ("{'a': triage.output.x} == 1", "no condition may have"),
        ("b'x' == triage.output.x", "is not a text, a number, true, false or null"),
        ("1j == triage.output.x", "a number with letters"),
        ("triage.output.x == '\\x41'", "a backslash"),
        ("1or triage.output.x", "a number with letters"),
        ("steps == 1", "steps is not a value"),
        (f"triage.output.x == '{'x' * MAX_CHARS}'", "more than 1,000 characters"),
        ("(" * 300 + "triage.output.x" + ")" * 300, "it is not an expression"),
        ("not " * 240 + "triage.output.x", "it has more than 200 parts"),
        ("triage.output.x\x00", "it is not an expression"),
        ("await triage.output.x", "no condition may have"),
    ],
)
def test_an_invalid_condition_is_refused_in_one_line(text: str, why: str) -> None:
    with pytest.raises(InvalidCondition) as refused:
        parse_condition(text)

    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


@given(st.text(max_size=60) | st.from_regex(r"[a-z.()\[\]\"' =<>!0-9-]{0,40}", fullmatch=True))
def test_any_text_is_a_condition_or_is_refused(text: str) -> None:
    try:
        condition = parse_condition(text)
    except InvalidCondition:
        return
    fields: dict[str, Any] = {"output": {}, "status": "ok", "confidence": 1.0}
    steps = dict.fromkeys(condition.steps, fields)
    try:
        decided = evaluate_condition(condition, steps, {"x": "1"})
    except Undecided:
        return
    assert "\n" not in decided.why


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists))
def test_any_output_decides_a_condition_or_is_named(value: Any) -> None:
    output = json.loads(json.dumps({"x": value}))
    try:
        verdict = is_met("triage.output.x > 3 or 'y' in triage.output.x", output=output)
    except Undecided:
        verdict = False

    assert verdict in (True, False)


def test_names_that_a_condition_uses_are_known() -> None:
    condition = parse_condition('a.output.x == 1 and steps["b-c"].status == "ok" and item.d == "1"')

    assert (condition.steps, condition.columns) == (("a", "b-c"), ("d",))
    assert (condition.has_item, condition.has_whole_item) == (True, False)
    assert parse_condition('"x" in item').has_whole_item


@pytest.mark.parametrize(
    ("when", "problem"),
    [
        ({"text": "a.output.x == 1"}, "it names a, which its `steps` do not have"),
        ({"text": "item == 'x'"}, "it names item, and the step is not repeated"),
        ({"text": "item.a == 'x'", "item": {"b": "x"}}, "it names item.a, which its `item`"),
        ({"text": "import os"}, "it is not an expression"),
    ],
)
def test_a_condition_of_a_plan_that_a_person_wrote_is_checked(
    when: dict[str, Any], problem: str
) -> None:
    assert problem in (find_problem(When.model_validate(when)) or "")
