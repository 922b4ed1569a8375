"""A value for a JSON Schema, taken from claims. Values without a claim are left out or null."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from handoff_queue.shared.agent.schemas import BrokenSchema, problem_with
from handoff_queue.shared.providers.offline.citations import marked
from handoff_queue.shared.providers.offline.conversation import Claim
from handoff_queue.shared.providers.offline.sentences import name_of
from handoff_queue.shared.providers.offline.words import stems_of, words_of

Schema = Mapping[str, Any]
Claims = Sequence[Claim]
_DEEPEST = 12
_MOST_TOGETHER = 3
"""Claims in one string that may hold any text."""
_MOST_NAMED = 20
"""Missing places that are named."""
_NAMES = frozenset({"name", "title", "product", "thing", "subject", "item"})
_GENERAL = frozenset(
    """answer summary text overview description explanation result report content details facts
    points findings notes""".split()
)
"""Names of texts that any claim may fill."""
_SOURCES = frozenset({"source", "sources", "document", "file"})
_NUMBER = re.compile(r"(?<![\w.:,-])\d+(?:,\d{3})*(?:\.\d+)?(?![\d:]|[.,-]\d)")
_NEGATED = re.compile(r"\b(?:not|no|never|cannot|without|neither|nor|\w+n['’]t)\b", re.IGNORECASE)
_NOTHING = object()
"""The value where no claim fits."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A value, the ids of its claims, and the places without a claim."""

    value: Any
    used: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def fill(schema: Schema, claims: Claims, by_thing: Mapping[str, Claims]) -> Filled:
    """Return a valid value, or the missing places.

    `by_thing`: the claims about each of several things. A list of objects has one for each thing.
    Without things, it has one for each document.
    """
    things = dict(by_thing)
    for claim in claims if not by_thing else ():
        name = name_of(claim.source)
        things[name] = [*things.get(name, ()), claim]
    form = _Form(schema, things)
    value = form.value(schema, "", "", claims)
    if value is _NOTHING:
        return Filled(None, missing=tuple(form.missing[:_MOST_NAMED]) or ("the answer itself",))
    used = tuple(dict.fromkeys(form.used))
    if form.missing or is_valid(value, schema):
        return Filled(value, used, tuple(form.missing[:_MOST_NAMED]))
    return Filled(None, missing=(f"a value for the schema: {problem_with(value, schema)}",))


def is_valid(value: Any, schema: Schema) -> bool:
    """Return whether a value matches a schema. A broken schema takes any value."""
    try:
        return problem_with(value, schema) is None
    except BrokenSchema:
        return True


class _Form:
    """A form while it is filled.

    `place` is the path of a value, as in `laptops[1].price`. `thing` is the thing or document that
    the place is about, and `claims` are the claims that may fill the place.
    """

    def __init__(self, root: Schema, things: Mapping[str, Claims]) -> None:
        self.used: list[str] = []
        self.missing: list[str] = []
        self._root = root
        self._things = things

    def value(self, schema: Any, place: str, thing: str, claims: Claims) -> Any:
        schema = self._resolved(schema)
        kind = schema.get("type", "object" if "properties" in schema else "string")
        options = schema.get("anyOf") or schema.get("oneOf") or []
        if isinstance(kind, list):
            options = []
            for each in kind:
                options.append({**schema, "type": each})
        if "const" in schema or place.count(".") > _DEEPEST:
            return schema.get("const", _NOTHING)
        if options:
            return self._first_of(options, place, thing, claims)
        if kind == "object":
            return self._object(schema, place, thing, claims)
        if kind == "array":
            return self._array(schema, place, thing, claims)
        if kind == "null":
            return None
        return self._simple(schema, kind, place, thing, claims)

    def _resolved(self, schema: Any) -> dict[str, Any]:
        """Return the schema that a reference within the root leads to."""
        for _ in range(_DEEPEST):
            if not isinstance(schema, Mapping) or "$ref" not in schema:
                break
            target: Any = self._root
            for part in str(schema["$ref"]).removeprefix("#").strip("/").split("/"):
                if part and isinstance(target, Mapping):
                    target = target.get(part, {})
            schema = target
        if isinstance(schema, Mapping):
            return dict(schema)
        return {}

    def _first_of(self, options: Sequence[Any], place: str, thing: str, claims: Claims) -> Any:
        """Return the value of the first option that the claims fill, or null if it is allowed."""
        missing = len(self.missing)
        for option in options:
            value = self.value(option, place, thing, claims)
            if value is not _NOTHING and value is not None and len(self.missing) == missing:
                return value
            del self.missing[missing:]
        is_null = any(self._resolved(option).get("type") == "null" for option in options)
        if is_null:
            return None
        return _NOTHING

    def _object(self, schema: Schema, place: str, thing: str, claims: Claims) -> Any:
        properties = schema.get("properties", {})
        required = schema.get("required", ())
        values = {}
        for name in dict.fromkeys([*properties, *required]):
            inner = f"{place}.{name}".lstrip(".")
            own = next((each for each in self._things if each.lower() == name.lower()), thing)
            if own == thing:
                about = claims
            else:
                about = self._things[own]
            part = properties.get(name, {"type": "unknown"})
            value = self.value(part, inner, own, about)
            if value is not _NOTHING:
                values[name] = value
            elif name in required:
                self.missing.append(inner)
        is_said = any(value is not None for value in values.values())
        if is_said or not required:
            return values
        return _NOTHING

    def _array(self, schema: Schema, place: str, thing: str, claims: Claims) -> Any:
        items = self._resolved(schema.get("items", {}))
        groups = [(thing, [claim]) for claim in _about(place, claims)]
        if items.get("type") == "object" and not thing:
            groups = [(each, list(about)) for each, about in self._things.items()]
        values: list[Any] = []
        for name, about in groups[: schema.get("maxItems")]:
            value = self.value(items, f"{place}[{len(values)}]", name, about)
            if value is not _NOTHING and value not in values:
                values.append(value)
        return values or _NOTHING

    def _simple(self, schema: Schema, kind: str, place: str, thing: str, claims: Claims) -> Any:
        """Return the first valid string, number or choice out of the claims about a property."""
        name = _property_of(place)
        is_text = kind == "string" and "enum" not in schema
        if is_text and name in _NAMES and thing and is_valid(thing, schema):
            return thing
        groups = [
            [claim] for claim in (_about(place, claims) if is_text else _naming(name, claims))
        ]
        if is_text and (name in _GENERAL or not name):
            if claims:
                groups = [list(claims[:_MOST_TOGETHER]), *groups]
            else:
                groups = []
        for group in groups:
            values = _values_in(group, schema, kind)
            for value in [group[0].source] if is_text and name in _SOURCES else values:
                if is_valid(value, schema):
                    self.used += [claim.id for claim in group]
                    return value
        return _NOTHING


def _values_in(claims: Claims, schema: Schema, kind: str) -> list[Any]:
    """Return the values that claims have for a schema, the best first."""
    text = " ".join(claim.text for claim in claims)
    if "enum" in schema:
        words = set(words_of(text))
        named: list[Any] = []
        for each in schema["enum"]:
            if set(words_of(str(each))) <= words:
                named.append(each)
        if len(named) == 1 and not _NEGATED.search(text):
            return named
        return []
    if kind in ("integer", "number"):
        numbers = [float(number.replace(",", "")) for number in _NUMBER.findall(text)]
        whole = [int(number) if number.is_integer() else number for number in numbers]
        if len(whole) == 1:
            return whole
        return []
    if kind != "string" or "format" in schema:
        return []
    return [" ".join(marked(claim.text, claim.id) for claim in claims), text]


def _about(place: str, claims: Claims) -> list[Claim]:
    """Return the claims that may fill a text or a list."""
    name = _property_of(place)
    is_general = not name or name in _GENERAL | _SOURCES
    if is_general:
        return list(claims)
    return _naming(name, claims)


def _naming(name: str, claims: Claims) -> list[Claim]:
    """Return the claims that have every word of the name of a property."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    wanted = stems_of(" ".join(words))
    items: list[Claim] = []
    for claim in claims:
        if wanted and wanted <= stems_of(claim.text):
            items.append(claim)
    return items


def _property_of(place: str) -> str:
    """Return the name of the innermost property of a place."""
    return re.sub(r"\[\d+\]", "", place).rpartition(".")[2]
