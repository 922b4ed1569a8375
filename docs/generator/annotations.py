"""Types as the reference prints them: only names that a user can import.

An alias, such as `Count = Annotated[int, Field(ge=1, le=1_000)]`, is printed as its base type with
its bounds: `int`, 1 to 1,000. A class that has another name in the public API has that name.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, NewType, ParamSpec, TypeVar, get_args, get_origin

import handoff_queue
from docs.generator.markdown import format_annotation, format_code
from handoff_queue import testing, types


@cache
def map_public_names() -> Mapping[int, str]:
    """Return the public name of each public thing, by the identity of the thing."""
    return {
        id(getattr(module, name)): name
        for module in (types, testing, handoff_queue)
        for name in module.__all__
    }


def get_namespace(kind: Any) -> Mapping[str, Any]:
    """Return the names of the module that defines a class or function."""
    return vars(sys.modules[kind.__module__])


def format_type(annotation: Any, namespace: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the text of a type, and the texts of its bounds.

    Args:
        annotation: the type, or its text in the source code.
        namespace: the names of the module of this text.
    """
    text = annotation if isinstance(annotation, str) else format_annotation(annotation)
    printer = _Printer(namespace)
    tree = printer.visit(ast.parse(text, mode="eval"))
    return format_annotation(ast.unparse(tree)), list(dict.fromkeys(printer.bounds))


def get_public_name(thing: Any) -> str:
    """Return the name of a class or function that a user imports, or its own name."""
    return map_public_names().get(id(thing), str(thing.__name__))


def format_bounded_type(text: str, bounds: Iterable[str]) -> str:
    """Return the cell of a table: the type as code, then its bounds."""
    return ", ".join([format_code(text), *bounds])


class _Printer(ast.NodeTransformer):
    """Replaces each alias by its base type, and collects its bounds."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._depth = 0
        self.bounds: list[str] = []

    def visit_Name(self, node: ast.Name) -> ast.expr:
        thing = self._namespace.get(node.id)
        if name := map_public_names().get(id(thing)):
            return ast.Name(name)
        if isinstance(thing, ParamSpec):
            return ast.Constant(...)
        if isinstance(thing, TypeVar):
            return ast.Name("Any")
        if get_origin(thing) is Literal:
            literal: ast.expr = ast.parse(format_annotation(thing), mode="eval").body
            return literal
        if get_origin(thing) is Annotated:
            base, *metadata = get_args(thing)
            self._add(base, metadata)
            inner = ast.parse(format_annotation(base), mode="eval").body
            shown: ast.expr = self.visit(inner)
            return shown
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id == "Literal":
            return node
        if isinstance(node.value, ast.Name) and node.value.id == "Annotated":
            assert isinstance(node.slice, ast.Tuple)
            base, *metadata = node.slice.elts
            names = dict(self._namespace)
            values = [eval(ast.unparse(part), names) for part in metadata]  # noqa: S307 - our code
            self._add(eval(ast.unparse(base), names), values)  # noqa: S307
            shown: ast.expr = self.visit(base)
            return shown
        self._depth += 1
        node.slice = self.visit(node.slice)
        self._depth -= 1
        return node

    def _add(self, base: Any, metadata: Iterable[Any]) -> None:
        """Note the bounds of a base type. An id has its form in the section of its type."""
        if isinstance(base, NewType):
            return
        for text in list_bounds(base, metadata):
            self.bounds.append(f"each {text}" if self._depth else text)


def list_bounds(base: Any, metadata: Iterable[Any]) -> list[str]:
    """Return the bounds in the metadata of an `Annotated`, such as `1 to 1,000`."""
    limits: dict[str, Any] = {}
    for entry in metadata:
        for part in getattr(entry, "metadata", None) or [entry]:
            for name in ("ge", "gt", "le", "lt", "min_length", "max_length", "pattern"):
                if (value := getattr(part, name, None)) is not None:
                    limits[name] = value
    texts: list[str] = []
    if text := _format_range(limits.get("ge"), limits.get("le")):
        texts.append(text)
    if "gt" in limits:
        texts.append(f"more than {limits['gt']:,}")
    if "lt" in limits:
        texts.append(f"less than {limits['lt']:,}")
    if text := _format_range(limits.get("min_length"), limits.get("max_length")):
        is_text = base is str or str in get_args(base)
        texts.append(f"{text} {'characters' if is_text else 'items'}")
    if "pattern" in limits:
        texts.append(f"pattern {format_code(limits['pattern'])}")
    return texts


def _format_range(low: Any, high: Any) -> str:
    if low is not None and high is not None:
        return f"{low:,} to {high:,}"
    if low is not None:
        return f"at least {low:,}"
    if high is not None:
        return f"at most {high:,}"
    return ""
