"""Checking a value against a JSON Schema: one line about the most telling problem, and no way out to the network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import jsonschema
import referencing
import referencing.exceptions

MOST_CHARS = 300
_NOWHERE: referencing.Registry[Any] = referencing.Registry()
"""Knows nothing beyond the schema itself: jsonschema's own default would fetch a remote `$ref`, from wherever a file says."""


class BrokenSchema(Exception):
    """The schema cannot be checked against: not a schema, a reference that leads nowhere, a pattern that is none."""


def problem_with(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Where and what is wrong; None: nothing.

    Raises:
        BrokenSchema: nothing can be said.
    """
    try:
        validator = jsonschema.Draft202012Validator(schema, registry=_NOWHERE)
        error = jsonschema.exceptions.best_match(validator.iter_errors(value))
    except (jsonschema.exceptions.SchemaError, jsonschema.exceptions.UnknownType) as broken:
        raise BrokenSchema("it is not a JSON Schema") from broken
    except (referencing.exceptions.Unresolvable, re.error, TypeError, AttributeError, ValueError, RecursionError) as broken:
        raise BrokenSchema(f"it cannot be applied ({type(broken).__name__})") from broken
    if error is None:
        return None
    return f"{error.json_path}: {' '.join(error.message.split())[:MOST_CHARS]}"
