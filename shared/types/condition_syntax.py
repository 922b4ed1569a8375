"""The syntax of conditions of steps: expressions over the results of earlier steps, and over the
item of a repeated step.

`ast` parses the text, and each node is checked against a short list. The text never runs as
code. The only function is `len`; the only operators are comparisons, `and`, `or`, `not` and `in`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field, StringConstraints

from handoff_queue.shared.types.ids import StepIdField
from handoff_queue.shared.types.message import Message

MAX_CHARS = 1_000
MAX_NODES = 200
"""Most nodes of the tree. They bound the time of an evaluation and the depth of its recursion."""
FIELDS: Final = ("output", "status", "confidence")
"""Fields of a step that a condition can name."""
ITEM: Final = "item"
STEPS: Final = "steps"
LITERALS: Final[Mapping[str, bool | None]] = {"true": True, "false": False, "null": None}
RESERVED: Final = frozenset({ITEM, STEPS, "len", *LITERALS})
"""Names that do not mean a step. A step with such a name is written `steps["item"]`."""
_QUOTED = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'")
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


class When(Message):
    """The condition of one step of a plan."""

    text: Annotated[str, StringConstraints(min_length=1, max_length=MAX_CHARS)]
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


@lru_cache(maxsize=1_000)
def parse_condition(text: str) -> Condition:
    """Parse and check a condition.

    Raises:
        InvalidCondition: the condition is not valid; the message names the fault.
    """
    tree = _parse_expression(text)
    nodes = list(ast.walk(tree))
    if len(nodes) > MAX_NODES:
        raise InvalidCondition(f"it has more than {MAX_NODES} parts; make it shorter")
    places = _find_places(nodes)
    steps: set[str] = set()
    columns: set[str] = set()
    items: list[ast.AST] = []
    for node in nodes:
        _check(node)
        if id(node) in places.functions:
            continue
        _check_names(node, places)
        if step := find_step_name(node):
            steps.add(step)
        if column := _find_column(node):
            columns.add(column)
        if is_name(node, ITEM):
            items.append(node)
    if not steps and not items:
        raise InvalidCondition("it uses no step and no item")
    return Condition(
        text=text,
        tree=tree,
        steps=tuple(sorted(steps)),
        columns=tuple(sorted(columns)),
        has_item=bool(items),
        has_whole_item=any(id(item) not in places.containers for item in items),
    )


class _NodePlaces(NamedTuple):
    """Python's ids of the nodes that have some place in another node."""

    steps_with_field: set[int]
    """Steps in front of one of `FIELDS`."""
    containers: set[int]
    """Values in front of any field or index."""
    functions: set[int]
    """Called functions."""


def _check_names(node: ast.AST, places: _NodePlaces) -> None:
    """Check that a step has a field, and that `steps` has a name.

    Raises:
        InvalidCondition: it has none.
    """
    if find_step_name(node) is not None and id(node) not in places.steps_with_field:
        name = describe_node(node)
        raise InvalidCondition(f"{name} is a step; write {name}.output or .status")
    if is_name(node, STEPS) and id(node) not in places.containers:
        raise InvalidCondition('steps is not a value; write steps["the-step"].output')


def _find_places(nodes: Sequence[ast.AST]) -> _NodePlaces:
    """Return the places of nodes in other nodes.

    Raises:
        InvalidCondition: a step has a field that is not in `FIELDS`.
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
    return _NodePlaces(steps_with_field, containers, functions)


def _parse_expression(text: str) -> ast.expr:
    """Parse the text.

    Raises:
        InvalidCondition: the text is too long, or not an expression.
    """
    if len(text) > MAX_CHARS:
        raise InvalidCondition(f"it has more than {MAX_CHARS:,} characters; make it shorter")
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
                f"it calculates ({describe_node(node)}); {HELP}. A step with a hyphen is written"
                ' steps["look-up"].output'
            )
        case ast.Call():
            is_len = isinstance(node.func, ast.Name) and node.func.id == "len"
            if not is_len or len(node.args) != 1 or node.keywords:
                raise InvalidCondition(
                    f"it calls {describe_node(node.func)}; only len(x) can be called"
                )
        case ast.Attribute() if node.attr.startswith("_"):
            raise InvalidCondition(f"it names {node.attr}; no field begins with _")
        case ast.Compare() if any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            raise InvalidCondition("it compares with `is`; write == or !=")
        case ast.Constant() if not isinstance(node.value, str | bool | int | float | None):
            raise InvalidCondition(
                f"{describe_node(node)} is not a text, a number, true, false or null"
            )
        case ast.Subscript() if not isinstance(get_index(node), str | int):
            raise InvalidCondition(
                f'{describe_node(node)} needs a name or a number in [], as in x["y"]'
            )
        case ast.UnaryOp(op=ast.USub()) if not isinstance(node.operand, ast.Constant):
            raise InvalidCondition(f"it calculates ({describe_node(node)}); {HELP}")
    if not isinstance(node, _NODES):
        raise InvalidCondition(f"it has {describe_node(node)}, which no condition may have; {HELP}")


def describe_node(node: ast.AST) -> str:
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
    if find_step_name(node.value) is None:
        return False
    if node.attr not in FIELDS:
        name = describe_node(node.value)
        raise InvalidCondition(
            f"{name}.{node.attr}: a step has {', '.join(FIELDS)}; write {name}.output.{node.attr}"
        )
    return True


def find_step_name(node: ast.AST) -> str | None:
    """Return the name of the step in a node `name` or `steps["name"]`; None for other nodes."""
    if isinstance(node, ast.Name):
        if node.id in RESERVED or node.id in ("True", "False", "None"):
            return None
        return node.id
    return _find_name_in_brackets(node, STEPS)


def _find_column(node: ast.AST) -> str | None:
    """Return the field in a node `item.field` or `item["field"]`; None for other nodes."""
    if isinstance(node, ast.Attribute) and is_name(node.value, ITEM):
        return node.attr
    return _find_name_in_brackets(node, ITEM)


def _find_name_in_brackets(node: ast.AST, container: str) -> str | None:
    """Return the name in a node `container["name"]`; None for other nodes."""
    if isinstance(node, ast.Subscript) and is_name(node.value, container):
        index = get_index(node)
        if isinstance(index, str):
            return index
    return None


def is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def get_index(node: ast.Subscript) -> Any:
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


def find_problem(when: When) -> str | None:
    """Return the problem with the condition of a step, or None."""
    try:
        condition = parse_condition(when.text)
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
