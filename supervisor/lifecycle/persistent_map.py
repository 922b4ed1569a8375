"""A dict that never changes. A new version with a few other items costs a few items. Pure.

A layer of changes lies above a base that versions share. Each new version copies the layer, and
merges it into the base when the layer has grown to the square root of the base. So one change costs
about 1.5 times that root: 150 for 10,000 items, in any order.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from math import isqrt
from typing import Any, Generic, TypeVar, get_args

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

Key = TypeVar("Key")
Value = TypeVar("Value")

LEAST_TOP = 16
"""Items that may lie on top of any ground, however small."""
_GONE: Any = object()
_UNKNOWN: Any = object()


class PersistentMap(Mapping[Key, Value], Generic[Key, Value]):
    """Equal to a dict of the same items, and in its order."""

    __slots__ = ("_ground", "_size", "_top", "_whole")

    def __init__(self, items: Mapping[Key, Value] | None = None) -> None:
        self._ground: dict[Key, Value] = dict(items or {})
        self._top: dict[Key, Value] = {}
        self._size = len(self._ground)
        self._whole: dict[Key, Value] | None = self._ground

    def __getitem__(self, key: Key) -> Value:
        value: Value = self._top.get(key, _UNKNOWN)
        if value is _UNKNOWN:
            return self._ground[key]
        if value is _GONE:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        value = self._top.get(key, _UNKNOWN)  # type: ignore[arg-type]
        if value is _UNKNOWN:
            return key in self._ground
        return value is not _GONE

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Key]:
        return iter(self._all)

    def items(self) -> ItemsView[Key, Value]:
        return self._all.items()

    def keys(self) -> KeysView[Key]:
        return self._all.keys()

    def values(self) -> ValuesView[Value]:
        return self._all.values()

    def __repr__(self) -> str:
        return repr(self._all)

    def __or__(self, new: Mapping[Key, Value]) -> PersistentMap[Key, Value]:
        """Return the items and the new items, which replace items with the same key."""
        coming = [key for key in new if key not in self]
        again = any(key in self._top for key in coming)  # a removed key that returns comes last
        return self._made(
            self._all if again else self._ground,
            ({} if again else self._top) | dict(new),
            self._size + len(coming),
        )

    def without(self, key: Key) -> PersistentMap[Key, Value]:
        """Return the items without a key, if it exists."""
        if key in self:
            return self._made(self._ground, self._top | {key: _GONE}, self._size - 1)
        return self

    def changed_since(self, before: PersistentMap[Key, Value]) -> tuple[Key, ...]:
        """Return the keys whose values differ from an earlier version, in order of the new version,
        then the removed keys.
        """
        is_same_ground = self._ground is before._ground
        if is_same_ground:
            now, was = (self._top, before._top)
        else:
            now, was = (self._all, before._all)
        others = [key for key, value in now.items() if was.get(key, _UNKNOWN) is not value]
        for wa in was:
            if wa not in now:
                others.append(wa)
        return tuple(
            key for key in others if key in self or key in before
        )  # some have come and gone in between

    @property
    def _all(self) -> dict[Key, Value]:
        if self._whole is None:
            whole = self._ground | self._top
            for key, value in self._top.items():
                if value is _GONE:
                    del whole[key]
            self._whole = whole
        return self._whole

    @classmethod
    def _made(
        cls, ground: dict[Key, Value], top: dict[Key, Value], size: int
    ) -> PersistentMap[Key, Value]:
        made = cls.__new__(cls)
        made._ground, made._top, made._size, made._whole = ground, top, size, None
        if len(top) > LEAST_TOP + isqrt(len(ground)):
            made._ground, made._top = made._all, {}
        return made

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        key, value = get_args(source)
        plain = handler.generate_schema(dict[key, value])  # type: ignore[valid-type]
        as_dict = core_schema.plain_serializer_function_ser_schema(dict, return_schema=plain)
        return core_schema.no_info_after_validator_function(cls, plain, serialization=as_dict)


def layers(items: Mapping[Key, Value]) -> PersistentMap[Key, Value]:
    """Return the items as a PersistentMap; a PersistentMap is returned unchanged."""
    if isinstance(items, PersistentMap):
        return items
    return PersistentMap(items)
