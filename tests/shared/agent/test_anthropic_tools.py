from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from shared.agent.anthropic_tools import tool_from
from shared.agent.tool import ToolFailed
from shared.wire.errors import InvalidTool
from tests.doubles.handoffs import a_tool_context


def add(a: int, b: int = 1) -> str:
    """Add two numbers.

    Args:
        a: the first
        b: the second
    """
    return str(a + b)


def ran(function: Callable[..., Any], **arguments: Any) -> str:
    run = tool_from(function).run
    assert run is not None
    return run(arguments, a_tool_context())


def test_the_schema_comes_from_signature_and_docstring() -> None:
    tool = tool_from(add)
    assert (tool.name, tool.description) == ("add", "Add two numbers.")
    assert tool.input_schema["properties"]["a"]["description"] == "the first"
    assert tool.input_schema["required"] == ["a"]


def test_it_runs() -> None:
    assert ran(add, a=2) == "3"


def test_a_pattern_that_could_take_for_ever_is_refused() -> None:
    def send(to: Annotated[str, Field(json_schema_extra={"pattern": "(?=a)a"})]) -> str:
        """Send it."""
        return to

    with pytest.raises(InvalidTool, match="is not one of RE2's"):
        tool_from(send)


def test_what_is_not_text_is_sent_as_json() -> None:
    def listing(kind: Literal["a", "b"]) -> list[str]:
        """List things."""
        return [kind, "é"]

    assert ran(listing, kind="a") == '["a", "é"]'


def test_arguments_of_a_wrong_type_are_told_without_their_values() -> None:
    with pytest.raises(ToolFailed) as caught:
        ran(add, a="a secret")
    assert "a: " in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_function_can_say_that_it_must_not_run_twice() -> None:
    def pay(amount: int) -> str:
        """Pay."""
        return str(amount)

    assert tool_from(pay).repeatable is True
    pay.repeatable = False  # type: ignore[attr-defined]
    assert tool_from(pay).repeatable is False


def no_docstring(a: int) -> str:
    return str(a)


def no_type(a) -> str:  # type: ignore[no-untyped-def]
    """Do."""
    return str(a)


def unknown_type(a: Nowhere) -> str:  # type: ignore[name-defined]  # noqa: F821
    """Do."""
    return str(a)


def no_json(a: Callable[[], int]) -> str:
    """Do."""
    return str(a)


def many(*a: int) -> str:
    """Do."""
    return str(a)


async def later(a: int) -> str:
    """Do."""
    return str(a)


@pytest.mark.parametrize(
    "function", [no_docstring, no_type, unknown_type, no_json, many, later, lambda a: a]
)
def test_what_cannot_be_a_tool_is_refused_in_one_line(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidTool) as caught:
        tool_from(function)
    assert "\n" not in str(caught.value)
