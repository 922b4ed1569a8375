"""From specialists' Markdown files to `SpecialistSpec`s: strict about what would surprise at run time, lenient about form.

The format is the one that people already keep subagents in: `tools` may be a list or `a, b`, and `model: inherit` is the default.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shared.agent.schemas import BrokenSchema, check_schema
from shared.specialists.front_matter import FrontMatter, parse
from shared.wire.errors import InvalidSpecialist
from shared.wire.message import problems_of
from shared.wire.names import RESERVED
from shared.wire.specialist import SpecialistSpec, Tier

FIELDS = tuple(name for name in SpecialistSpec.model_fields if name != "instructions")
NOT_SPECIALISTS = frozenset({"readme.md"})
"""Files that people put beside their specialists."""


def read_specialist(path: Path, *, tools: Collection[str] | None = None, reserved: Collection[str] = RESERVED) -> SpecialistSpec:
    """Read one file. `tools` are the names that exist (None: not checked); the supervisor's own roles pass `reserved=()`.

    Raises:
        InvalidSpecialist: file, line and field, what is wrong, how to mend it.
    """
    parts = parse(path)
    _check_keys(path, parts)
    values = {key: _lenient(key, value) for key, value in parts.fields.items() if value is not None}
    _resolve_alias(values)
    if not parts.body:
        raise InvalidSpecialist(f"{path}:{parts.body_line}: no instructions; write them below the front matter")
    if "output_schema" in values:
        try:
            check_schema(values["output_schema"])
        except BrokenSchema as error:
            raise _wrong(path, parts, "output_schema", str(error)) from error
    spec = _spec_of(path, parts, values)
    if spec.name in reserved:
        raise _wrong(path, parts, "name", f"{spec.name} is reserved for the system itself; choose another name")
    _check_tools(path, parts, spec, tools)
    return spec


def load_specialists(*folders: Path, tools: Collection[str] | None = None) -> dict[str, SpecialistSpec]:
    """Every specialist of these folders by name, sorted; a later folder overrides an earlier one.

    Raises:
        InvalidSpecialist: the first thing that is wrong; a name twice within one folder.
    """
    found: dict[str, SpecialistSpec] = {}
    for folder in folders:
        here: dict[str, Path] = {}
        for path in _files_of(folder):
            spec = read_specialist(path, tools=tools)
            if spec.name in here:
                raise InvalidSpecialist(f"{path}: name: {spec.name} is taken by {here[spec.name]}; rename or remove one of the two")
            here[spec.name] = path
            found[spec.name] = spec
    return dict(sorted(found.items()))


_TIER_OF_ALIAS = {"haiku": Tier.CHEAP, "sonnet": Tier.CAPABLE, "opus": Tier.CAPABLE}
"""Subagent files name a family where we have a tier: the setting says which model that is today."""


def _resolve_alias(values: dict[str, Any]) -> None:
    match values.get("model"):
        case "inherit":
            del values["model"]
        case str(alias) if alias in _TIER_OF_ALIAS:
            values.setdefault("tier", _TIER_OF_ALIAS[alias])
            del values["model"]


def _files_of(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        raise InvalidSpecialist(f"{folder}: no such folder; name a folder of Markdown files")
    for path in sorted(folder.glob("*.md")):
        if not path.name.startswith(".") and path.name.lower() not in NOT_SPECIALISTS:
            yield path


def _check_keys(path: Path, parts: FrontMatter) -> None:
    for key in parts.fields:
        if key not in FIELDS:
            near = get_close_matches(key, FIELDS, n=1)
            mend = f"did you mean {near[0]}?" if near else f"remove it (there are: {', '.join(FIELDS)})"
            raise _wrong(path, parts, key, f"is not a known field; {mend}")
    for key in ("name", "description"):
        if parts.fields.get(key) is None:
            raise InvalidSpecialist(f"{path}:1: {key}: is missing; add a line `{key}: ...` to the front matter")


def _lenient(key: str, value: Any) -> Any:
    """Forms that mean the same to a person, made the one that the strict type takes."""
    match key, value:
        case "tools", str():
            return tuple(name.strip() for name in value.split(",") if name.strip())
        case "tools", list():
            return tuple(value)
        case (("name" | "description" | "model"), str()):
            return " ".join(value.split())
        case "tier", str() if value in list(Tier):
            return Tier(value)
        case _:
            return value


def _spec_of(path: Path, parts: FrontMatter, values: dict[str, Any]) -> SpecialistSpec:
    try:
        return SpecialistSpec(**values, instructions=parts.body)
    except ValidationError as error:
        field = str(error.errors()[0]["loc"][0])
        line = parts.body_line if field == "instructions" else parts.line_of(field)
        hints = {"name": " (lower-case letters, digits, - and _, a letter first)", "tier": " (capable or cheap)"}
        raise InvalidSpecialist(f"{path}:{line}: {problems_of(error, most=1)}{hints.get(field, '')}; mend this field") from error


def _check_tools(path: Path, parts: FrontMatter, spec: SpecialistSpec, tools: Collection[str] | None) -> None:
    if len(set(spec.tools)) != len(spec.tools):
        raise _wrong(path, parts, "tools", "a tool is named twice; name it once")
    for name in spec.tools:
        if tools is not None and name not in tools:
            near = get_close_matches(name, tools, n=1)
            mend = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(tools)) or 'none'}; add its file with --tools DIR"
            raise _wrong(path, parts, "tools", f"there is no tool {name}; {mend}")


def _wrong(path: Path, parts: FrontMatter, field: str, problem: str) -> InvalidSpecialist:
    return InvalidSpecialist(f"{path}:{parts.line_of(field)}: {field}: {problem}")
