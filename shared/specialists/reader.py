"""Reader of specialists' Markdown files. It is strict about errors that would show at run time, and
lenient about form.

The format is common for subagents: `tools` may be a list or `a, b`, and `model: inherit` is the
default.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from handoff_queue.shared.agent.schemas import BrokenSchema, check_schema
from handoff_queue.shared.settings.folders import files_with_suffix
from handoff_queue.shared.specialists.front_matter import FrontMatter, parse
from handoff_queue.shared.text.durations import InvalidDuration, whole_seconds_of
from handoff_queue.shared.text.words import suggestion
from handoff_queue.shared.types.errors import InvalidSpecialist
from handoff_queue.shared.types.message import each_problem
from handoff_queue.shared.types.names import RESERVED
from handoff_queue.shared.types.specialist import SpecialistSpec, Tier

FIELDS = tuple(name for name in SpecialistSpec.model_fields if name != "instructions")
OF_AGENTS = (
    "capability",
    "model",
    "tier",
    "tools",
    "max_turns",
    "max_output_tokens",
    "max_usd",
)
"""Fields that say how a model works."""
NOT_SPECIALISTS = frozenset({"readme.md"})
"""Files that are not specialists."""


def read_specialist(
    path: Path, *, tools: Collection[str] | None = None, reserved: Collection[str] = RESERVED
) -> SpecialistSpec:
    """Read one file.

    Args:
        tools: names of existing tools; None: not checked.
        reserved: names that a specialist may not have. The supervisor's own roles pass ().

    Raises:
        InvalidSpecialist: every fault in one line, with file, line, field and correction.
    """
    parts = parse(path)
    values: dict[str, Any] = {}
    for key, value in parts.fields.items():
        if key in FIELDS and value is not None:
            values[key] = _lenient(key, value)
    _resolve_alias(values)
    wrong = [
        *_wrong_keys(parts),
        *_wrong_schema(parts, values),
        *_wrong_tools(parts, values, tools),
        *_wrong_task(parts, values),
        *_resolve_duration(parts, values),
    ]
    if values.get("name") in reserved:
        wrong.append(
            _wrong(
                parts,
                "name",
                f"{values['name']} is reserved for the system itself; choose another name",
            )
        )
    if not parts.body:
        wrong.append(
            _Wrong(
                parts.body_line,
                "instructions",
                "no instructions; write them below the front matter",
            )
        )
    spec: SpecialistSpec | None = None
    try:
        spec = SpecialistSpec(**values, instructions=parts.body)
    except ValidationError as error:
        wrong += _wrong_values(parts, error, {fault.field for fault in wrong})
    if wrong or spec is None:
        first, *others = sorted(wrong, key=lambda fault: fault.line)
        told = [
            f"{path}:{first.line}: {first.what}",
            *(f"{path.name}:{fault.line}: {fault.what}" for fault in others),
        ]
        raise InvalidSpecialist("; ".join(told))
    return spec


class _Wrong(NamedTuple):
    """A fault of a file."""

    line: int
    field: str
    what: str
    """The fault and its correction."""


def load_specialists(
    *folders: Path, tools: Collection[str] | None = None
) -> dict[str, SpecialistSpec]:
    """Return every specialist of these folders by name, sorted. A later folder overrides an earlier
    one.

    Raises:
        InvalidSpecialist: the first fault, or a name that one folder has twice.
    """
    specialists: dict[str, SpecialistSpec] = {}
    for folder in folders:
        here: dict[str, Path] = {}
        for path in _files_of(folder):
            spec = read_specialist(path, tools=tools)
            if spec.name in here:
                raise InvalidSpecialist(
                    f"{path}: name: {spec.name} is taken by {here[spec.name]}; rename or remove one of the two"
                )
            here[spec.name] = path
            specialists[spec.name] = spec
    return dict(sorted(specialists.items()))


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
    for path in files_with_suffix(folder, {".md"}):
        if not path.name.startswith(".") and path.name.lower() not in NOT_SPECIALISTS:
            yield path


def _wrong_keys(parts: FrontMatter) -> Iterator[_Wrong]:
    for key in parts.fields:
        if key not in FIELDS:
            mend = suggestion(str(key), FIELDS, otherwise="remove it")
            yield _wrong(parts, key, f"is not a known field; {mend}")
    for key in ("name", "description"):
        if parts.fields.get(key) is None:
            yield _Wrong(1, key, f"{key}: is missing; add a line `{key}: ...` to the front matter")


def _lenient(key: str, value: Any) -> Any:
    """Convert equivalent forms of a value into the form that the strict type takes."""
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


def _wrong_schema(parts: FrontMatter, values: Mapping[str, Any]) -> Iterator[_Wrong]:
    try:
        check_schema(values.get("output_schema", {}))
    except BrokenSchema as error:
        yield _wrong(parts, "output_schema", str(error))


def _wrong_tools(
    parts: FrontMatter, values: Mapping[str, Any], tools: Collection[str] | None
) -> Iterator[_Wrong]:
    given = values.get("tools")
    if isinstance(given, tuple):
        named = [name for name in given if isinstance(name, str)]
    else:
        named = []
    if len(set(named)) != len(named):
        yield _wrong(parts, "tools", "a tool is named twice; name it once")
    for name in dict.fromkeys(named):
        if tools is not None and name not in tools:
            mend = suggestion(name, sorted(tools), otherwise="add its file with --tools DIR")
            yield _wrong(parts, "tools", f"there is no tool {name}; {mend}")


def _resolve_duration(parts: FrontMatter, values: dict[str, Any]) -> Iterator[_Wrong]:
    """Replace a duration by its seconds, or yield its fault."""
    if isinstance(text := values.get("max_seconds"), str):
        try:
            values["max_seconds"] = whole_seconds_of(text)
        except InvalidDuration as error:
            yield _wrong(parts, "max_seconds", str(error))


def _wrong_task(parts: FrontMatter, values: Mapping[str, Any]) -> Iterator[_Wrong]:
    """Yield faults of fields that exclude each other: a specialist is an agent, or a task of the
    host's Celery app.
    """
    if "celery_task" in values:
        for name in OF_AGENTS:
            if name in values:
                yield _wrong(
                    parts,
                    name,
                    "has no effect with celery_task, which calls no model; remove it",
                )
        return
    for name in ("celery_queue", "repeatable"):
        if name in values:
            yield _wrong(
                parts, name, "belongs to celery_task; add celery_task, or remove this line"
            )


def _wrong_values(
    parts: FrontMatter, error: ValidationError, told: Collection[str]
) -> Iterator[_Wrong]:
    """Yield the faults that pydantic finds, except for fields with an earlier fault."""
    hints = {
        "name": " (lower-case letters, digits, - and _, a letter first)",
        "tier": " (capable or cheap)",
        "celery_task": " (the name under which your app registers the task, such as shop.enrich)",
    }
    for where, what in each_problem(error):
        field = where[0]
        if field not in told:
            if field == "instructions":
                line = parts.body_line
            else:
                line = parts.line_of(field)
            yield _Wrong(
                line, field, f"{'.'.join(where)}: {what}{hints.get(field, '')}; fix this field"
            )


def _wrong(parts: FrontMatter, field: str, problem: str) -> _Wrong:
    return _Wrong(parts.line_of(field), field, f"{field}: {problem}")
