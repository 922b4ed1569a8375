"""Validation of values with JSON Schema, dialect 2020-12. A problem is described in one line.
No reference is fetched from the network.

The validation limits its own work, because no other thread can stop it. The work is counted in
steps. Each keyword, subschema and error takes one step or more. The limit on processor time is
for a single expensive step and for a slow machine.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any

import jsonschema
import referencing
import referencing.exceptions
from pydantic import JsonValue, TypeAdapter, ValidationError
from referencing.jsonschema import DRAFT202012

from handoff_queue.shared.types.errors import HandoffError
from handoff_queue.shared.types.json_values import check_storable
from handoff_queue.shared.types.regex_patterns import (
    UnusablePattern,
    check_schema_patterns,
    estimate_match_cost,
    matches,
)

MAX_STEPS = 200_000
"""Steps of one validation. 10,000 objects with five checked properties need about 150,000."""
MAX_CPU_S = 4.0
"""Processor seconds of one validation. 200,000 cheap steps take about 1 s on a laptop."""
MAX_MESSAGE_CHARS = 300
"""Longest message of an error. jsonschema writes the whole value into each message."""
_END_CHARS = 100
"""Characters that a cut message keeps of its end, which names the problem."""
_TEXT_UNITS_PER_STEP = 2_000
"""Cost of a pattern match (`estimate_match_cost`) that counts as one step. RE2 needs at most about
8 µs.
"""

_Errors = Iterator[jsonschema.ValidationError]
_Keyword = Callable[[Any, Any, Any, Any], Any]
_base: Mapping[str, _Keyword] = jsonschema.Draft202012Validator.VALIDATORS


_budget: ContextVar[_Budget | None] = ContextVar("budget of the validation", default=None)
UNSUPPORTED = {
    "unevaluatedProperties": "additionalProperties",
    "unevaluatedItems": "items",
}
"""Unsupported keywords, each with the keyword to use instead.

For these, jsonschema searches all branches for the evaluated parts again. It has no hook that
could count this work.
"""
MAX_EXPANDED = 10_000
"""Subschemas that apply to one value. A subschema counts once for each path that leads to it."""
MAX_SCHEMA_STEPS = 300_000
"""Steps of the check of one schema, which take about 1.5 s on a laptop. A subschema needs 40 to 100
steps.
"""
MAX_SCHEMA_CPU_S = 15.0
"""Processor seconds of the check of one schema."""
_NOWHERE: referencing.Registry[Any] = referencing.Registry()
"""An empty registry. jsonschema's default registry would fetch a remote `$ref`."""
_json: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])
_REFERENCES = ("$ref", "$dynamicRef")
_AT_THE_SAME_PLACE = ("not", "if", "then", "else")
"""Keywords whose schema applies to the value itself and not to a part of the value."""
_SEVERAL_AT_THE_SAME_PLACE = ("allOf", "anyOf", "oneOf")
"""Keywords with a list of such schemas."""


class ValidationTooCostly(HandoffError):
    """A validation took more steps or more processor time than it may."""


class UnsupportedKeyword(HandoffError):
    """The schema has a keyword of `UNSUPPORTED`, whose work cannot be counted."""


class _Budget:
    """The remaining steps and processor time of one validation."""

    def __init__(self, steps: int, cpu_s: float) -> None:
        self._steps = steps
        self._deadline = time.thread_time() + cpu_s

    def spend(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0 or time.thread_time() > self._deadline:
            raise ValidationTooCostly("too costly to check")


@contextmanager
def limit_validation(steps: int = MAX_STEPS, cpu_s: float = MAX_CPU_S) -> Iterator[None]:
    """Limit the work of all validations in the block together. Beyond the limit they raise
    `ValidationTooCostly`.
    """
    token = _budget.set(_Budget(steps, cpu_s))
    try:
        yield
    finally:
        _budget.reset(token)


def spend(steps: int = 1) -> None:
    """Take steps from the limit of the current `limit_validation` block, if there is one.

    Raises:
        ValidationTooCostly: the block has used up its steps or its processor time.
    """
    budget = _budget.get()
    if budget is not None:
        budget.spend(steps)


def shorten_message(message: str) -> str:
    """Return the message. If it has more than `MAX_MESSAGE_CHARS`, its middle is left out."""
    if len(message) <= MAX_MESSAGE_CHARS:
        return message
    gap = " ... "
    begin = message[: MAX_MESSAGE_CHARS - _END_CHARS - len(gap)]
    return begin + gap + message[-_END_CHARS:]


def _add_step_count(keyword: _Keyword) -> _Keyword:
    """Return the keyword's check, which now also counts its steps and shortens its messages."""

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> _Errors:
        spend()
        for error in keyword(validator, value, instance, schema) or ():
            spend()
            error.message = shorten_message(error.message)
            error.args = (error.message,)
            yield error

    return check


def _evolve(validator: Any, **changes: Any) -> Any:
    """Return the validator of a subschema.

    jsonschema's own method changes to another class where the subschema has a `$schema`. That
    class counts nothing and matches patterns with Python's `re`.
    """
    spend()
    resolver = changes.get("_resolver", validator._resolver)
    return BoundedValidator(changes["schema"], _resolver=resolver)


def _matches(pattern: str, text: str) -> bool:
    spend(1 + estimate_match_cost(pattern, text) // _TEXT_UNITS_PER_STEP)
    return matches(pattern, text)


def _check_pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> _Errors:
    if validator.is_type(instance, "string") and not _matches(pattern, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _check_pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, _schema: Any
) -> _Errors:
    if not validator.is_type(instance, "object"):
        return
    for key, value in instance.items():
        for pattern, subschema in patterns.items():
            if _matches(pattern, key):
                yield from validator.descend(value, subschema, path=key, schema_path=pattern)


def _check_additional_properties(
    validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]
) -> _Errors:
    """Run jsonschema's own check. Properties that match a pattern count as known properties."""
    known = dict(schema.get("properties", {}))
    if validator.is_type(instance, "object"):
        for name in instance:
            if _matches_any(schema.get("patternProperties", ()), name):
                known[name] = True
    yield from _base["additionalProperties"](validator, value, instance, {"properties": known})


def _matches_any(patterns: Iterable[str], text: str) -> bool:
    return any(_matches(pattern, text) for pattern in patterns)


def _check_unique_items(validator: Any, is_wanted: bool, instance: Any, _schema: Any) -> _Errors:
    """Compare the items by their JSON text. jsonschema would compare every pair of items."""
    if not is_wanted or not validator.is_type(instance, "array"):
        return
    seen = set[str]()
    for item in instance:
        text = json.dumps(_with_integers(item), sort_keys=True)
        if text in seen:
            yield jsonschema.ValidationError(f"{instance!r} has non-unique elements")
            return
        seen.add(text)


def _with_integers(value: Any) -> Any:
    """Return the value with 1 in place of 1.0, because JSON Schema takes both as equal."""
    spend()
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_integers(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _check_multiple_of(validator: Any, divisor: Any, instance: Any, schema: Any) -> _Errors:
    try:
        yield from _base["multipleOf"](validator, divisor, instance, schema)
    except OverflowError:  # an integer that no float can hold
        if (Fraction(instance) / Fraction(divisor)).denominator != 1:
            yield jsonschema.ValidationError(f"{instance!r} is not a multiple of {divisor}")


def _make_refusing_check(name: str) -> _Keyword:
    def check(_validator: Any, _value: Any, _instance: Any, _schema: Any) -> _Errors:
        raise UnsupportedKeyword(name)

    return check


_KEYWORDS: dict[str, _Keyword] = {
    **_base,
    "pattern": _check_pattern,
    "patternProperties": _check_pattern_properties,
    "additionalProperties": _check_additional_properties,
    "uniqueItems": _check_unique_items,
    "multipleOf": _check_multiple_of,
    **{name: _make_refusing_check(name) for name in UNSUPPORTED},
}

BoundedValidator: Any = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator,
    {name: _add_step_count(keyword) for name, keyword in _KEYWORDS.items()},
)
BoundedValidator.evolve = _evolve


class BrokenSchema(HandoffError):
    """The schema cannot be used. For example, it is not a JSON Schema, a reference has no target,
    or RE2 does not take a pattern.
    """


def check_schema(schema: object) -> None:
    """Check that a schema can be used for validation.

    Raises:
        BrokenSchema: the schema cannot be used. The message gives the problem and its fix, as the
            rest of a sentence that begins with the schema's name.
    """
    try:
        _check_values(schema)
        plain = _without_dialect(_json.validate_python(schema, strict=True))
        with limit_validation(MAX_SCHEMA_STEPS, MAX_SCHEMA_CPU_S):
            _check_form(plain)
            check_schema_patterns(plain)
            _check_references(plain)
    except ValidationTooCostly as error:
        raise BrokenSchema(
            f"needs more than {MAX_SCHEMA_STEPS:,} steps or {MAX_SCHEMA_CPU_S:.0f} s to be checked;"
            " use fewer and smaller parts"
        ) from error
    except ValidationError as error:
        raise BrokenSchema(
            "must be a mapping of JSON values; quote dates and keys that are not plain words"
        ) from error
    except UnusablePattern as error:
        raise BrokenSchema(f"cannot be used: {error}") from error
    except CycleError as error:
        raise BrokenSchema(
            "refers to itself without an end; put the reference into a property or an item"
        ) from error
    except RecursionError as error:
        raise BrokenSchema("is nested too deeply; write it flatter") from error


def _check_values(schema: object) -> None:
    """Refuse a schema with a value that the store could not return."""
    try:
        check_storable(schema)
    except ValueError as error:
        raise BrokenSchema(f"{error}; it could not be stored") from error


def _check_form(schema: Any) -> None:
    """Check the schema against the metaschema of the dialect."""
    metaschema = BoundedValidator(BoundedValidator.META_SCHEMA, registry=_NOWHERE)
    for error in metaschema.iter_errors(schema):
        where = "/".join(map(str, error.absolute_path)) or "the top"
        raise BrokenSchema(
            f"is not a JSON Schema ({error.message[:200]}, at {where}); correct that keyword"
        )


def _check_references(schema: Mapping[str, Any]) -> None:
    """Check each part of a schema, and the targets of its references.

    Raises:
        BrokenSchema: a part cannot be used, or too many parts apply to one value.
        CycleError: a part applies to the same value again without an end.
        ValidationTooCostly: the schema has too many parts.
    """
    applied_parts: dict[int, list[int]] = {}
    waiting: list[tuple[Any, Any]] = [
        (schema, _NOWHERE.resolver_with_root(DRAFT202012.create_resource(schema)))
    ]
    while waiting:
        part, resolver = waiting.pop()
        if not isinstance(part, Mapping) or id(part) in applied_parts:
            continue
        spend()
        _check_keywords(part)
        resource = DRAFT202012.create_resource(part)
        resolver = resolver.in_subresource(resource)
        at_the_same_place = _list_schemas_of_same_value(part)
        targets: list[tuple[Any, Any]] = []
        for name in _REFERENCES:
            if name in part:
                target = _resolve_reference(resolver, part[name])
                targets.append((target.contents, target.resolver))
                at_the_same_place.append(target.contents)
        for inner in resource.subresources():
            waiting.append((inner.contents, resolver))
        waiting += targets
        applied_parts[id(part)] = list(map(id, at_the_same_place))
    _check_expanded(applied_parts)


def _check_keywords(part: Mapping[str, Any]) -> None:
    """Refuse a part of a schema with a keyword that is not supported, or with an empty `enum`."""
    for name, instead in UNSUPPORTED.items():
        if name in part:
            raise BrokenSchema(f"has {name}, which is not supported; use {instead}")
    if part.get("enum") == []:
        raise BrokenSchema("has an empty enum, which no value can match; name the values")


def _check_expanded(applied_parts: Mapping[int, list[int]]) -> None:
    """Refuse a schema of which too many parts apply to one value.

    Args:
        applied_parts: for the id of each part, the ids of the parts that apply to the same value.
    """
    sizes: dict[int, int] = {}
    for part in TopologicalSorter(applied_parts).static_order():
        sizes[part] = 1 + sum(sizes[inner] for inner in applied_parts.get(part, ()))
        if sizes[part] > MAX_EXPANDED:
            raise BrokenSchema(
                f"checks one value against more than {MAX_EXPANDED:,} parts once its references "
                "are followed; refer to fewer parts in allOf, anyOf and oneOf"
            )


def _resolve_reference(resolver: Any, reference: str) -> Any:
    """Return the checked target of a reference, with its `contents` and `resolver`."""
    try:
        target = resolver.lookup(reference)
    except (referencing.exceptions.Unresolvable, ValueError) as error:
        advice = "and nothing is fetched; copy that part into $defs"
        if reference.startswith("#"):
            advice = "which it does not have"
        raise BrokenSchema(f"refers to {reference[:200]}, {advice}") from error
    _check_form(target.contents)
    return target


def _list_schemas_of_same_value(part: Mapping[str, Any]) -> list[Any]:
    """Return the schemas in this part that apply to the same value as the part."""
    schemas: list[Any] = []
    for name in _AT_THE_SAME_PLACE:
        if name in part:
            schemas.append(part[name])
    for name in _SEVERAL_AT_THE_SAME_PLACE:
        schemas.extend(part.get(name, ()))
    schemas.extend(part.get("dependentSchemas", {}).values())
    return schemas


def find_problem(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Return the place and the problem of a value in one line, or None if the value matches.

    A value that needs more than `MAX_STEPS` or `MAX_CPU_S` does not
    match.

    Raises:
        BrokenSchema: the schema cannot be used.
    """
    try:
        with limit_validation():
            error = jsonschema.exceptions.best_match(_get_validator(schema).iter_errors(value))
    except ValidationTooCostly:
        return "$: too costly to check against its schema; give fewer or less nested values"
    except RecursionError:
        return "$: nested too deeply to be checked; give a flatter value"
    except UnsupportedKeyword as broken:
        raise BrokenSchema(f"it has {broken}, which is not supported") from broken
    except (jsonschema.exceptions.SchemaError, jsonschema.exceptions.UnknownType) as broken:
        raise BrokenSchema("it is not a JSON Schema") from broken
    except UnusablePattern as broken:
        raise BrokenSchema(str(broken)) from broken
    except (
        referencing.exceptions.Unresolvable,
        TypeError,
        AttributeError,
        ValueError,
    ) as broken:
        raise BrokenSchema(f"it cannot be applied ({type(broken).__name__})") from broken
    if error is None:
        return None
    return f"{shorten_message(error.json_path)}: {' '.join(error.message.split())}"


def _get_validator(schema: Mapping[str, Any]) -> Any:
    return _create_validator(json.dumps(schema))


@lru_cache(maxsize=64)
def _create_validator(text: str) -> Any:
    schema = json.loads(text)
    check_schema_patterns(schema)
    return BoundedValidator(_without_dialect(schema), registry=_NOWHERE)


def _without_dialect(schema: Any) -> Any:
    """Return the schema without `$schema`, which would make jsonschema change the dialect."""
    if isinstance(schema, Mapping):
        by_key: dict[Any, Any] = {}
        for key, value in schema.items():
            if key != "$schema" or not isinstance(value, str):
                by_key[key] = _without_dialect(value)
        return by_key
    if isinstance(schema, list):
        return [_without_dialect(item) for item in schema]
    return schema
