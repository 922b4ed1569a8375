"""Forms without content: outputs that only repeat the words of their schema. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

from pydantic import JsonValue

_DOTS = frozenset({"...", "…"})


def is_empty_form(output: JsonValue, schema: Mapping[str, Any]) -> bool:
    """Return whether an object or a list says nothing. It then has texts, and each text is
    blank or a word of its schema. Every other value is null, false or 0.

    An output without any text (`{"matches": []}`, `{"count": 0}`) may be the answer, so it is
    not an empty form. An output that is a text or a number is not one either.
    """
    return isinstance(output, dict | list) and has_no_content(output, collect_schema_words(schema))


def has_no_content(output: JsonValue, words: Set[str]) -> bool:
    """Return whether an output says nothing, as `is_empty_form`.

    Args:
        words: `collect_schema_words`.
    """
    has_text = False
    for leaf in _iterate_leaves(output):
        if isinstance(leaf, str):
            has_text = True
            text = _normalize_case_and_spaces(leaf)
            if text and text not in words:
                return False
        elif leaf:
            return False
    return has_text


def _iterate_leaves(value: JsonValue) -> Iterator[JsonValue]:
    """Yield the texts, numbers, booleans and nulls in a JSON value, in no particular order."""
    left = [value]
    while left:
        match left.pop():
            case dict() as container:
                left += container.values()
            case list() as container:
                left += container
            case leaf:
                yield leaf


def collect_schema_words(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of types and properties, the titles and the descriptions in a schema,
    and "...". The values of `const` and `enum` are left out: they may be answers.
    """
    words: list[object] = [*_DOTS]
    choices: list[object] = []
    left: list[Any] = [schema]
    while left:
        part = left.pop()
        if isinstance(part, list):
            left += part
        elif isinstance(part, Mapping):
            words += [part.get("type"), part.get("title"), part.get("description")]
            words += part.get("properties") or ()
            choices.append(part.get("const"))
            if isinstance(part.get("enum"), list):
                choices += part["enum"]
            left += part.values()
    return frozenset(_select_texts(words) - _select_texts(choices))


def _select_texts(values: Iterable[object]) -> set[str]:
    """Return the texts among these values, in lower case and with single spaces."""
    texts: set[str] = set()
    for value in values:
        if isinstance(value, str):
            texts.add(_normalize_case_and_spaces(value))
    return texts


def _normalize_case_and_spaces(text: str) -> str:
    return " ".join(text.lower().split())
