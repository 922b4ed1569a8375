"""Conditions of steps: expressions over the results of earlier steps, and over the item of a
repeated step.

`ast` parses the text, and each node is checked against a short list. The text never runs as
code. The only function is `len`; the only operators are comparisons, `and`, `or`, `not` and `in`.
"""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Final

from pydantic import Field, JsonValue, StringConstraints

from handoff_queue.shared.types.ids import StepIdField
from handoff_queue.shared.types.message import Message

MOST_CHARS = 1_000
MOST_NODES = 200
"""Most nodes of the tree. They bound the time of an evaluation and the depth of its recursion."""
FIELDS: Final = ("output", "status", "confidence")
"""Fields of a step that a condition can name."""
ITEM: Final = "item"
STEPS: Final = "steps"
LITERALS: Final[Mapping[str, bool | None]] = {"true": True, "false": False, "null": None}
RESERVED: Final = frozenset({ITEM, STEPS, "len", *LITERALS})
"""Names that do not mean a step. A step with such a name is written `steps["item"]`."""
_MOST_VALUES = 3
"""Most values that a reason names."""
_VALUE_CHARS = 60
_QUOTED = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'")
_NUMBER = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)\s*")
_ORDERS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_NODES = (
    ast.Expression,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.UnaryOp,
    ast.Not,
    ast.USub,
    ast.Compare,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
    ast.In,
    ast.NotIn,
    ast.Call,
    ast.Name,
    ast.Load,
    ast.Attribute,
    ast.Subscript,
    ast.Constant,
    ast.List,
    ast.Tuple,
)
HELP = (
    "use the steps' output, status and confidence with ==, !=, <, <=, >, >=, in, and, or, not,"
    " len()"
)


class InvalidCondition(ValueError):
    """The text is not a condition. The message has the reason in one line."""


class Undecided(Exception):
    """The results do not decide the condition: a field is missing, or cannot be compared."""


class When(Message):
    """The condition of one step of a plan."""

    text: Annotated[str, StringConstraints(min_length=1, max_length=MOST_CHARS)]
    steps: dict[str, StepIdField] = Field(default_factory=dict)
    """Step ids in the plan, by the names of the steps in the text."""
    item: str | dict[str, str] | None = None
    """Item of a repeated step: the line, the path, or the fields of the row that the text names."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A valid condition."""

    text: str
    tree: ast.expr
    steps: tuple[str, ...]
    """Names of its steps, sorted, each once."""
    columns: tuple[str, ...]
    """Fields of `item` that it names, sorted, each once."""
    has_item: bool
    """True if the condition names `item`."""
    has_whole_item: bool
    """True if the condition names `item` without a field."""


@dataclass(frozen=True, slots=True)
class ConditionOutcome:
    """The outcome of a condition, and the reason in one line."""

    is_met: bool
    why: str


@lru_cache(maxsize=1_000)
def condition_of(text: str) -> Condition:
    """Parse and check a condition.

    Raises:
        InvalidCondition: the condition is not valid; the message names the fault.
    """
    tree = _parsed(text)
    steps, columns = dict[str, None](), dict[str, None]()
    has_item = has_whole_item = False
    nodes = list(ast.walk(tree))
    if len(nodes) > MOST_NODES:
        raise InvalidCondition(f"it has more than {MOST_NODES} parts; make it shorter")
    steps_with_field, containers, functions = _roles_of(nodes)
    for node in nodes:
        _check(node)
        if id(node) in functions:
            continue
        name = _step_named(node)
        if name is not None:
            if id(node) not in steps_with_field:
                advice = f"{_text(node)} is a step; write {_text(node)}.output or .status"
                raise InvalidCondition(advice)
            steps[name] = None
        if isinstance(node, ast.Name) and node.id == ITEM:
            has_item = True
            has_whole_item |= id(node) not in containers
        if isinstance(node, ast.Name) and node.id == STEPS and id(node) not in containers:
            raise InvalidCondition('steps is not a value; write steps["the-step"].output')
        if column := _column(node):
            columns[column] = None
    if not steps and not has_item:
        raise InvalidCondition("it uses no step and no item")
    return Condition(
        text, tree, tuple(sorted(steps)), tuple(sorted(columns)), has_item, has_whole_item
    )


def _roles_of(nodes: Sequence[ast.AST]) -> tuple[set[int], set[int], set[int]]:
    """Return the ids of nodes by their role in another node: steps in front of one of
    `FIELDS`, values in front of any field or index, and called functions.

    Raises:
        InvalidCondition: a step has another field.
    """
    steps_with_field: set[int] = set()
    containers: set[int] = set()
    functions: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Attribute) and _is_field(node):
            steps_with_field.add(id(node.value))
        if isinstance(node, ast.Attribute | ast.Subscript):
            containers.add(id(node.value))
        if isinstance(node, ast.Call):
            functions.add(id(node.func))
    return steps_with_field, containers, functions


def _parsed(text: str) -> ast.expr:
    """Parse the text.

    Raises:
        InvalidCondition: the text is too long, or not an expression.
    """
    if len(text) > MOST_CHARS:
        raise InvalidCondition(f"it has more than {MOST_CHARS:,} characters; make it shorter")
    bare = _QUOTED.sub('""', text)
    if "\\" in text or re.search(r"(?<![\w.])[0-9][0-9.]*[A-Za-z_]", bare):
        raise InvalidCondition("it has a backslash, or a number with letters; leave them out")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, SyntaxError):
            why = error.msg
        else:
            why = type(error).__name__
        raise InvalidCondition(f"it is not an expression ({why}); {HELP}") from error


def _check(node: ast.AST) -> None:
    """Check a node.

    Raises:
        InvalidCondition: a condition may not have this node.
    """
    match node:
        case ast.BinOp():
            raise InvalidCondition(
                f"it calculates ({_text(node)}); {HELP}. A step with a hyphen is written"
                ' steps["look-up"].output'
            )
        case ast.Call():
            is_len = isinstance(node.func, ast.Name) and node.func.id == "len"
            if not is_len or len(node.args) != 1 or node.keywords:
                raise InvalidCondition(f"it calls {_text(node.func)}; only len(x) can be called")
        case ast.Attribute() if node.attr.startswith("_"):
            raise InvalidCondition(f"it names {node.attr}; no field begins with _")
        case ast.Compare() if any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            raise InvalidCondition("it compares with `is`; write == or !=")
        case ast.Constant() if not isinstance(node.value, str | bool | int | float | None):
            raise InvalidCondition(f"{_text(node)} is not a text, a number, true, false or null")
        case ast.Subscript() if not isinstance(_index(node), str | int):
            raise InvalidCondition(f'{_text(node)} needs a name or a number in [], as in x["y"]')
        case ast.UnaryOp(op=ast.USub()) if not isinstance(node.operand, ast.Constant):
            raise InvalidCondition(f"it calculates ({_text(node)}); {HELP}")
    if not isinstance(node, _NODES):
        raise InvalidCondition(f"it has {_text(node)}, which no condition may have; {HELP}")


def _text(node: ast.AST) -> str:
    """Return the text of a node, cut to 80 characters, for an error."""
    try:
        return f"{ast.unparse(node):.80}"
    except (ValueError, RecursionError):
        return type(node).__name__


def _is_field(node: ast.Attribute) -> bool:
    """Return whether a node is the field `output`, `status` or `confidence` of a step.

    Raises:
        InvalidCondition: the node is another field of a step.
    """
    if _step_named(node.value) is None:
        return False
    if node.attr not in FIELDS:
        name = _text(node.value)
        raise InvalidCondition(
            f"{name}.{node.attr}: a step has {', '.join(FIELDS)}; write {name}.output.{node.attr}"
        )
    return True


def _step_named(node: ast.AST) -> str | None:
    """Return the name of the step in a node `name` or `steps["name"]`; None for other nodes."""
    if isinstance(node, ast.Name):
        if node.id in RESERVED or node.id in ("True", "False", "None"):
            return None
        return node.id
    if isinstance(node, ast.Subscript) and _is_name(node.value, STEPS):
        index = _index(node)
        if isinstance(index, str):
            return index
        return None
    return None


def _column(node: ast.AST) -> str | None:
    """Return the field in a node `item.field` or `item["field"]`; None for other nodes."""
    if isinstance(node, ast.Attribute) and _is_name(node.value, ITEM):
        return node.attr
    if isinstance(node, ast.Subscript) and _is_name(node.value, ITEM):
        index = _index(node)
        if isinstance(index, str):
            return index
        return None
    return None


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _index(node: ast.Subscript) -> Any:
    """Return the constant in brackets; None if it is not a constant."""
    index = node.slice
    if isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.USub):
        number = None
        if isinstance(index.operand, ast.Constant):
            number = index.operand.value
        if isinstance(number, int) and not isinstance(number, bool):
            return -number
        return None
    if isinstance(index, ast.Constant) and not isinstance(index.value, bool):
        return index.value
    return None


def problem_with(when: When) -> str | None:
    """Return the problem with the condition of a step, or None."""
    try:
        condition = condition_of(when.text)
    except InvalidCondition as error:
        return str(error)
    for name in condition.steps:
        if name not in when.steps:
            return f"it names {name}, which its `steps` do not have"
    if condition.has_item and when.item is None:
        return "it names item, and the step is not repeated"
    fields = when.item if isinstance(when.item, dict) else {}
    for name in condition.columns:
        if name not in fields:
            return f"it names item.{name}, which its `item` does not have"
    return None


# Evaluation


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
    is_met = evaluation.truth(condition.tree)
    read_values: list[str] = []
    for path, value in evaluation.read.items():
        read_values.append(f"{path} is {show_value(value)}")
    values = ""
    if read_values:
        values = f" ({'; '.join(read_values[:_MOST_VALUES])})"
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
    read: dict[str, JsonValue] = field(default_factory=dict)
    """Values that decided the condition, by their text in the condition."""

    def truth(self, node: ast.expr) -> bool:
        """Return the value of a node that is true or false.

        Raises:
            Undecided: the value is something else.
        """
        value = self.value(node)
        if not isinstance(value, bool):
            raise Undecided(f"{_text(node)} is {show_value(value)}, not true or false")
        return value

    def value(self, node: ast.expr) -> Any:  # noqa: PLR0911 (one case a node)
        """Return the value of a node."""
        match node:
            case ast.BoolOp(op=ast.And()):
                return all(map(self.truth, node.values))
            case ast.BoolOp():
                return any(map(self.truth, node.values))
            case ast.UnaryOp(op=ast.Not()):
                return not self.truth(node.operand)
            case ast.UnaryOp():
                return self._negative(node)
            case ast.Compare():
                return self._compared(node)
            case ast.Call():
                return self._length(node.args[0])
            case ast.List() | ast.Tuple():
                return list(map(self.value, node.elts))
            case ast.Constant():
                return node.value
            case ast.Name() if node.id in LITERALS:
                return LITERALS[node.id]
            case _:
                return self._looked_up(node)

    def _negative(self, node: ast.UnaryOp) -> float:
        value = self.value(node.operand)
        if not _is_number(value):
            raise Undecided(f"{_text(node)} is not a number")
        return -float(value)

    def _length(self, node: ast.expr) -> int:
        value = self.value(node)
        if not isinstance(value, str | list | dict):
            raise Undecided(f"{_text(node)} is {show_value(value)}, which has no length")
        return len(value)

    def _looked_up(self, node: ast.expr) -> JsonValue:
        """Return the value of `a.output.b`, `a.output["b"]`, `item` or `item.b`."""
        value = self._inside(node)
        if not isinstance(value, list | dict):
            self.read[_text(node)] = value
        return value

    def _inside(self, node: ast.expr) -> JsonValue:
        if _is_name(node, ITEM):
            return self.item
        if isinstance(node, ast.Attribute):
            step = _step_named(node.value)
            if step is not None:
                return self.steps[step][node.attr]
            return _part(self._inside(node.value), node.attr, _text(node.value))
        if isinstance(node, ast.Subscript):
            return _part(self._inside(node.value), _index(node), _text(node.value))
        value: JsonValue = self.value(node)
        return value

    def _compared(self, node: ast.Compare) -> bool:
        left, left_node = self.value(node.left), node.left
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node)
            names = (_text(left_node), _text(right_node))
            if not _holds(op, left, right, names):
                return False
            left, left_node = right, right_node
        return True


def _part(value: JsonValue, key: str | int, path: str) -> JsonValue:
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


def _holds(op: ast.cmpop, left: Any, right: Any, names: tuple[str, str]) -> bool:
    """Return whether a comparison is true.

    Args:
        names: texts of both sides, for errors.
    """
    if isinstance(op, ast.In | ast.NotIn):
        return _is_in(left, right, names) is isinstance(op, ast.In)
    if isinstance(op, ast.Eq | ast.NotEq):
        return _equal(left, right, names) is isinstance(op, ast.Eq)
    first, second = _ordered(left, right, names)
    return bool(_ORDERS[type(op)](first, second))


def _equal(left: Any, right: Any, names: tuple[str, str]) -> bool:
    """Return whether two values are equal. If either value is a number, compare them as numbers."""
    for value, name in zip((left, right), names, strict=True):
        if isinstance(value, list | dict):
            raise Undecided(
                f"{name} is {show_value(value)}; compare one of its fields, or its len()"
            )
    pair = _as_numbers(left, right)
    if pair is not None:
        return pair[0] == pair[1]
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


def _ordered(left: Any, right: Any, names: tuple[str, str]) -> tuple[Any, Any]:
    """Return both values in a form that can be ordered: two numbers or two texts."""
    pair = _as_numbers(left, right)
    if pair is not None:
        return pair
    if isinstance(left, str) and isinstance(right, str):
        return left, right
    raise Undecided(
        f"{names[0]} is {show_value(left)} and {names[1]} is {show_value(right)}: one is not a"
        " number, so neither is the greater"
    )


def _is_in(left: Any, right: Any, names: tuple[str, str]) -> bool:
    """Return whether a text contains a text, an object has a field, or a list has a value."""
    if isinstance(right, str):
        if not isinstance(left, str):
            raise Undecided(
                f"{names[1]} is a text, and {names[0]} is {show_value(left)}, which is not a text"
            )
        return left in right
    if isinstance(right, dict):
        return left in list(right)  # a list, because `left` need not be hashable
    if isinstance(right, list):
        scalars = filter(_is_scalar, right)
        return any(_equal(left, scalar, names) for scalar in scalars)
    raise Undecided(f"{names[1]} is {show_value(right)}, which holds nothing")


def _is_scalar(value: JsonValue) -> bool:
    return not isinstance(value, list | dict)


def _as_numbers(left: Any, right: Any) -> tuple[float, float] | None:
    """Return both values as numbers if at least one is a number; else None. A text of digits
    counts as a number then, because tables have only texts.
    """
    if not (_is_number(left) or _is_number(right)):
        return None
    pair = [_number(left), _number(right)]
    if pair[0] is not None and pair[1] is not None:
        return (pair[0], pair[1])
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> float | None:
    if _is_number(value):
        return value  # type: ignore[no-any-return] # an int stays as exact as it is
    if isinstance(value, str) and len(value) <= _VALUE_CHARS and _NUMBER.fullmatch(value):
        return float(value)
    return None
