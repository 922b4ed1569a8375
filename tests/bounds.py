"""Read the bounds of a Pydantic field."""

from __future__ import annotations

from typing import Any, get_args

from pydantic.fields import FieldInfo


def bounds_of(field: FieldInfo) -> list[Any]:
    """Return the `annotated_types` constraints of a field, also if the field is `X | None`."""
    metadata = [
        item
        for member in get_args(field.annotation)
        for item in getattr(member, "__metadata__", ())
    ]
    return [
        *field.metadata,
        *(bound for item in metadata for bound in getattr(item, "metadata", [item])),
    ]
