"""Dicts of states, copied once for a run of events: a copy for each would make a long journal cost the square of its length."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Copies:
    """The newest that one run of events has made, by the state's field. Only that run has states that they belong to, and of these only the
    last leaves it, so they are changed in place; every other dict is copied first.
    """

    def __init__(self) -> None:
        self._made: dict[str, dict[Any, Any]] = {}

    def with_items(self, field: str, items: dict[Key, Value], new: Mapping[Key, Value]) -> dict[Key, Value]:
        """These and the new ones, which take the places of those of their names."""
        own = self._own(field, items)
        own.update(new)
        return own

    def without(self, field: str, items: dict[Key, Value], key: Key) -> dict[Key, Value]:
        """These but for one, if it is there."""
        own = self._own(field, items)
        own.pop(key, None)
        return own

    def _own(self, field: str, items: dict[Key, Value]) -> dict[Key, Value]:
        if self._made.get(field) is not items:
            self._made[field] = dict(items)
        return self._made[field]
