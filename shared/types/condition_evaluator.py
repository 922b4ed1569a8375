"""Evaluates conditions of steps over the results of earlier steps. The text never runs as code."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pydantic import JsonValue

from handoff_queue.shared.types.condition_syntax import (
    ITEM,
    LITERALS,
    Condition,
    describe_node,
    find_step_name,
    get_index,
    is_name,
)

_MAX_VALUES = 3
"""Most values that a reason names."""
_VALUE_CHARS = 60
"""Most characters of a value in a message, and of a text that is compared as a number."""
_NUMBER = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)\s*")
_ORDERS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class Undecided(Exception):
    """The results do not decide the condition: a field is missing, or cannot be compared."""


@dataclass(frozen=True, slots=True)
class ConditionOutcome:
    """The outcome of a condition, and the reason in one line."""

    is_met: bool
    why: str


def evaluate_condition(
    condition: Condition,
    steps: Mapping[str, Mapping[str, JsonValue]],
    item: JsonValue = None,
) -> ConditionOutcome:
    """Evaluate a condition.

    Args:
        steps: the `FIELDS` of each step that the condition names.
        item: item of a repeated step.

    Raises:
        Undecided: a field is missing, or a value cannot be compared. The message names it.
    """
    evaluation = _Evaluation(steps, item)
    is_met = evaluation.evaluate_truth(condition.tree)
    read_values: list[str] = []
    for path, value in evaluation.deciding_values.items():
        read_values.append(f"{path} is {show_value(value)}")
    values = ""
    if read_values:
        values = f" ({'; '.join(read_values[:_MAX_VALUES])})"
    outcome = "is not met"
    if is_met:
        outcome = "is met"
    return ConditionOutcome(
        is_met, f"its condition {outcome}: {' '.join(condition.text.split())}{values}"
    )


def show_value(value: JsonValue) -> str:
    """Return a value as JSON for a message, cut to `_VALUE_CHARS` characters."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= _VALUE_CHARS:
        return text
    return f"{text[:_VALUE_CHARS]}..."


@dataclass(slots=True)
class _Evaluation:
    """One evaluation of a condition."""

    steps: Mapping[str, Mapping[str, JsonValue]]
    item: JsonValue
    deciding_values: dict[str, JsonValue] = field(default_factory=dict)
    """Values that decided the condition, by their text in the condition."""

    def evaluate_truth(self, node: ast.expr) -> bool:
        """Return the value of a node that is true or false.

        Raises:
            Undecided: the value is something else.
        """
        value = self.evaluate(node)
        if not isinstance(value, bool):
            raise Undecided(f"{describe_node(node)} is {show_value(value)}, not true or false")
        return value

    def evaluate(self, node: ast.expr) -> Any:  # noqa: PLR0911 (one case a node)
        """Return the value of a node."""
        match node:
            case ast.BoolOp(op=ast.And()):
                return all(map(self.evaluate_truth, node.values))
            case ast.BoolOp():
                return any(map(self.evaluate_truth, node.values))
            case ast.UnaryOp(op=ast.Not()):
                return not self.evaluate_truth(node.operand)
            case ast.UnaryOp():
                return self._evaluate_negative(node)
            case ast.Compare():
                return self._evaluate_comparison(node)
            case ast.Call():
                return self._evaluate_length(node.args[0])
            case ast.List() | ast.Tuple():
                return list(map(self.evaluate, node.elts))
            case ast.Constant():
                return node.value
            case ast.Name() if node.id in LITERALS:
                return LITERALS[node.id]
            case _:
                return self._look_up(node)

    def _evaluate_negative(self, node: ast.UnaryOp) -> float:
        value = self.evaluate(node.operand)
        if not _is_number(value):
            raise Undecided(f"{describe_node(node)} is not a number")
        return -float(value)

    def _evaluate_length(self, node: ast.expr) -> int:
        value = self.evaluate(node)
        if not isinstance(value, str | list | dict):
            raise Undecided(f"{describe_node(node)} is {show_value(value)}, which has no length")
        return len(value)

    def _look_up(self, node: ast.expr) -> JsonValue:
        """Return the value of `a.output.b`, `a.output["b"]`, `item` or `item.b`."""
        value = self._evaluate_access(node)
        if not isinstance(value, list | dict):
            self.deciding_values[describe_node(node)] = value
        return value

    def _evaluate_access(self, node: ast.expr) -> JsonValue:
        if is_name(node, ITEM):
            return self.item
        if isinstance(node, ast.Attribute):
            step = find_step_name(node.value)
            if step is not None:
                return self.steps[step][node.attr]
            return _get_part(
                self._evaluate_access(node.value), node.attr, describe_node(node.value)
            )
        if isinstance(node, ast.Subscript):
            return _get_part(
                self._evaluate_access(node.value), get_index(node), describe_node(node.value)
            )
        value: JsonValue = self.evaluate(node)
        return value

    def _evaluate_comparison(self, node: ast.Compare) -> bool:
        """Return whether a comparison is true, also a chain such as `1 < x < 5`."""
        left = self._evaluate_operand(node.left)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self._evaluate_operand(right_node)
            if not _holds(op, left, right):
                return False
            left = right
        return True

    def _evaluate_operand(self, node: ast.expr) -> _Operand:
        return _Operand(self.evaluate(node), describe_node(node))


class _Operand(NamedTuple):
    """One side of a comparison."""

    value: Any
    text: str
    """Its text in the condition, for errors."""

    def __str__(self) -> str:
        return f"{self.text} is {show_value(self.value)}"


def _get_part(value: JsonValue, key: str | int, path: str) -> JsonValue:
    """Return a field of an object, or an item of a list.

    Raises:
        Undecided: the value at `path` has no such field or item.
    """
    if isinstance(value, dict) and isinstance(key, str):
        if key in value:
            return value[key]
        names = ", ".join(map(str, value)) or "none"
        raise Undecided(f"{path} has no field {key!r:.60} (known: {names:.200})")
    if isinstance(value, list) and isinstance(key, int):
        if -len(value) <= key < len(value):
            return value[key]
        raise Undecided(f"{path} has {len(value)} items, and none at {key}")
    raise Undecided(f"{path} is {show_value(value)}, which has no {key!r:.60}")


def _holds(op: ast.cmpop, left: _Operand, right: _Operand) -> bool:
    """Return whether a comparison is true."""
    if isinstance(op, ast.In | ast.NotIn):
        return _is_in(left, right) is isinstance(op, ast.In)
    if isinstance(op, ast.Eq | ast.NotEq):
        return _are_equal(left, right) is isinstance(op, ast.Eq)
    first, second = _make_orderable(left, right)
    return bool(_ORDERS[type(op)](first, second))


def _are_equal(left: _Operand, right: _Operand) -> bool:
    """Return whether two values are equal. If either value is a number, compare them as numbers."""
    for operand in (left, right):
        if not _is_scalar(operand.value):
            raise Undecided(f"{operand}; compare one of its fields, or its len()")
    numbers = _as_numbers(left.value, right.value)
    if numbers is not None:
        return numbers[0] == numbers[1]
    is_same_type = isinstance(left.value, bool) is isinstance(right.value, bool)
    return is_same_type and bool(left.value == right.value)


def _make_orderable(left: _Operand, right: _Operand) -> tuple[Any, Any]:
    """Return both values in a form that can be ordered: two numbers or two texts."""
    numbers = _as_numbers(left.value, right.value)
    if numbers is not None:
        return numbers
    if isinstance(left.value, str) and isinstance(right.value, str):
        return left.value, right.value
    raise Undecided(f"{left} and {right}: one is not a number, so neither is the greater")


def _is_in(left: _Operand, right: _Operand) -> bool:
    """Return whether a text contains a text, an object has a field, or a list has a value."""
    container = right.value
    if isinstance(container, str):
        if not isinstance(left.value, str):
            raise Undecided(f"{right.text} is a text, and {left}, which is not a text")
        return left.value in container
    if isinstance(container, dict):
        return left.value in list(container)  # a list, because the value need not be hashable
    if isinstance(container, list):
        scalars = filter(_is_scalar, container)
        return any(_are_equal(left, _Operand(scalar, right.text)) for scalar in scalars)
    raise Undecided(f"{right}, which holds nothing")


def _is_scalar(value: JsonValue) -> bool:
    return not isinstance(value, list | dict)


def _as_numbers(left: Any, right: Any) -> tuple[float, float] | None:
    """Return both values as numbers if at least one is a number; else None. A text of digits
    counts as a number then, because tables have only texts.
    """
    if not (_is_number(left) or _is_number(right)):
        return None
    left_number, right_number = _read_number(left), _read_number(right)
    if left_number is None or right_number is None:
        return None
    return left_number, right_number


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read_number(value: Any) -> float | None:
    if _is_number(value):
        return value  # type: ignore[no-any-return] # an int stays as exact as it is
    if isinstance(value, str) and len(value) <= _VALUE_CHARS and _NUMBER.fullmatch(value):
        return float(value)
    return None
