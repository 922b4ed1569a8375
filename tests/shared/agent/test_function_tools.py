from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from handoff_queue.shared.agent.tool import CallContext, ToolFailed, ToolOutput
from handoff_queue.shared.types.errors import InvalidTool
from handoff_queue.shared.types.ids import JobId, build_handoff_id
from tests.doubles.function_tools import tool_from
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
    output = run(arguments, a_tool_context())
    assert isinstance(output, ToolOutput)
    return output.text


def test_the_schema_comes_from_signature_and_docstring() -> None:
    tool = tool_from(add)
    assert (tool.name, tool.description) == ("add", "Add two numbers.")
    assert tool.input_schema["properties"]["a"]["description"] == "the first"
    assert tool.input_schema["required"] == ["a"]


def test_a_decorated_tool_runs() -> None:
    assert ran(add, a=2) == "3"


def test_a_pattern_with_exponential_time_is_refused() -> None:
    def send(to: Annotated[str, Field(json_schema_extra={"pattern": "(?=a)a"})]) -> str:
        """Send it."""
        return to

    with pytest.raises(InvalidTool, match="is not a regular expression of RE2"):
        tool_from(send)


def test_a_non_text_result_is_sent_as_json() -> None:
    def listing(kind: Literal["a", "b"]) -> list[str]:
        """List things."""
        return [kind, "é"]

    assert ran(listing, kind="a") == '["a", "é"]'


def test_arguments_of_a_wrong_type_are_reported_without_their_values() -> None:
    with pytest.raises(ToolFailed) as caught:
        ran(add, a="a secret")
    assert "a: " in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_function_can_be_marked_as_unsafe_to_repeat() -> None:
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


def generated(a: int) -> Iterator[str]:
    """Do."""
    yield str(a)


@pytest.mark.parametrize(
    "function", [no_docstring, no_type, unknown_type, no_json, many, generated, lambda a: a]
)
def test_an_invalid_tool_is_refused_in_one_line(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidTool) as caught:
        tool_from(function)
    assert "\n" not in str(caught.value)


def with_a_parameter_that_the_provider_refuses(größe: int) -> str:  # noqa: PLC2401 - a name as users write it
    """Do."""
    return str(größe)


def with_a_default_that_is_not_json(most: float = math.inf) -> str:
    """Do."""
    return str(most)


def with_an_enum_without_values(kind: Annotated[str, Field(json_schema_extra={"enum": []})]) -> str:
    """Do."""
    return kind


def with_half_a_character(kind: Annotated[str, Field(description="\ud800")]) -> str:
    """Do."""
    return kind


def with_a_schema_that_is_none(
    kind: Annotated[str, Field(json_schema_extra={"type": "text"})],
) -> str:
    """Do."""
    return kind


def with_too_much_to_say(kind: Annotated[str, Field(description="x" * 40_000)]) -> str:
    """Do."""
    return kind


def with_parameters_only(kind: str) -> str:
    """
    Args:
        kind: One.
    """
    return kind


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (with_a_parameter_that_the_provider_refuses, "rename parameter 'größe'"),
        (with_a_default_that_is_not_json, "is not a JSON value"),
        (with_an_enum_without_values, "has an empty enum"),
        (with_half_a_character, "half of a character"),
        (with_a_schema_that_is_none, "is not a JSON Schema"),
        (with_too_much_to_say, "shorten them to 30,000, because each turn sends them"),
        (with_parameters_only, "describe the tool, too"),
    ],
)
def test_a_tool_that_the_provider_would_refuse_is_refused_at_load(
    function: Callable[..., Any], why: str
) -> None:
    with pytest.raises(InvalidTool) as caught:
        tool_from(function, name="f")
    assert str(caught.value).startswith("tool f: ")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "größe", "a b", "a" * 65, "a\n"])
def test_a_name_that_the_provider_refuses_is_refused_at_load(name: str) -> None:
    def function() -> str:
        """Do."""
        return ""

    function.__name__ = name
    with pytest.raises(InvalidTool, match="give it a plain function name"):
        tool_from(function)


def pay(amount: int, context: CallContext) -> str:
    """Pay.

    Args:
        amount: In cents.
        context: The call.
    """
    return f"{amount} {context.idempotency_key}"


def tells(context: CallContext | None = None, *, more: int = 1) -> list[object]:
    """Tell of the call."""
    assert context is not None
    return [context.tenant, context.job_id, context.handoff_id, context.step_id, context.attempt]


def test_the_model_does_not_see_the_parameter_that_the_worker_fills_in() -> None:
    tool = tool_from(pay)

    assert list(tool.input_schema["properties"]) == tool.input_schema["required"] == ["amount"]
    assert "CallContext" not in json.dumps(tool.input_schema)
    with pytest.raises(ToolFailed):
        ran(pay, amount=1, context={"tenant": "mine"})


def test_a_tool_knows_the_handoff_it_serves() -> None:
    context = replace(a_tool_context(), tenant=lambda: "acme")
    run = tool_from(tells).run
    assert run is not None

    output = run({"more": 2}, context)

    assert isinstance(output, ToolOutput)
    assert json.loads(output.text) == ["acme", context.job_id, "find.1", "find", 1]


def test_the_deadline_of_a_call_is_the_deadline_of_its_handoff() -> None:
    def left(context: CallContext) -> float:
        """Return the remaining seconds."""
        return (context.deadline - datetime.now(UTC)).total_seconds()

    assert 0 < float(ran(left)) <= 60


def key_of(call_id: str, **changes: Any) -> str:
    run = tool_from(pay).run
    assert run is not None
    context = replace(a_tool_context(), call_id=call_id, **changes)
    output = run({"amount": 5}, context)
    assert isinstance(output, ToolOutput)
    return output.text


def test_the_key_of_a_call_is_unique_and_the_same_in_each_run() -> None:
    assert key_of("t1") == key_of("t1")
    assert key_of("t1") != key_of("t2")
    assert key_of("t1") != key_of("t1", handoff_id=build_handoff_id("find", 2))
    assert key_of("t1") != key_of("t1", job_id=JobId("j-0123456789ac"))


def test_an_untyped_parameter_called_context_is_refused_with_its_type() -> None:
    def f(context) -> str:  # type: ignore[no-untyped-def]
        """Do."""
        return str(context)

    with pytest.raises(InvalidTool, match=r"needs a type \(CallContext.*: write one, such as"):
        tool_from(f)
