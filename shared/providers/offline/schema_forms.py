"""Filling the form that a JSON Schema asks for out of claims: what they do not say is left
out, or null where that is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from handoff_queue.shared.providers.offline.conversation import KnownClaim
from handoff_queue.shared.providers.offline.schema_parts import (
    DEEPEST,
    Schema,
    is_valid,
    resolve,
    type_of,
)
from handoff_queue.shared.providers.offline.statements import marked
from handoff_queue.shared.providers.offline.topic import FIT
from handoff_queue.shared.providers.offline.values import (
    choices_in,
    formatted_in,
    number_in,
    pieces_of,
    wanted_by,
    yes_or_no_in,
)
from handoff_queue.shared.types.patterns import UnusablePattern, matches

_MOST_ITEMS = 50
_MOST_TOGETHER = 3
"""Statements that a text of no particular subject is made of."""
_NAMES = frozenset({"name", "title", "product", "thing", "subject", "item"})
_SOURCES = frozenset({"source", "sources", "document", "file"})
_GENERAL = frozenset(
    "answer summary text overview description explanation result report content details facts points findings notes highlights".split()
)
_ADVICE = frozenset(
    {"recommendation", "recommended", "advice", "best", "choice", "conclusion", "verdict"}
)


@dataclass(frozen=True, slots=True)
class Subject:
    """One of the things that the form is about, and what the claims say of it."""

    name: str
    claims: tuple[KnownClaim, ...]


@dataclass(frozen=True, slots=True)
class Filled:
    """A value, or none."""

    value: Any = None
    used: tuple[str, ...] = ()
    """The claims that it was taken from."""
    missing: tuple[str, ...] = ()
    """What the form requires, and no claim says: `products[0].price`."""
    is_there: bool = True


_NOTHING = Filled(is_there=False)


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where in the form, and what may be drawn on there."""

    path: tuple[str, ...]
    claims: tuple[KnownClaim, ...]
    subject: str | None = None

    @property
    def name(self) -> str:
        """The nearest property's."""
        return next((part for part in reversed(self.path) if not part.startswith("[")), "")

    @property
    def place(self) -> str:
        return (
            "".join(part if part.startswith("[") else f".{part}" for part in self.path).lstrip(".")
            or "the answer itself"
        )

    def at(self, part: str, **changes: Any) -> _Scope:
        return replace(self, path=(*self.path, part), **changes)

    def about(self, *, wholly: bool = False) -> list[KnownClaim]:
        """The claims that speak of what the property is called, those that say most first."""
        wanted = wanted_by(self.name)
        scored = [(wanted.score(claim.text, wholly=wholly), claim) for claim in self.claims]
        return [claim for score, claim in sorted(scored, key=lambda pair: -pair[0]) if score]


def fill_in(
    schema: Schema,
    claims: Sequence[KnownClaim],
    subjects: Sequence[Subject] = (),
    *,
    root: Schema | None = None,
) -> Filled:
    """The form, filled. It is valid against the schema if nothing is missing; what is missing
    is not in it.
    """
    form = _Form(root if root is not None else schema, tuple(subjects))
    filled = form.value(schema, _Scope((), tuple(claims)))
    if filled.is_there and not filled.missing and not is_valid(filled.value, schema, form.root):
        return replace(filled, missing=("what the form as a whole asks for",))
    if filled.is_there:
        return filled
    kind = type_of(resolve(schema, form.root))
    return Filled(
        {} if kind == "object" else [] if kind == "array" else None,
        missing=filled.missing or ("the answer itself",),
        is_there=False,
    )


class _Form:
    def __init__(self, root: Schema, subjects: tuple[Subject, ...]) -> None:
        self.root = root
        self._subjects = subjects

    def value(self, schema: Any, scope: _Scope) -> Filled:
        resolved = resolve(schema, self.root)
        if "const" in resolved:
            return Filled(resolved["const"])
        found = self._said(resolved, scope) if len(scope.path) < DEEPEST else _NOTHING
        if found.is_there and not found.missing:
            return found
        names_null = any(
            key in resolved for key in ("type", "enum", "anyOf", "oneOf")
        ) and is_valid(None, resolved, self.root)
        return Filled(None) if names_null and scope.path else found

    def _said(self, schema: dict[str, Any], scope: _Scope) -> Filled:
        if "enum" in schema:
            return self._choice(schema["enum"], scope)
        if several := schema.get("anyOf") or schema.get("oneOf"):
            return self._any_of(schema, several, scope)
        by_type = {
            "object": self._object,
            "array": self._array,
            "integer": self._number,
            "number": self._number,
            "boolean": self._yes_or_no,
            "null": self._null,
        }
        return by_type.get(type_of(schema), self._string)(schema, scope)

    def _any_of(self, schema: dict[str, Any], several: Sequence[Any], scope: _Scope) -> Filled:
        """The option of which least is missing."""
        common = {name: value for name, value in schema.items() if name not in ("anyOf", "oneOf")}
        options = [resolve({"allOf": [option, common]}, self.root) for option in several]
        found = [self.value(option, scope) for option in options if type_of(option) != "null"]
        return min(
            (each for each in found if each.is_there and each.value is not None),
            key=lambda each: len(each.missing),
            default=_NOTHING,
        )

    def _null(self, _schema: dict[str, Any], _scope: _Scope) -> Filled:
        return Filled(None)

    def _yes_or_no(self, _schema: dict[str, Any], scope: _Scope) -> Filled:
        return next(
            (Filled(yes_or_no_in(claim.text), (claim.id,)) for claim in scope.about(wholly=True)),
            _NOTHING,
        )

    def _object(self, schema: dict[str, Any], scope: _Scope) -> Filled:
        properties, required, extra = (
            schema.get("properties", {}),
            schema.get("required", ()),
            schema.get("additionalProperties"),
        )
        of_subject = (
            {subject.name: extra for subject in self._subjects}
            if isinstance(extra, Mapping) and not scope.subject
            else {}
        )
        values: dict[str, Filled] = {}
        missing: list[str] = []
        for name, part in {
            **of_subject,
            **properties,
            **{name: {} for name in required if name not in properties},
        }.items():
            found = (
                self.value(part, self._narrowed(name, scope))
                if part != {} or name in properties
                else _NOTHING
            )
            if found.is_there:
                values[name] = found
                missing += found.missing
            elif name in required:
                missing.append(scope.at(name).place)
        is_there = any(
            each.used or each.value for each in values.values() if each.value is not None
        )
        used = tuple(dict.fromkeys(claim for each in values.values() for claim in each.used))
        return Filled(
            {name: each.value for name, each in values.items()},
            used,
            tuple(missing),
            is_there or not required,
        )

    def _narrowed(self, name: str, scope: _Scope) -> _Scope:
        """Below a property that is called like one of the subjects, only what is said of that
        one counts.
        """
        subject = next(
            (each for each in self._subjects if _folded(each.name) == _folded(name)), None
        )
        return (
            scope.at(name, subject=subject.name, claims=subject.claims)
            if subject
            else scope.at(name)
        )

    def _array(self, schema: dict[str, Any], scope: _Scope) -> Filled:
        item = schema.get("items", {})
        scopes = [
            self._indexed(scope, index, each) for index, each in enumerate(self._items(item, scope))
        ]
        fixed = [
            self.value(part, scope.at(f"[{index}]"))
            for index, part in enumerate(schema.get("prefixItems", ()))
        ]
        found = (
            [*fixed, *(self.value(item, each) for each in scopes if item is not False)]
            if not fixed or "items" in schema
            else fixed
        )
        if "enum" in (choices := resolve(item, self.root)):
            found = [
                Filled(value, (claim.id,))
                for claim in scope.about() or scope.claims
                for value in choices_in(claim.text, choices["enum"])
            ]
        kept: list[Filled] = []
        for each in found:
            if (
                each.is_there
                and each.value is not None
                and all(each.value != other.value for other in kept)
            ):
                kept.append(each)
        kept = kept[: schema.get("maxItems", _MOST_ITEMS)]
        missing = [place for each in kept for place in each.missing]
        if len(kept) < schema.get("minItems", 0):
            missing.append(f"{scope.place}: {schema['minItems']} of them")
        used = tuple(dict.fromkeys(claim for each in kept for claim in each.used))
        return Filled([each.value for each in kept], used, tuple(missing)) if kept else _NOTHING

    def _items(self, item: Any, scope: _Scope) -> list[Subject]:
        """What an array has one item of: objects of each subject, anything else of each statement."""
        kind = type_of(resolve(item, self.root))
        if kind == "object" and self._subjects and not scope.subject:
            return list(self._subjects)
        if kind == "string" and scope.name in _SOURCES:
            return [Subject("", (claim,)) for claim in scope.claims]
        claims = scope.about() or (
            scope.claims if kind == "object" or scope.name in _GENERAL or not scope.name else ()
        )
        return [Subject("", (claim,)) for claim in claims]

    def _indexed(self, scope: _Scope, index: int, item: Subject) -> _Scope:
        return scope.at(f"[{index}]", claims=item.claims, subject=item.name or scope.subject)

    def _choice(self, values: Sequence[Any], scope: _Scope) -> Filled:
        for claim in scope.about() or (scope.claims if scope.name in (_ADVICE | _NAMES) else ()):
            if found := choices_in(claim.text, values):
                return Filled(found[0], (claim.id,))
        return _NOTHING

    def _number(self, schema: dict[str, Any], scope: _Scope) -> Filled:
        wanted = wanted_by(scope.name)
        for claim in scope.about(wholly=wanted.unit is None):
            value = number_in(claim.text, wanted)
            if value is not None and is_valid(value, schema, self.root):
                return Filled(value, (claim.id,))
        return _NOTHING

    def _string(self, schema: dict[str, Any], scope: _Scope) -> Filled:
        if scope.name in _NAMES and scope.subject:
            return Filled(scope.subject) if is_valid(scope.subject, schema, self.root) else _NOTHING
        if scope.name in _SOURCES:
            return next(
                (Filled(claim.source, (claim.id,)) for claim in scope.claims if claim.source),
                _NOTHING,
            )
        claims = self._for_text(scope)
        if "format" in schema or "pattern" in schema:
            claims = claims or list(scope.claims[:1] if len(scope.claims) == 1 else ())
            return next(
                (found for claim in claims if (found := self._formal(schema, claim)).is_there),
                _NOTHING,
            )
        together = claims[: _MOST_TOGETHER if scope.name in _GENERAL or not scope.path else 1]
        for some in (together, together[:1]):
            for text in (
                " ".join(marked(claim.text, claim.id) for claim in some),
                " ".join(claim.text for claim in some),
            ):
                if some and is_valid(text, schema, self.root):
                    return Filled(text, tuple(claim.id for claim in some))
        return _NOTHING

    def _for_text(self, scope: _Scope) -> list[KnownClaim]:
        if scope.path and scope.path[-1].startswith("["):
            return list(scope.claims)
        if scope.name in _ADVICE:
            return [claim for claim in scope.claims if FIT.score(claim.text)]
        return scope.about() or (
            list(scope.claims) if scope.name in _GENERAL or not scope.path else []
        )

    def _formal(self, schema: dict[str, Any], claim: KnownClaim) -> Filled:
        """What stands in a statement in the format, or to the pattern, that a string must have."""
        if "pattern" not in schema:
            tries = [found] if (found := formatted_in(claim.text, schema["format"])) else []
        else:
            try:
                tries = [
                    piece for piece in pieces_of(claim.text) if matches(schema["pattern"], piece)
                ]
            except UnusablePattern:
                tries = []
        return next(
            (Filled(each, (claim.id,)) for each in tries if is_valid(each, schema, self.root)),
            _NOTHING,
        )


def _folded(name: str) -> str:
    return "".join(ch for ch in name.lower() if ch.isalnum())
