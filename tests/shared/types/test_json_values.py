from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.handoff import (
    UNREADABLE,
    HandoffResult,
    ResultStatus,
    parse_result,
    parse_result_values,
)
from handoff_queue.shared.types.json_values import MAX_LEVELS, check_storable
from tests.doubles.handoffs import a_result


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        {"a": [float("inf")]},
        10**4_300,
        "\ud800",
        {"\udfff": 1},
        _nested(MAX_LEVELS + 1),
    ],
    ids=["nan", "infinity", "digits", "surrogate", "name", "depth"],
)
def test_a_result_cannot_hold_a_value_that_could_not_be_read_again(value: Any) -> None:
    with pytest.raises(ValueError, match="has "):
        check_storable(value)
    with pytest.raises(ValidationError):
        a_result(output=value)


@pytest.mark.parametrize(
    "value",
    [_nested(MAX_LEVELS), 10**4_300 - 1, 1.7976931348623157e308, "\x00", {"": [None, True]}],
    ids=["depth", "digits", "float", "nul", "rest"],
)
def test_a_stored_result_is_read_again_unchanged(value: Any) -> None:
    result = a_result(output=value)
    assert parse_result(result.to_json()) == result


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '{"status": "ok", "output": NaN}', "[" * 100_000], ids=range(5)
)
def test_a_failed_result_replaces_an_unreadable_text(text: str) -> None:
    with pytest.raises(MalformedMessage):
        HandoffResult.from_json(text)

    result = parse_result(text)

    assert (result.status, result.error) == (ResultStatus.FAILED, UNREADABLE)
    assert parse_result_values(text)["error"] == UNREADABLE


def test_the_replacement_names_the_handoff_of_the_unreadable_text() -> None:
    text = a_result(output="x").to_json().replace('"x"', "NaN")
    assert parse_result(text).handoff_id == "before.1"
