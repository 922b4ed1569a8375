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
_DEEPEST = 12
_MOST_TOGETHER = 3
"""Claims in one string that may hold any text."""
_MOST_NAMED = 20
"""Missing places that are named."""
_NAMES = frozenset({"name", "title", "product", "thing", "subject", "item"})
_SOURCES = frozenset({"source", "sources", "document", "file"})
_GENERAL = frozenset(
    """answer summary text overview description explanation result report content details facts
    points findings notes""".split()
)
"""Names of properties that any claim may fill."""
_NUMBER = re.compile(r"(?<![\w.:,-])\d+(?:,\d{3})*(?:\.\d+)?(?![\d:]|[.,-]\d)")
_NEGATED = re.compile(r"\b(?:not|no|never|cannot|without|neither|nor|\w+n['’]t)\b", re.IGNORECASE)
_NOTHING = object()
"""The claims do not say it."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A value, the claims that it comes from, and the places that no claim fills."""

    value: Any
    used: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def fill(
    schema: Schema, claims: Sequence[Claim], by_thing: Mapping[str, Sequence[Claim]]
) -> Filled:
    """Return a valid value, or the missing places.

    `by_thing`: the claims about each of several things. A list of objects has one for each thing.
    Without things, it has one for each document.
    """
    form = _Form(schema, claims, by_thing)
    value = form.value(schema, _Scope((), "", tuple(claims)))
    if value is _NOTHING:
        missing = form.missing[:_MOST_NAMED] or ["the answer itself"]
        return Filled(None, missing=tuple(missing))
    used = tuple(dict.fromkeys(form.used))
    if form.missing:
        return Filled(value, used, tuple(form.missing[:_MOST_NAMED]))
    if is_valid(value, schema):
        return Filled(value, used)
    return Filled(None, missing=(f"what the schema asks for: {problem_with(value, schema)}",))


@dataclass(frozen=True, slots=True)
class _Scope:
    """A place in the form, and the claims that may fill it."""

    path: tuple[str, ...]
    thing: str
    claims: tuple[Claim, ...]

    @property
    def name(self) -> str:
        return next((part for part in reversed(self.path) if not part.startswith("[")), "")

    @property
    def place(self) -> str:
        text = "".join(part if part.startswith("[") else f".{part}" for part in self.path)
        return text.lstrip(".") or "the answer itself"

    def at(self, part: str) -> _Scope:
        return _Scope((*self.path, part), self.thing, self.claims)

    def about(self) -> list[Claim]:
        """Return the claims that have every word of the property's name."""
        wanted = stems_of(" ".join(_words_of_name(self.name)))
        return [claim for claim in self.claims if wanted and wanted <= stems_of(claim.text)]


class _Form:
    def __init__(
        self, root: Schema, claims: Sequence[Claim], by_thing: Mapping[str, Sequence[Claim]]
    ) -> None:
        self.used: list[str] = []
        self.missing: list[str] = []
        self._root = root
        self._things = {thing: tuple(about) for thing, about in by_thing.items()}
        if not by_thing:
            for claim in claims:
                name = name_of(claim.source)
                self._things[name] = (*self._things.get(name, ()), claim)

    def value(self, schema: Any, scope: _Scope) -> Any:
        """Return the value for a part of the schema, or _NOTHING."""
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        options = schema.get("anyOf") or schema.get("oneOf") or []
        kinds = schema.get("type", "object" if "properties" in schema else "string")
        if isinstance(kinds, list):
            options = [{**schema, "type": kind} for kind in kinds]
        if len(scope.path) > _DEEPEST:
            return _NOTHING
        if options:
            return self._first_of(options, scope)
        kind = "enum" if "enum" in schema else kinds
        by_kind = {
            "enum": self._choice,
            "object": self._object,
            "array": self._array,
            "integer": self._number,
            "number": self._number,
            "string": self._string,
        }
        if kind not in by_kind:
            return None if kind == "null" else _NOTHING
        used = len(self.used)
        value = by_kind[kind](schema, scope)
        if kind not in ("object", "array") and not is_valid(value, schema):
            del self.used[used:]
            return _NOTHING
        return value

    def _resolved(self, schema: Any) -> dict[str, Any]:
        """Return the schema that a reference within the root leads to."""
        for _ in range(_DEEPEST):
            if not isinstance(schema, Mapping) or "$ref" not in schema:
                break
            target: Any = self._root
            for part in str(schema["$ref"]).removeprefix("#").strip("/").split("/"):
                target = target.get(part, {}) if part and isinstance(target, Mapping) else target
            schema = target
        return dict(schema) if isinstance(schema, Mapping) else {}

    def _first_of(self, options: Sequence[Any], scope: _Scope) -> Any:
        """Return the value of the first option that the claims fill, else null if it is allowed."""
        missing = len(self.missing)
        for option in options:
            value = self.value(option, scope)
            if value is not _NOTHING and value is not None and len(self.missing) == missing:
                return value
            del self.missing[missing:]
        is_null = any(self._resolved(option).get("type") == "null" for option in options)
        return None if is_null else _NOTHING

    def _object(self, schema: Schema, scope: _Scope) -> Any:
        properties = schema.get("properties", {})
        required = schema.get("required", ())
        values = {}
        for name in dict.fromkeys([*properties, *required]):
            thing = next((each for each in self._things if each.lower() == name.lower()), None)
            inner = scope.at(name)
            if thing is not None:
                inner = _Scope(inner.path, thing, self._things[thing])
            value = self.value(properties[name], inner) if name in properties else _NOTHING
            if value is not _NOTHING:
                values[name] = value
            elif name in required:
                self.missing.append(inner.place)
        is_said = any(value is not None for value in values.values())
        return values if is_said or not required else _NOTHING

    def _array(self, schema: Schema, scope: _Scope) -> Any:
        items = self._resolved(schema.get("items", {}))
        is_list_of_things = items.get("type") == "object" and not scope.thing
        if is_list_of_things:
            groups = list(self._things.items())
        elif scope.name in _GENERAL | _SOURCES or not scope.name:
            groups = [(scope.thing, (claim,)) for claim in scope.claims]
        else:
            groups = [(scope.thing, (claim,)) for claim in scope.about()]
        values: list[Any] = []
        for thing, claims in groups[: schema.get("maxItems", 50)]:
            inner = _Scope((*scope.path, f"[{len(values)}]"), thing, claims)
            value = self.value(items, inner)
            if value is not _NOTHING and value not in values:
                values.append(value)
        return values or _NOTHING

    def _choice(self, schema: Schema, scope: _Scope) -> Any:
        """Return the only choice that a claim about the property names."""
        for claim in scope.about():
            words = words_of(claim.text)
            named = [each for each in schema["enum"] if set(words_of(str(each))) <= set(words)]
            if len(named) == 1 and named[0] is not None and not _NEGATED.search(claim.text):
                self.used.append(claim.id)
                return named[0]
        return _NOTHING

    def _number(self, schema: Schema, scope: _Scope) -> Any:
        """Return the only number of a claim that has every word of the property's name."""
        for claim in scope.about():
            numbers = _NUMBER.findall(claim.text)
            if len(numbers) != 1:
                continue
            number = float(numbers[0].replace(",", ""))
            if number.is_integer() or schema["type"] == "number":
                self.used.append(claim.id)
                return int(number) if number.is_integer() else number
        return _NOTHING

    def _string(self, schema: Schema, scope: _Scope) -> Any:
        if scope.name in _NAMES and scope.thing:
            return scope.thing
        if scope.name in _SOURCES and scope.claims:
            self.used.append(scope.claims[0].id)
            return scope.claims[0].source
        if "format" in schema:
            return _NOTHING
        claims = scope.about()[:1]
        if scope.name in _GENERAL or not scope.name:
            claims = list(scope.claims[:_MOST_TOGETHER])
        for some in (claims, claims[:1]):
            for text in (
                " ".join(marked(claim.text, claim.id) for claim in some),
                " ".join(claim.text for claim in some),
            ):
                if some and is_valid(text, schema):
                    self.used += [claim.id for claim in some]
                    return text
        return _NOTHING


def is_valid(value: Any, schema: Schema) -> bool:
    """Return whether a value matches a schema. A broken schema takes any value."""
    if value is _NOTHING:
        return True
    try:
        return problem_with(value, schema) is None
    except BrokenSchema:
        return True


def _words_of_name(name: str) -> list[str]:
    """Return the words of a name: `batteryLife_hours` has battery, life and hours."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
