"""Fills a JSON Schema from claims. A property without a claim is left out or null."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from handoff_queue.shared.agent.json_schema_validation import BrokenSchema, find_problem
from handoff_queue.shared.providers.offline.citations import add_marker
from handoff_queue.shared.providers.offline.conversation import OfflineClaim
from handoff_queue.shared.providers.offline.sentences import build_name
from handoff_queue.shared.providers.offline.words import find_stems, split_words

Schema = Mapping[str, Any]
Claims = Sequence[OfflineClaim]
_MAX_DEPTH = 12
"""Levels of properties and of references that are followed."""
_MAX_TOGETHER = 3
"""Most claims in one string of `_GENERAL`."""
_MAX_NAMED = 20
"""Most paths of properties without a claim that an answer names."""
_NAMES = frozenset({"name", "title", "product", "thing", "subject", "item"})
_GENERAL = frozenset(
    """answer summary text overview description explanation result report content details facts
    points findings notes""".split()
)
"""Names of properties that any claim may fill."""
_SOURCES = frozenset({"source", "sources", "document", "file"})
_NUMBER = re.compile(r"(?<![\w.:,-])\d+(?:,\d{3})*(?:\.\d+)?(?![\d:]|[.,-]\d)")
_NEGATED = re.compile(r"\b(?:not|no|never|cannot|without|neither|nor|\w+n['’]t)\b", re.IGNORECASE)
_NOTHING = object()
"""Value of a property that no claim fills."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A value, the ids of its claims, and the paths of properties without a claim."""

    value: Any
    used_ids: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def fill(schema: Schema, claims: Claims, by_subject: Mapping[str, Claims]) -> Filled:
    """Return a value for the schema, and the paths of properties without a claim.

    The value is None if no claim fits, or if it would not match the schema although no claim
    is missing.

    Args:
        schema: JSON Schema of the value.
        claims: all claims.
        by_subject: claims about each subject of a comparison. A list of objects gets one object for
            each subject, or one for each document if there are no subjects.
    """
    subjects = dict(by_subject)
    if not by_subject:
        for claim in claims:
            name = build_name(claim.source)
            subjects[name] = [*subjects.get(name, ()), claim]
    form = _Form(schema, subjects)
    value = form.fill_value(schema, "", "", claims)
    if value is _NOTHING:
        return Filled(None, missing=tuple(form.missing[:_MAX_NAMED]) or ("the answer itself",))
    used_ids = tuple(dict.fromkeys(form.used_ids))
    if form.missing or is_valid(value, schema):
        return Filled(value, used_ids, tuple(form.missing[:_MAX_NAMED]))
    return Filled(None, missing=(f"a value for the schema: {find_problem(value, schema)}",))


def is_valid(value: Any, schema: Schema) -> bool:
    """Return whether a value matches a schema. Every value matches a broken schema."""
    try:
        return find_problem(value, schema) is None
    except BrokenSchema:
        return True


class _Form:
    """A schema while it is filled, with the used claims and the missing paths so far.

    In its methods, `path` is the path of a value, such as `laptops[1].price`. `subject` is the
    subject or document of the value, or "". `claims` are the claims that may fill the value.
    """

    def __init__(self, root: Schema, subjects: Mapping[str, Claims]) -> None:
        self.used_ids: list[str] = []
        self.missing: list[str] = []
        self._root = root
        self._subjects = subjects

    def fill_value(self, schema: Any, path: str, subject: str, claims: Claims) -> Any:
        """Return a value for a schema, or `_NOTHING` if no claim fills it."""
        schema = self._resolve_reference(schema)
        kind = schema.get("type", "object" if "properties" in schema else "string")
        options = schema.get("anyOf") or schema.get("oneOf") or []
        if isinstance(kind, list):
            options = []
            for option in kind:
                options.append({**schema, "type": option})
        if "const" in schema or path.count(".") > _MAX_DEPTH:
            return schema.get("const", _NOTHING)
        if options:
            return self._fill_first_option(options, path, subject, claims)
        if kind == "object":
            return self._fill_object(schema, path, subject, claims)
        if kind == "array":
            return self._fill_array(schema, path, subject, claims)
        if kind == "null":
            return None
        return self._fill_simple(schema, kind, path, subject, claims)

    def _resolve_reference(self, schema: Any) -> dict[str, Any]:
        """Return the target of a reference, or the schema itself if it is none. Only
        references into the root schema are followed.
        """
        for _ in range(_MAX_DEPTH):
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

    def _fill_first_option(
        self, options: Sequence[Any], path: str, subject: str, claims: Claims
    ) -> Any:
        """Return the value of the first option that the claims fill. Else return None if an
        option is null, or `_NOTHING`.
        """
        missing = len(self.missing)
        may_be_null = False
        for option in options:
            value = self.fill_value(option, path, subject, claims)
            if value is not _NOTHING and value is not None and len(self.missing) == missing:
                return value
            del self.missing[missing:]
            if self._resolve_reference(option).get("type") == "null":
                may_be_null = True
        if may_be_null:
            return None
        return _NOTHING

    def _fill_object(self, schema: Schema, path: str, subject: str, claims: Claims) -> Any:
        """Return an object. A property with the name of a subject gets the claims about this
        subject. Return `_NOTHING` if properties are required and no property has a value.
        """
        properties = schema.get("properties", {})
        required = schema.get("required", ())
        values: dict[str, Any] = {}
        is_filled = False
        for name in dict.fromkeys([*properties, *required]):
            inner = f"{path}.{name}".lstrip(".")
            own_subject = self._find_subject(name) or subject
            own_claims = claims
            if own_subject != subject:
                own_claims = self._subjects[own_subject]
            part = properties.get(name, {"type": "unknown"})
            value = self.fill_value(part, inner, own_subject, own_claims)
            if value is not _NOTHING:
                values[name] = value
                is_filled = is_filled or value is not None
            elif name in required:
                self.missing.append(inner)
        if is_filled or not required:
            return values
        return _NOTHING

    def _find_subject(self, name: str) -> str | None:
        """Return the subject with this name in any case, or None."""
        for subject in self._subjects:
            if subject.lower() == name.lower():
                return subject
        return None

    def _fill_array(self, schema: Schema, path: str, subject: str, claims: Claims) -> Any:
        """Return a list with a value for each claim, or with an object for each subject."""
        item_schema = self._resolve_reference(schema.get("items", {}))
        groups: list[tuple[str, Claims]] = []
        if item_schema.get("type") == "object" and not subject:
            groups.extend(self._subjects.items())
        else:
            for claim in _select_claims_for(path, claims):
                groups.append((subject, [claim]))
        values: list[Any] = []
        for name, group in groups[: schema.get("maxItems")]:
            value = self.fill_value(item_schema, f"{path}[{len(values)}]", name, group)
            if value is not _NOTHING and value not in values:
                values.append(value)
        return values or _NOTHING

    def _fill_simple(
        self, schema: Schema, kind: str, path: str, subject: str, claims: Claims
    ) -> Any:
        """Return the first valid string, number or choice from the claims about a property, or
        `_NOTHING`.
        """
        name = _get_property(path)
        is_text = kind == "string" and "enum" not in schema
        if is_text and name in _NAMES and subject and is_valid(subject, schema):
            return subject
        for group in _group_claims(name, claims, is_text=is_text):
            values = _find_values(group, schema, kind)
            if is_text and name in _SOURCES:
                values = [group[0].source]
            for value in values:
                if is_valid(value, schema):
                    self.used_ids.extend(claim.id for claim in group)
                    return value
        return _NOTHING


def _group_claims(name: str, claims: Claims, *, is_text: bool) -> list[Claims]:
    """Return the groups of claims from which a property may get its value, the best first."""
    groups: list[Claims] = []
    if is_text and claims and (name in _GENERAL or not name):
        groups.append(claims[:_MAX_TOGETHER])
    if is_text:
        about = _select_claims_for(name, claims)
    else:
        about = _select_claims_naming(name, claims)
    for claim in about:
        groups.append([claim])
    return groups


def _find_values(claims: Claims, schema: Schema, kind: str) -> list[Any]:
    """Return the possible values for a schema in a group of claims, the best first."""
    text = " ".join(claim.text for claim in claims)
    if "enum" in schema:
        return _find_choice(text, schema["enum"])
    if kind in ("integer", "number"):
        return _find_number(text)
    if kind != "string" or "format" in schema:
        return []
    return [" ".join(add_marker(claim.text, claim.id) for claim in claims), text]


def _find_choice(text: str, choices: Sequence[Any]) -> list[Any]:
    """Return the only choice that a text names. The list is empty if the text negates
    something, or names another number of choices.
    """
    words = set(split_words(text))
    named_choices: list[Any] = []
    for choice in choices:
        if set(split_words(str(choice))) <= words:
            named_choices.append(choice)
    if len(named_choices) == 1 and not _NEGATED.search(text):
        return named_choices
    return []


def _find_number(text: str) -> list[int | float]:
    """Return the only number of a text. The list is empty if the text has another number of
    numbers.
    """
    matches = _NUMBER.findall(text)
    if len(matches) != 1:
        return []
    number = float(matches[0].replace(",", ""))
    if number.is_integer():
        return [int(number)]
    return [number]


def _select_claims_for(path: str, claims: Claims) -> list[OfflineClaim]:
    """Return the claims that may fill a text or a list. For a general name these are all claims,
    else the claims with every word of the name.
    """
    name = _get_property(path)
    is_general = not name or name in _GENERAL | _SOURCES
    if is_general:
        return list(claims)
    return _select_claims_naming(name, claims)


def _select_claims_naming(name: str, claims: Claims) -> list[OfflineClaim]:
    """Return the claims that have every word of the name of a property."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    name_stems = find_stems(" ".join(words))
    naming: list[OfflineClaim] = []
    for claim in claims:
        if name_stems and name_stems <= find_stems(claim.text):
            naming.append(claim)
    return naming


def _get_property(path: str) -> str:
    """Return the name of the innermost property of a path."""
    return re.sub(r"\[\d+\]", "", path).rpartition(".")[2]
