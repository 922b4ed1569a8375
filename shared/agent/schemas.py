"""Validation of values with JSON Schema. The result is one line, and no reference is fetched from the network.

The dialect is always 2020-12.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any

import jsonschema
import referencing
import referencing.exceptions
from jsonschema.protocols import Validator
from pydantic import JsonValue, TypeAdapter, ValidationError
from referencing.jsonschema import DRAFT202012

from shared.patterns import UnusablePattern, check_patterns, matches
from shared.wire.errors import HandoffError
from shared.wire.json_values import check_storable

MOST_CHARS = 300
_NOWHERE: referencing.Registry[Any] = referencing.Registry()
"""An empty registry. jsonschema's default registry would fetch a remote `$ref`."""
_json: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])
_Errors = Iterator[jsonschema.ValidationError]
_REFERENCES = ("$ref", "$dynamicRef")
_AT_THE_SAME_PLACE = ("not", "if", "then", "else")
"""Keywords whose schema is for the value itself, not for a part of it."""
_SEVERAL_AT_THE_SAME_PLACE = ("allOf", "anyOf", "oneOf")


class BrokenSchema(HandoffError):
    """The schema cannot be checked against: not a schema, a reference that leads nowhere, a pattern that is none (or not one of RE2's)."""


def check_schema(schema: object) -> None:
    """Refuse a schema that cannot be used for validation.

    Raises:
        BrokenSchema: the problem and its fix, as the rest of a sentence that begins with the schema's name.
    """
    try:
        plain = _without_dialect(_json.validate_python(schema, strict=True))
        _check_values(plain)
        _check_form(plain)
        check_patterns(plain)
        _check_references(plain)
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


def _check_values(schema: Any) -> None:
    """Refuse a schema with a value that could not be read again once it is stored."""
    try:
        check_storable(schema)
    except ValueError as error:
        raise BrokenSchema(f"{error}; it could not be stored") from error


def _check_form(schema: Any) -> None:
    try:
        _Draft202012OnRe2.check_schema(schema)
    except jsonschema.SchemaError as error:
        where = "/".join(map(str, error.absolute_path)) or "the top"
        raise BrokenSchema(
            f"is not a JSON Schema ({error.message[:200]}, at {where}); mend that keyword"
        ) from error


def _check_references(schema: Mapping[str, Any]) -> None:
    """Every part that can be reached, and where its references lead.

    Raises:
        CycleError: a value would be checked against the same part for ever.
    """
    found: dict[int, list[int]] = {}
    waiting: list[tuple[Any, Any]] = [
        (schema, _NOWHERE.resolver_with_root(DRAFT202012.create_resource(schema)))
    ]
    while waiting:
        part, resolver = waiting.pop()
        if not isinstance(part, Mapping) or id(part) in found:
            continue
        if part.get("enum") == []:
            raise BrokenSchema("has an empty enum, which no value can match; name the values")
        resource = DRAFT202012.create_resource(part)
        resolver = resolver.in_subresource(resource)
        targets = [_resolved(resolver, part[name]) for name in _REFERENCES if name in part]
        waiting += [(inner.contents, resolver) for inner in resource.subresources()]
        waiting += [(target.contents, target.resolver) for target in targets]
        found[id(part)] = [
            id(one) for one in (*_at_the_same_place(part), *(target.contents for target in targets))
        ]
    TopologicalSorter(found).prepare()


def _resolved(resolver: Any, reference: str) -> Any:
    try:
        target = resolver.lookup(reference)
    except (referencing.exceptions.Unresolvable, ValueError) as error:
        mend = (
            "which it does not have"
            if reference.startswith("#")
            else "and nothing is fetched; copy that part into $defs"
        )
        raise BrokenSchema(f"refers to {reference[:200]}, {mend}") from error
    _check_form(target.contents)
    return target


def _at_the_same_place(part: Mapping[str, Any]) -> list[Any]:
    several = [inner for name in _SEVERAL_AT_THE_SAME_PLACE for inner in part.get(name, ())]
    return [
        *(part[name] for name in _AT_THE_SAME_PLACE if name in part),
        *several,
        *part.get("dependentSchemas", {}).values(),
    ]


def problem_with(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Return the place and the problem, in one line. None: the value matches.

    Raises:
        BrokenSchema: the schema cannot be used.
    """
    try:
        error = jsonschema.exceptions.best_match(_validator(schema).iter_errors(value))
    except (jsonschema.exceptions.SchemaError, jsonschema.exceptions.UnknownType) as broken:
        raise BrokenSchema("it is not a JSON Schema") from broken
    except UnusablePattern as broken:
        raise BrokenSchema(str(broken)) from broken
    except (
        referencing.exceptions.Unresolvable,
        TypeError,
        AttributeError,
        ValueError,
        RecursionError,
    ) as broken:
        raise BrokenSchema(f"it cannot be applied ({type(broken).__name__})") from broken
    if error is None:
        return None
    return f"{error.json_path}: {' '.join(error.message.split())[:MOST_CHARS]}"


def _validator(schema: Mapping[str, Any]) -> Validator:
    return _validator_for(json.dumps(schema))


@lru_cache(maxsize=64)
def _validator_for(text: str) -> Validator:
    schema = json.loads(text)
    check_patterns(schema)
    made: Validator = _Draft202012OnRe2(_without_dialect(schema), registry=_NOWHERE)
    return made


def _without_dialect(schema: Any) -> Any:
    """The schema without `$schema`: where one stands, jsonschema would go on with its own validator, and Python's `re`."""
    if isinstance(schema, Mapping):
        return {
            key: _without_dialect(value)
            for key, value in schema.items()
            if key != "$schema" or not isinstance(value, str)
        }
    return [_without_dialect(item) for item in schema] if isinstance(schema, list) else schema


def _pattern(validator: Validator, pattern: str, instance: Any, _schema: Any) -> _Errors:
    if validator.is_type(instance, "string") and not matches(pattern, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, _schema: Any
) -> _Errors:
    for key, value in instance.items() if validator.is_type(instance, "object") else ():
        for pattern, subschema in patterns.items():
            if matches(pattern, key):
                yield from validator.descend(value, subschema, path=key, schema_path=pattern)


def _additional_properties(
    validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]
) -> _Errors:
    """jsonschema's own, told which properties the patterns cover."""
    names = instance if validator.is_type(instance, "object") else ()
    covered = [
        name
        for name in names
        if any(matches(pattern, name) for pattern in schema.get("patternProperties", ()))
    ]
    known = {**schema.get("properties", {}), **dict.fromkeys(covered, True)}
    yield from jsonschema.Draft202012Validator.VALIDATORS["additionalProperties"](
        validator, allowed, instance, {"properties": known}
    )


_Draft202012OnRe2 = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator,
    {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    },
)
