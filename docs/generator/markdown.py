"""Markdown from docstrings, and docstrings of attributes."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import Any

SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$")


def build_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, or an empty text if there are no rows."""
    lines: list[str] = []
    for row in rows:
        lines.append("| " + " | ".join(map(format_cell, row)) + " |")
    if not lines:
        return ""
    head = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return "\n".join([*head, *lines]) + "\n"


def join_parts(parts: Iterable[str]) -> str:
    """Return the parts of a page as one text, without empty parts."""
    return "\n".join(filter(None, parts))


def format_cell(text: str) -> str:
    """Return a text on one line, for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def format_code(text: str) -> str:
    return f"`{text}`"


def get_docstring(thing: Any) -> str:
    """Return the docstring of a thing as Markdown. An inherited docstring does not count."""
    return convert_docstring(thing.__doc__ or "")


def convert_docstring(docstring: str) -> str:
    """Return a docstring as Markdown: sections such as `Raises:` become lists."""
    lines: list[str] = []
    in_section = False
    for line in inspect.cleandoc(docstring).splitlines():
        if SECTION.match(line):
            in_section = True
            lines += [f"{line}", ""]
        elif in_section and re.match(r"^ {4}\S", line):
            names, _, text = line.strip().partition(": ")
            shown = ", ".join(map(format_code, names.split(", ")))
            lines.append(f"- {shown}: {text}")
        elif in_section and line.startswith(" "):
            lines.append(f"  {line.strip()}")
        else:
            in_section = in_section and not line
            lines.append(line)
    return "\n".join(lines).strip()


def get_first_sentence(docstring: str) -> str:
    text = " ".join(inspect.cleandoc(docstring).split("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) (?=[A-Z`])", text)[0]


@cache
def read_attribute_docstrings(owner: type | ModuleType) -> Mapping[str, str]:
    """Return the docstrings below the attributes of a class or module, by attribute. The
    docstring in a class replaces the one in its base class.
    """
    if isinstance(owner, ModuleType):
        return _read_docstrings(owner)
    texts: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.startswith("handoff_queue"):
            texts |= _read_docstrings(base)
    return texts


def _read_docstrings(owner: type | ModuleType) -> dict[str, str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    body = tree.body
    if isinstance(owner, type) and isinstance(body[0], ast.ClassDef):
        body = body[0].body
    texts = {}
    for statement, following in pairwise(body):
        name = _get_assigned_name(statement)
        if name and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            texts[name] = inspect.cleandoc(str(following.value.value))
    return texts


def _get_assigned_name(statement: ast.stmt) -> str | None:
    """Return the name that a statement assigns to."""
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return None


def format_annotation(annotation: Any) -> str:
    """Return a type without modules and without the metadata of `Annotated`."""
    text = annotation
    if not isinstance(annotation, str):
        text = inspect.formatannotation(annotation)
    text = re.sub(r"<class '([\w.]+)'>", r"\1", text)
    text = re.sub(r"\b(?:[a-zA-Z_]\w*\.)+(?=[A-Za-z_])", "", text)
    return without_metadata(text).replace("NoneType", "None")


def without_metadata(text: str) -> str:
    """Return a type's text with `T` for each `Annotated[T, ...]`."""
    while (start := text.find("Annotated[")) >= 0:
        depth, comma, position = 0, None, start + len("Annotated[")
        while depth >= 0:
            letter = text[position]
            depth += (letter in "[(") - (letter in "])")
            if letter == "," and depth == 0 and comma is None:
                comma = position
            position += 1
        inner = text[start + len("Annotated[") : comma]
        text = text[:start] + inner + text[position:]
    return text
