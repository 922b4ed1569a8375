"""Filling any JSON Schema out of claims: strings are what documents say, enums what they name, numbers what they count."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shared.agent.patterns import UnusablePattern, matches
from shared.agent.schemas import BrokenSchema, problem_with

Schema = Mapping[str, Any]
_DEEPEST = 12
_MOST_ITEMS = 5
_FORMATS = {
    "date": "1970-01-01",
    "date-time": "1970-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "unknown@example.invalid",
    "uri": "about:blank",
    "uuid": "00000000-0000-0000-0000-000000000000",
    "ipv4": "0.0.0.0",  # noqa: S104 - a placeholder, nothing listens there
}


def resolve(schema: Any, root: Schema) -> dict[str, Any]:
    """A schema with its `$ref` followed within the root, and `allOf` put together."""
    if not isinstance(schema, Mapping):
        return {}
    seen = 0
    while "$ref" in schema and seen < _DEEPEST:
        target: Any = root
        for part in str(schema["$ref"]).removeprefix("#").strip("/").split("/"):
            target = target.get(part.replace("~1", "/").replace("~0", "~"), {}) if part and isinstance(target, Mapping) else target
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
        seen += 1
    merged = dict(schema)
    for part in merged.pop("allOf", ()):
        other = resolve(part, root)
        properties = {**merged.get("properties", {}), **other.get("properties", {})}
        required = [*merged.get("required", ()), *other.get("required", ())]
        merged = {**other, **merged, **({"properties": properties} if properties else {}), **({"required": required} if required else {})}
    return merged


def property_schema(schema: Schema, name: str, root: Schema | None = None) -> dict[str, Any]:
    """The schema of one property, resolved; empty if there is none."""
    whole = root if root is not None else schema
    return resolve(resolve(schema, whole).get("properties", {}).get(name, {}), whole)


def fill(schema: Any, facts: Sequence[str] = (), *, root: Schema | None = None, text: str | None = None) -> Any:
    """A value that is valid against the schema. `facts` are statements to draw on, best first; `text` is what a plain string gets."""
    whole = root if root is not None else schema if isinstance(schema, Mapping) else {}
    filler = _Filler(whole, tuple(facts), text)
    value = filler.value(schema, (), 0)
    return value if _is_valid(value, schema, whole) else filler.bare().value(schema, (), 0)


class _Filler:
    def __init__(self, root: Schema, facts: tuple[str, ...], text: str | None) -> None:
        self._root, self._facts, self._text = root, facts, text

    def bare(self) -> _Filler:
        """One that invents as little as the schema allows, when what documents say does not fit it."""
        return _Filler(self._root, (), None)

    def value(self, schema: Any, path: tuple[str, ...], depth: int) -> Any:
        resolved = resolve(schema, self._root)
        if "const" in resolved:
            return resolved["const"]
        if "enum" in resolved:
            return self._chosen(resolved["enum"], path)
        several = next((key for key in ("anyOf", "oneOf") if resolved.get(key)), None)
        return self._any_of(resolved, several, path, depth) if several else self._of_type(resolved, path, depth)

    def _of_type(self, schema: dict[str, Any], path: tuple[str, ...], depth: int) -> Any:
        kind = _type_of(schema)
        by_type: dict[str, Callable[[], Any]] = {
            "object": lambda: self._object(schema, path, depth),
            "array": lambda: self._array(schema, path, depth),
            "integer": lambda: self._number(schema, path, whole=True),
            "number": lambda: self._number(schema, path, whole=False),
            "boolean": lambda: bool(self._about(path) if path else self._facts),
            "null": lambda: None,
        }
        return by_type.get(kind, lambda: self._string(schema, path))()

    def _about(self, path: tuple[str, ...]) -> list[str]:
        """The facts that speak of what a property is called, best first."""
        words = [word for part in path for word in re.findall(r"[a-z]{3,}", part.lower())]
        scored = [(sum(word[:5] in fact.lower() for word in words), -index, fact) for index, fact in enumerate(self._facts)]
        return [fact for score, _, fact in sorted(scored, reverse=True) if score]

    def _any_of(self, schema: dict[str, Any], key: str, path: tuple[str, ...], depth: int) -> Any:
        common = {name: value for name, value in schema.items() if name != key}
        options = [resolve({"allOf": [option, common]}, self._root) for option in schema[key]]
        has_something = self._about(path) or not path or depth == 0
        options.sort(key=lambda option: (_type_of(option) == "null") == bool(has_something or self._facts))
        if depth >= _DEEPEST:
            options.sort(key=lambda option: _type_of(option) in ("object", "array"))
        values = (self.value(option, path, depth + 1) for option in options)
        first = None
        for index, value in enumerate(values):
            first = value if index == 0 else first
            if _is_valid(value, schema, self._root):
                return value
        return first

    def _object(self, schema: dict[str, Any], path: tuple[str, ...], depth: int) -> dict[str, Any]:
        properties, required = schema.get("properties", {}), list(schema.get("required", ()))
        names = (
            required if depth >= _DEEPEST - 4 or not self._facts else [*properties, *(name for name in required if name not in properties)]
        )
        extra = schema.get("additionalProperties", True)
        filled = {
            name: self.value(properties.get(name, extra if isinstance(extra, Mapping) else {"type": "string"}), (*path, name), depth + 1)
            for name in dict.fromkeys(names)
        }
        missing = schema.get("minProperties", 0) - len(filled)
        spare = {f"field_{n}": self.value(extra if isinstance(extra, Mapping) else {}, path, depth + 1) for n in range(missing)}
        return {**filled, **spare}

    def _array(self, schema: dict[str, Any], path: tuple[str, ...], depth: int) -> list[Any]:
        least, most = schema.get("minItems", 0), schema.get("maxItems", _MOST_ITEMS)
        fixed = [self.value(item, path, depth + 1) for item in schema.get("prefixItems", ())]
        item = schema.get("items", {})
        facts = (self._about(path[-1:]) or list(self._facts)) if depth < _DEEPEST else []
        pool = [*facts[: min(most, max(least, _MOST_ITEMS))]] if item is not False else []
        values = fixed + [_Filler(self._root, (fact,), fact).value(item, path, depth + 1) for fact in pool]
        unique = [value for index, value in enumerate(values) if value not in values[:index]] if "items" in schema or not fixed else fixed
        unique = unique[:most]
        while len(unique) < least:
            unique.append(self._spare(item, path, len(unique), depth, distinct=bool(schema.get("uniqueItems"))))
        return unique

    def _spare(self, item: Any, path: tuple[str, ...], number: int, depth: int, *, distinct: bool) -> Any:
        resolved = resolve(item, self._root)
        if distinct and resolved.get("enum"):
            return resolved["enum"][number % len(resolved["enum"])]
        value = self.value(item, path, depth + 1)
        if distinct and isinstance(value, str):
            return f"{value} ({number + 1})"
        if distinct and isinstance(value, int | float) and not isinstance(value, bool):
            return value + number * resolved.get("multipleOf", 1)
        return value

    def _chosen(self, values: Sequence[Any], path: tuple[str, ...]) -> Any:
        for fact in [*self._about(path), *self._facts]:
            for value in values:
                if isinstance(value, str) and value and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", fact, re.IGNORECASE):
                    return value
        return values[0]

    def _number(self, schema: dict[str, Any], path: tuple[str, ...], *, whole: bool) -> int | float:
        for fact in [*self._about(path), *(() if path else self._facts)]:
            for found in re.findall(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?![\w])", fact):
                value = float(found.replace(",", ""))
                number: int | float = int(value) if value.is_integer() else value
                if _is_valid(number, schema, self._root):
                    return number
        return _least_invented(schema, whole=whole)

    def _string(self, schema: dict[str, Any], path: tuple[str, ...]) -> str:
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        whole = self._text if self._text is not None and (not path or not self._about(path)) else None
        about = self._about(path)[:1] or list(self._facts[:1])
        text = whole if whole is not None else about[0] if about else ""
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        if "pattern" in schema:
            return _matching(schema["pattern"], [text, *self._facts], schema, self._root)
        if most is not None and len(text) > most:
            text = text[: most - 1].rsplit(" ", 1)[0][: most - 1] + "…" if most > 1 else text[:most]
        text = text or "unknown"
        return (text if most is None else text[:most]).ljust(least, ".")


def _least_invented(schema: Schema, *, whole: bool) -> int | float:
    """The number nearest to zero that the limits allow."""
    step = schema.get("multipleOf", 1 if whole else None)
    margin = step or 1e-6
    low = max((each for each in (schema.get("minimum"), _moved(schema.get("exclusiveMinimum"), margin)) if each is not None), default=None)
    high = min(
        (each for each in (schema.get("maximum"), _moved(schema.get("exclusiveMaximum"), -margin)) if each is not None), default=None
    )
    value = 0 if (low is None or low <= 0) and (high is None or high >= 0) else low if low is not None and low > 0 else high or 0
    if step:
        value = (math.ceil(value / step) if value > 0 else math.floor(value / step)) * step
    return int(value) if whole or float(value).is_integer() else value


def _moved(limit: float | None, by: float) -> float | None:
    return None if limit is None else limit + by


def _matching(pattern: str, texts: Sequence[str], schema: Schema, root: Schema) -> str:
    """A piece of the texts that matches; failing that, a few plain values that patterns often allow."""
    pieces = [piece for text in texts for piece in (text, *re.findall(r"[\w.+#-]+", text))]
    tries = [
        *pieces,
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
    ]
    try:
        return next(
            (piece for piece in tries if len(piece) <= 300 and matches(pattern, piece) and _is_valid(piece, schema, root)), "unknown"
        )
    except UnusablePattern:
        return "unknown"


def _type_of(schema: Schema) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    if kind is None:
        kind = (
            "object"
            if "properties" in schema or "required" in schema
            else "array"
            if "items" in schema or "prefixItems" in schema
            else "string"
        )
    return str(kind)


def _is_valid(value: Any, schema: Any, root: Schema) -> bool:
    if not isinstance(schema, Mapping):
        return schema is not False
    defs = {key: root[key] for key in ("$defs", "definitions") if key in root and key not in schema}
    try:
        return problem_with(value, {**defs, **schema}) is None
    except BrokenSchema:
        return True
