"""No regular expression of the product needs more than linear time for a long text from outside."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.pattern_growth import fast_growing

ROOT = Path(__file__).parents[1]
ROOMS = ("shared", "supervisor", "workers")
FUNCTIONS = {
    *("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer", "compile")
}
ONLY_AT_START = {"match", "fullmatch"}
_FACT = "the parts of a claim have at most 500 characters"
_LUA = "the Lua files of the product"
SHORT_TEXTS = {
    "shared.agent.hidden_text_decoders._TAG": "the text behind the last `>` is cut off",
    "shared.documents.html._CHARSET": "the first 2,048 bytes of a page",
    "shared.store.redis.script.COMMENT": _LUA,
    "shared.store.redis.script.WITHOUT_VALUE": _LUA,
    r"supervisor.text.claim_subject: \([^)]*\)": _FACT,
    "supervisor.text.sanitizing._INLINE": "at most 100 images in an answer",
    "supervisor.text.quantities._AMOUNT": "the text has at most two blanks in a row",
    "supervisor.text.quantities._RANGE": _FACT,
}
"""Patterns with faster growth: `module.NAME`, or `module: pattern` -> why no long text reaches
them.
"""

pytestmark = pytest.mark.slow


def test_the_time_of_each_pattern_grows_with_the_length_of_the_text() -> None:
    slow = {}
    for name, (pattern, is_search) in _patterns().items():
        if name not in SHORT_TEXTS and (text := fast_growing(pattern, is_search=is_search)):
            slow[name] = text

    assert not slow


def test_each_pattern_for_short_texts_exists() -> None:
    assert not SHORT_TEXTS.keys() - _patterns().keys()


def test_quadratic_time_is_found() -> None:
    """This pattern once stopped all supervisors of a system for minutes."""
    image = re.compile(r"!(?=\[[^\n]{0,2000}?\]\(\s*<?\s*(?:https?:)?[/\\]{2})", re.IGNORECASE)

    assert fast_growing(image, is_search=True)


@cache
def _patterns() -> dict[str, tuple[re.Pattern[Any], bool]]:
    """Return each pattern, and whether the code searches with it. A pattern that depends on the
    arguments of a function is left out.
    """
    patterns: dict[str, tuple[re.Pattern[Any], bool]] = {}
    files = {path: path.read_text() for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    public_uses = _uses_by_name("\n".join(files.values()))
    for path, text in files.items():
        if not re.search(r"\bre\.", text):
            continue
        own_uses = _uses_by_name(text)
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        names = vars(importlib.import_module(f"handoff_queue.{module}"))
        for name, value in names.items():
            uses = (own_uses if name.startswith("_") else public_uses).get(name, set())
            is_search = not uses or not uses <= ONLY_AT_START
            for number, pattern in enumerate(_patterns_in(value)):
                is_single = pattern is value
                patterns[f"{module}.{name}{'' if is_single else number}"] = pattern, is_search
        for pattern, is_search in _inline_patterns(text, names):
            patterns[f"{module}: {pattern.pattern!s}"] = pattern, is_search
    return patterns


def _uses_by_name(text: str) -> dict[str, set[str]]:
    """Return the methods that a text names after each name in capital letters."""
    uses: dict[str, set[str]] = {}
    for name, method in re.findall(r"(?<![.\w])([A-Z_][A-Z0-9_]*)\.(\w+)", text):
        uses.setdefault(name, set()).add(method)
    return uses


def _patterns_in(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, tuple | list | set | frozenset):
        for item in value:
            yield from _patterns_in(item)
    elif isinstance(value, dict):
        for item in value.items():
            yield from _patterns_in(item)


def _inline_patterns(text: str, names: dict[str, Any]) -> Iterator[tuple[re.Pattern[Any], bool]]:
    """Yield the patterns in calls such as `re.sub(...)` within functions."""
    for statement in ast.parse(text).body:
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for node in ast.walk(statement):
            match node:
                case ast.Call(ast.Attribute(ast.Name("re"), function), [first, *others]) if (
                    function in FUNCTIONS
                ):
                    flags = [keyword.value for keyword in node.keywords if keyword.arg == "flags"]
                    if function not in ("sub", "subn", "split"):
                        flags += others[0 if function == "compile" else 1 :]
                    try:
                        values = [_value(expression, names) for expression in (first, *flags)]
                    except NameError:
                        continue
                    yield re.compile(*values), function not in ONLY_AT_START


def _value(expression: ast.expr, names: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(expression), "pattern", "eval"), dict(names))
