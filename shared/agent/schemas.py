"""Checking a value against a JSON Schema: one line about the most telling problem, in bounded time, and no way out to the network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import referencing
import referencing.exceptions
from jsonschema.protocols import Validator

from shared.agent.patterns import UnusablePattern, check_patterns, matches
from shared.wire.errors import HandoffError

MOST_CHARS = 300
_NOWHERE: referencing.Registry[Any] = referencing.Registry()
"""Knows nothing beyond the schema itself: jsonschema's own default would fetch a remote `$ref`, from wherever a file says."""
_Errors = Iterator[jsonschema.ValidationError]


class BrokenSchema(HandoffError):
    """The schema cannot be checked against: not a schema, a reference that leads nowhere, a pattern that is none (or not one of RE2's)."""


def problem_with(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Where and what is wrong; None: nothing.

    Raises:
        BrokenSchema: nothing can be said.
    """
    try:
        error = jsonschema.exceptions.best_match(_validator(schema).iter_errors(value))
    except (jsonschema.exceptions.SchemaError, jsonschema.exceptions.UnknownType) as broken:
        raise BrokenSchema("it is not a JSON Schema") from broken
    except UnusablePattern as broken:
        raise BrokenSchema(str(broken)) from broken
    except (referencing.exceptions.Unresolvable, TypeError, AttributeError, ValueError, RecursionError) as broken:
        raise BrokenSchema(f"it cannot be applied ({type(broken).__name__})") from broken
    if error is None:
        return None
    return f"{error.json_path}: {' '.join(error.message.split())[:MOST_CHARS]}"


def _validator(schema: Mapping[str, Any]) -> Validator:
    check_patterns(schema)
    made: Validator = _Draft202012OnRe2(_without_dialect(schema), registry=_NOWHERE)
    return made


def _without_dialect(schema: Any) -> Any:
    """The schema without `$schema`: where one stands, jsonschema would go on with its own validator, and Python's `re`."""
    if isinstance(schema, Mapping):
        return {key: _without_dialect(value) for key, value in schema.items() if key != "$schema" or not isinstance(value, str)}
    return [_without_dialect(item) for item in schema] if isinstance(schema, list) else schema


def _pattern(validator: Validator, pattern: str, instance: Any, _schema: Any) -> _Errors:
    if validator.is_type(instance, "string") and not matches(pattern, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Mapping[str, Any], instance: Any, _schema: Any) -> _Errors:
    for key, value in instance.items() if validator.is_type(instance, "object") else ():
        for pattern, subschema in patterns.items():
            if matches(pattern, key):
                yield from validator.descend(value, subschema, path=key, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]) -> _Errors:
    """jsonschema's own, told which properties the patterns cover."""
    names = instance if validator.is_type(instance, "object") else ()
    covered = [name for name in names if any(matches(pattern, name) for pattern in schema.get("patternProperties", ()))]
    known = {**schema.get("properties", {}), **dict.fromkeys(covered, True)}
    yield from jsonschema.Draft202012Validator.VALIDATORS["additionalProperties"](validator, allowed, instance, {"properties": known})


_Draft202012OnRe2 = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator,
    {"pattern": _pattern, "patternProperties": _pattern_properties, "additionalProperties": _additional_properties},
)
