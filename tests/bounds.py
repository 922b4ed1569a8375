"""The bounds that a type sets to a number."""

from __future__ import annotations

from typing import Any, get_args

from pydantic.fields import FieldInfo


def bounds_of(field: FieldInfo) -> list[Any]:
    """Constraints of `annotated_types`, also of a field that may be None."""
    inner = [
        part for kind in get_args(field.annotation) for part in getattr(kind, "__metadata__", ())
    ]
    return [
        *field.metadata,
        *(bound for part in inner for bound in getattr(part, "metadata", [part])),
    ]
