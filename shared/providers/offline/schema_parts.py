"""Reading a JSON Schema: its references followed, its parts put together, its types told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handoff_queue.shared.agent.schemas import BrokenSchema, problem_with

Schema = Mapping[str, Any]
DEEPEST = 12


def resolve(schema: Any, root: Schema) -> dict[str, Any]:
    """A schema with its `$ref` followed within the root, and `allOf` put together."""
    if not isinstance(schema, Mapping):
        return {}
    seen = 0
    while "$ref" in schema and seen < DEEPEST:
        target: Any = root
        for part in str(schema["$ref"]).removeprefix("#").strip("/").split("/"):
            target = (
                target.get(part.replace("~1", "/").replace("~0", "~"), {})
                if part and isinstance(target, Mapping)
                else target
            )
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
        seen += 1
    merged = dict(schema)
    for part in merged.pop("allOf", ()):
        other = resolve(part, root)
        properties = {**merged.get("properties", {}), **other.get("properties", {})}
        required = [*merged.get("required", ()), *other.get("required", ())]
        merged = {
            **other,
            **merged,
            **({"properties": properties} if properties else {}),
            **({"required": required} if required else {}),
        }
    return merged


def property_schema(schema: Schema, name: str, root: Schema | None = None) -> dict[str, Any]:
    """The schema of one property, resolved; empty if there is none."""
    whole = root if root is not None else schema
    return resolve(resolve(schema, whole).get("properties", {}).get(name, {}), whole)


def type_of(schema: Schema) -> str:
    """The one type that is not null; told by the other keywords where none is named."""
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    if kind is None:
        kind = (
            "object"
            if "properties" in schema or "required" in schema
            else "array"
            if "items" in schema or "prefixItems" in schema
            else "string"
        )
    return str(kind)


def is_valid(value: Any, schema: Any, root: Schema) -> bool:
    """Whether a part of `root` takes the value. A schema that is broken takes anything."""
    if not isinstance(schema, Mapping):
        return schema is not False
    defs = {key: root[key] for key in ("$defs", "definitions") if key in root and key not in schema}
    try:
        return problem_with(value, {**defs, **schema}) is None
    except BrokenSchema:
        return True
