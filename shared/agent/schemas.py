"""Validation of values with JSON Schema, dialect 2020-12. A problem is described in one line.
No reference is fetched from the network.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any

import jsonschema
import referencing
import referencing.exceptions
from pydantic import JsonValue, TypeAdapter, ValidationError
from referencing.jsonschema import DRAFT202012

from handoff_queue.shared.agent.bounded_validation import (
    UNSUPPORTED,
    BoundedValidator,
    UnsupportedKeyword,
    ValidationTooCostly,
    limit_validation,
    shorten_message,
    spend,
)
from handoff_queue.shared.types.errors import HandoffError
from handoff_queue.shared.types.json_values import check_storable
from handoff_queue.shared.types.patterns import UnusablePattern, check_patterns

MOST_EXPANDED = 10_000
"""Subschemas that apply to one value. A subschema counts once for each path that leads to it."""
MOST_SCHEMA_STEPS = 1_000_000
"""Steps of the check of one schema. A subschema needs about 100 steps."""
MOST_SCHEMA_CPU_S = 15.0
"""Processor seconds of the check of one schema."""
_NOWHERE: referencing.Registry[Any] = referencing.Registry()
"""An empty registry. jsonschema's default registry would fetch a remote `$ref`."""
_json: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])
_REFERENCES = ("$ref", "$dynamicRef")
_AT_THE_SAME_PLACE = ("not", "if", "then", "else")
"""Keywords whose schema applies to the value itself and not to a part of the value."""
_SEVERAL_AT_THE_SAME_PLACE = ("allOf", "anyOf", "oneOf")
"""Keywords with a list of such schemas."""


class BrokenSchema(HandoffError):
    """The schema cannot be used. For example, it is no JSON Schema, a reference has no target,
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
        with limit_validation(MOST_SCHEMA_STEPS, MOST_SCHEMA_CPU_S):
            _check_form(plain)
            check_patterns(plain)
            _check_references(plain)
    except ValidationTooCostly as error:
        raise BrokenSchema("is too large to be checked; use fewer and smaller parts") from error
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
    applied: dict[int, list[int]] = {}
    waiting: list[tuple[Any, Any]] = [
        (schema, _NOWHERE.resolver_with_root(DRAFT202012.create_resource(schema)))
    ]
    while waiting:
        part, resolver = waiting.pop()
        if not isinstance(part, Mapping) or id(part) in applied:
            continue
        spend()
        for name, instead in UNSUPPORTED.items():
            if name in part:
                raise BrokenSchema(f"has {name}, which is not supported; use {instead}")
        if part.get("enum") == []:
            raise BrokenSchema("has an empty enum, which no value can match; name the values")
        resource = DRAFT202012.create_resource(part)
        resolver = resolver.in_subresource(resource)
        at_the_same_place = _at_the_same_place(part)
        targets: list[tuple[Any, Any]] = []
        for name in _REFERENCES:
            if name in part:
                target = _resolved(resolver, part[name])
                targets.append((target.contents, target.resolver))
                at_the_same_place.append(target.contents)
        for inner in resource.subresources():
            waiting.append((inner.contents, resolver))
        waiting += targets
        applied[id(part)] = list(map(id, at_the_same_place))
    _check_expanded(applied)


def _check_expanded(applied: Mapping[int, list[int]]) -> None:
    """Refuse a schema of which too many parts apply to one value.

    Args:
        applied: for the id of each part, the ids of the parts that apply to the same value.
    """
    sizes: dict[int, int] = {}
    for part in TopologicalSorter(applied).static_order():
        sizes[part] = 1 + sum(sizes[inner] for inner in applied.get(part, ()))
        if sizes[part] > MOST_EXPANDED:
            raise BrokenSchema(
                f"checks one value against more than {MOST_EXPANDED:,} parts once its references "
                "are followed; refer to fewer parts in allOf, anyOf and oneOf"
            )


def _resolved(resolver: Any, reference: str) -> Any:
    """Return the checked target of a reference, with its `contents` and `resolver`."""
    try:
        target = resolver.lookup(reference)
    except (referencing.exceptions.Unresolvable, ValueError) as error:
        mend = "and nothing is fetched; copy that part into $defs"
        if reference.startswith("#"):
            mend = "which it does not have"
        raise BrokenSchema(f"refers to {reference[:200]}, {mend}") from error
    _check_form(target.contents)
    return target


def _at_the_same_place(part: Mapping[str, Any]) -> list[Any]:
    """Return the schemas in this part that apply to the same value as the part."""
    schemas: list[Any] = []
    for name in _AT_THE_SAME_PLACE:
        if name in part:
            schemas.append(part[name])
    for name in _SEVERAL_AT_THE_SAME_PLACE:
        schemas.extend(part.get(name, ()))
    schemas.extend(part.get("dependentSchemas", {}).values())
    return schemas


def problem_with(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Return the place and the problem of a value in one line, or None if the value matches.

    A value that needs more than `bounded_validation.MOST_STEPS` or `MOST_CPU_S` does not
    match.

    Raises:
        BrokenSchema: the schema cannot be used.
    """
    try:
        with limit_validation():
            error = jsonschema.exceptions.best_match(_validator(schema).iter_errors(value))
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


def _validator(schema: Mapping[str, Any]) -> Any:
    return _validator_for(json.dumps(schema))


@lru_cache(maxsize=64)
def _validator_for(text: str) -> Any:
    schema = json.loads(text)
    check_patterns(schema)
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
