"""The least that is valid against a JSON Schema: what a server must send that is held to a
schema, and has nothing to say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from handoff_queue.shared.providers.offline.schema_parts import (
    DEEPEST,
    Schema,
    is_valid,
    resolve,
    type_of,
)
from handoff_queue.shared.types.patterns import UnusablePattern, matches

_FORMATS = {
    "date": "1970-01-01",
    "date-time": "1970-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "unknown@example.invalid",
    "uri": "about:blank",
    "uuid": "00000000-0000-0000-0000-000000000000",
    "ipv4": "0.0.0.0",  # noqa: S104 - a placeholder, nothing listens there
}
_PLAIN = (
    "unknown",
    "UNKNOWN",
    "Unknown",
    "unknown-1",
    "a",
    "A",
    "0",
    "00",
    "000",
    "0000",
    "1.0",
    "1.0.0",
    "AA",
    "AAA",
    "1970-01-01",
)
"""Values that patterns often allow."""


def placeholder(schema: Any, *, root: Schema | None = None, text: str = "unknown") -> Any:
    """A value that is valid against the schema. `text`: what a string gets that may be anything."""
    whole = root if root is not None else schema if isinstance(schema, Mapping) else {}
    return _Filler(whole, text).value(schema, 0)


class _Filler:
    def __init__(self, root: Schema, text: str) -> None:
        self._root, self._text = root, text

    def value(self, schema: Any, depth: int) -> Any:
        resolved = resolve(schema, self._root)
        if "const" in resolved:
            return resolved["const"]
        if "enum" in resolved:
            return resolved["enum"][0]
        several = next((key for key in ("anyOf", "oneOf") if resolved.get(key)), None)
        return self._any_of(resolved, several, depth) if several else self._of_type(resolved, depth)

    def _of_type(self, schema: dict[str, Any], depth: int) -> Any:
        by_type: dict[str, Callable[[], Any]] = {
            "object": lambda: self._object(schema, depth),
            "array": lambda: self._array(schema, depth),
            "integer": lambda: _number(schema, whole=True),
            "number": lambda: _number(schema, whole=False),
            "boolean": lambda: False,
            "null": lambda: None,
        }
        return by_type.get(type_of(schema), lambda: self._string(schema))()

    def _any_of(self, schema: dict[str, Any], key: str, depth: int) -> Any:
        common = {name: value for name, value in schema.items() if name != key}
        options = [resolve({"allOf": [option, common]}, self._root) for option in schema[key]]
        options.sort(
            key=lambda option: (type_of(option) != "null", type_of(option) in ("object", "array"))
        )
        values = (
            [self.value(option, depth + 1) for option in options]
            if depth < DEEPEST
            else [self.value(options[0], depth + 1)]
        )
        return next((value for value in values if is_valid(value, schema, self._root)), values[0])

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties, extra = schema.get("properties", {}), schema.get("additionalProperties", True)
        other = extra if isinstance(extra, Mapping) else {"type": "string"}
        filled = {
            name: self.value(properties.get(name, other), depth + 1)
            for name in schema.get("required", ())
            if depth < 2 * DEEPEST
        }
        missing = schema.get("minProperties", 0) - len(filled)
        return {**filled, **{f"field_{n}": self.value(other, depth + 1) for n in range(missing)}}

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        values = [self.value(item, depth + 1) for item in schema.get("prefixItems", ())]
        while len(values) < schema.get("minItems", 0):
            values.append(
                self._another(
                    schema.get("items", {}),
                    len(values),
                    depth,
                    distinct=bool(schema.get("uniqueItems")),
                )
            )
        return values

    def _another(self, item: Any, number: int, depth: int, *, distinct: bool) -> Any:
        resolved = resolve(item, self._root)
        if distinct and resolved.get("enum"):
            return resolved["enum"][number % len(resolved["enum"])]
        value = self.value(item, depth + 1)
        if distinct and isinstance(value, str):
            return f"{value} ({number + 1})"
        if distinct and isinstance(value, int | float) and not isinstance(value, bool):
            return value + number * resolved.get("multipleOf", 1)
        return value

    def _string(self, schema: dict[str, Any]) -> str:
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        if "pattern" in schema:
            return _matching(schema, self._root)
        return self._text[: schema.get("maxLength")].ljust(schema.get("minLength", 0), ".")


def _number(schema: Schema, *, whole: bool) -> int | float:
    """The number nearest to zero that the limits allow."""
    step = schema.get("multipleOf", 1 if whole else None)
    margin = step or 1e-6
    lows = (schema.get("minimum"), _moved(schema.get("exclusiveMinimum"), margin))
    highs = (schema.get("maximum"), _moved(schema.get("exclusiveMaximum"), -margin))
    low, high = (
        max((each for each in lows if each is not None), default=None),
        min((each for each in highs if each is not None), default=None),
    )
    value = (
        0
        if (low is None or low <= 0) and (high is None or high >= 0)
        else low
        if low is not None and low > 0
        else high or 0
    )
    if step:
        value = (math.ceil(value / step) if value > 0 else math.floor(value / step)) * step
    return int(value) if whole or float(value).is_integer() else value


def _moved(limit: float | None, by: float) -> float | None:
    return None if limit is None else limit + by


def _matching(schema: Schema, root: Schema) -> str:
    try:
        return next(
            (
                each
                for each in _PLAIN
                if matches(schema["pattern"], each) and is_valid(each, schema, root)
            ),
            "unknown",
        )
    except UnusablePattern:
        return "unknown"
