"""Telling an output that only fills its form from one that says something, as far as code can. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import JsonValue

_DOTS = frozenset({"...", "…"})


def is_empty_form(output: JsonValue, schema: Mapping[str, Any]) -> bool:
    """Whether every text of an object or a list is blank or one of its schema's own words, and everything else is null, false, 0 or empty.

    A form without any text (`{"matches": []}`, `{"count": 0}`) may be the answer: it is not empty.
    """
    if not isinstance(output, dict | list):
        return False
    leaves = list(_leaves(output))
    texts = [_folded(leaf) for leaf in leaves if isinstance(leaf, str)]
    words = _own_words(schema)
    return (
        bool(texts)
        and all(not text or text in words for text in texts)
        and not any(leaf for leaf in leaves if not isinstance(leaf, str))
    )


def _leaves(value: JsonValue) -> Iterator[JsonValue]:
    left = [value]
    while left:
        match left.pop():
            case dict() as found:
                left += found.values()
            case list() as found:
                left += found
            case leaf:
                yield leaf


def _own_words(schema: Mapping[str, Any]) -> frozenset[str]:
    """Names of types and properties, titles and descriptions; but nothing that the schema offers to choose from."""
    words, choices, left = set(_DOTS), set[str](), list[Any]([schema])
    while left:
        part = left.pop()
        if isinstance(part, Mapping):
            words |= {
                _folded(part[key])
                for key in ("type", "title", "description")
                if isinstance(part.get(key), str)
            }
            words |= {
                _folded(name) for name in (part.get("properties") or ()) if isinstance(name, str)
            }
            offered = [
                part.get("const"),
                *(part["enum"] if isinstance(part.get("enum"), list) else ()),
            ]
            choices |= {_folded(value) for value in offered if isinstance(value, str)}
            left += part.values()
        elif isinstance(part, list):
            left += part
    return frozenset(words - choices)


def _folded(text: str) -> str:
    return " ".join(text.lower().split())
