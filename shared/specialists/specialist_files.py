"""Reader of specialists' Markdown files. It refuses faults that would show at run time, and
accepts several forms of a value.

The format is the common one of subagents: `tools` may be a list or a text such as `a, b`, and
`model: inherit` means the default.

The YAML front matter is read with its line numbers, so that errors can name a line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import ValidationError

from handoff_queue.shared.agent.json_schema_validation import BrokenSchema, check_schema
from handoff_queue.shared.settings.folders import find_files_with_suffix
from handoff_queue.shared.specialists.mcp_servers import (
    AcceptedServer,
    read_accepted_servers,
    read_servers,
)
from handoff_queue.shared.text.times import InvalidDuration, parse_whole_seconds
from handoff_queue.shared.text.unicode_text import replace_unprintable
from handoff_queue.shared.text.word_forms import suggest_name
from handoff_queue.shared.text.yaml_reader import YamlFault, parse_tree
from handoff_queue.shared.types.errors import InvalidSpecialist, MalformedMessage, UserError
from handoff_queue.shared.types.memory_notes import MEMORY
from handoff_queue.shared.types.message import (
    describe_problems,
    iterate_problems,
    with_hint,
    with_value,
)
from handoff_queue.shared.types.model import Effort, Thinking
from handoff_queue.shared.types.names import RESERVED
from handoff_queue.shared.types.origins import CODE_EXECUTION, RUN_CODE
from handoff_queue.shared.types.specialist import ContextRules, RunnerKind, SpecialistSpec, Tier

FENCE = "---"
MAX_KEPT_FILES = 200
"""Files whose fields are kept. YAML takes most of the time of reading a file."""
MAX_FILE_BYTES = 200_000
"""Bytes of the largest file that is read: about three times the longest instructions of a spec."""


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """Fields and body of one file. Line numbers are those of the file, from 1."""

    path: Path
    fields: dict[str, Any]
    lines: dict[str, int]
    """Line number of each field."""
    body: str
    """Text below the front matter, without white space around it."""
    body_line: int
    """Line number of the first line below the front matter."""

    def get_line(self, field: str) -> int:
        """Return the line of a field. For a key that YAML converts (`yes` becomes true),
        return the line of the first field.
        """
        return self.lines.get(field, 2)


def parse(path: Path) -> FrontMatter:
    """Return the fields and the body of a file.

    Raises:
        InvalidSpecialist: the file cannot be read, has no front matter, has invalid YAML, or has a
            field twice.
    """
    lines = _read_text(path).split("\n")
    if not lines or lines[0].rstrip() != FENCE:
        raise InvalidSpecialist(
            f"{path}:1: no front matter; begin the file with a line `---`, the fields, and another"
            " `---`"
        )
    end = _find_end(lines)
    if end is None:
        raise InvalidSpecialist(
            f"{path}:1: the front matter does not end; close it with a line `---`"
        )
    fields, line_numbers = _parse_fields(path, "\n".join(lines[1:end]))
    return FrontMatter(
        path=path,
        fields=deepcopy(fields),
        lines=line_numbers,
        body="\n".join(lines[end + 1 :]).strip(),
        body_line=end + 2,
    )


def _find_end(lines: Sequence[str]) -> int | None:
    """Return the index of the line that closes the front matter, or None."""
    for index, line in enumerate(lines[1:], start=1):
        if line.rstrip() == FENCE:
            return index
    return None


def _read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        InvalidSpecialist: the file cannot be read, is too large, or is not UTF-8.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would never end
            raise InvalidSpecialist(f"{path}: is not a regular file; take it out of the folder")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidSpecialist(
                f"{path}:1: larger than {MAX_FILE_BYTES:,} bytes; shorten the instructions"
            )
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidSpecialist(
            f"{path}: cannot be read ({error.strerror}); check the path and its permissions"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidSpecialist(
            f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from error


@lru_cache(maxsize=MAX_KEPT_FILES)
def _parse_fields(path: Path, text: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the fields of a front matter, and the line number of each field in the file.

    A worker reads each file twice: for the specialist, and for its MCP servers.

    Raises:
        InvalidSpecialist: the text is not YAML, or has no fields.
    """
    try:
        root = parse_tree(text)
    except YamlFault as error:
        raise InvalidSpecialist(f"{path}:{error.line + 1}: {error}") from error
    if not isinstance(root, yaml.MappingNode):
        raise InvalidSpecialist(
            f"{path}:2: the front matter holds no fields; write `name: ...`, one field a line"
        )
    try:
        values = yaml.constructor.SafeConstructor().construct_document(root)
    except (yaml.YAMLError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise InvalidSpecialist(
            f"{path}:2: the front matter has an invalid value ({problem:.100}); put it into quotes"
        ) from error
    line_numbers: dict[str, int] = {}
    for key, _ in root.value:
        line_numbers[str(key.value)] = key.start_mark.line + 2
    fields: dict[str, Any] = {}
    for name, value in values.items():
        fields[str(name)] = value
    return fields, line_numbers


MCP = "mcp"
"""The field that names MCP servers. A worker reads it; no message has it."""
SANDBOX = "sandbox"
"""The field that says where a specialist runs code. It adds a tool; no message has it."""
TOOL_OF_SANDBOX = {"local": RUN_CODE, "provider": CODE_EXECUTION}
"""Value of the field -> the tool that it adds. `none` adds none."""
FIELDS = (*(name for name in SpecialistSpec.model_fields if name != "instructions"), MCP, SANDBOX)
"""Fields of the front matter."""
OF_AGENTS = (
    "capability",
    "model",
    "models",
    "tier",
    "tools",
    "ask",
    "hosts",
    MCP,
    SANDBOX,
    "max_turns",
    "max_output_tokens",
    "max_usd",
    "effort",
    "thinking",
    "runner",
    "context",
    "share",
    "claims",
)
"""Fields that say how a model works."""
NOT_SPECIALISTS = frozenset({"readme.md"})
"""Files that are not specialists."""


def read_specialist(
    path: Path, *, tools: Collection[str] | None = None, reserved_names: Collection[str] = RESERVED
) -> SpecialistSpec:
    """Return the specialist of one file.

    Args:
        tools: names of existing tools; None: not checked.
        reserved_names: names that a specialist may not have. The supervisor's own roles pass ().

    Raises:
        InvalidSpecialist: the file has faults. The message names each with its line, field and
            correction.
    """
    parts = parse(path)
    values = _convert_values(parts)
    servers, wrong_servers = _parse_servers(path, values.pop(MCP, None))
    sandbox = values.pop(SANDBOX, "none")
    faults = [
        *(_build_fault(parts, MCP, problem) for problem in wrong_servers),
        *_find_wrong_keys(parts),
        *_find_wrong_schema(parts, values),
        *_find_wrong_tools(parts, values, tools),
        *_find_wrong_sandbox(parts, sandbox),
        *_find_wrong_models(parts, values),
        *_find_wrong_context(parts, values),
        *_find_wrong_task(parts, parts.fields.keys() & FIELDS),
        *_resolve_duration(parts, values),
    ]
    if values.get("name") in reserved_names:
        problem = f"{values['name']} is reserved for the system itself; choose another name"
        faults.append(_build_fault(parts, "name", problem))
    for server in servers:
        _add_tools(values, server.tools)
    if isinstance(sandbox, str) and sandbox in TOOL_OF_SANDBOX:
        _add_tools(values, [TOOL_OF_SANDBOX[sandbox]])
    faults += _find_wrong_asks(parts, values)
    faults += _find_wrong_share(parts, values)
    if not parts.body:
        problem = "no instructions; write them below the front matter"
        faults.append(_Fault(parts.body_line, "instructions", problem))
    try:
        spec = SpecialistSpec(**values, instructions=parts.body)
    except ValidationError as error:
        faults += _find_wrong_values(parts, error, {fault.field for fault in faults})
        raise _build_error(parts, faults) from None
    if faults:
        raise _build_error(parts, faults)
    return spec


def _convert_values(parts: FrontMatter) -> dict[str, Any]:
    """Return the known fields of a file, in the form that the types take."""
    values: dict[str, Any] = {}
    for key, value in parts.fields.items():
        if key in FIELDS and value is not None:
            values[key] = _in_strict_form(key, value)
    _resolve_alias(values)
    return values


def load_servers(*folders: Path) -> list[AcceptedServer]:
    """Return the MCP servers of all specialists in these folders, as `load_specialists`.

    Two specialists may have the same server, with different tools.

    Raises:
        InvalidSpecialist: a file has faults, or two specialists have different servers of one name.
    """
    files: dict[str, FrontMatter] = {}
    for folder in folders:
        for path in _iterate_files(folder):
            parts = parse(path)
            files[str(parts.fields.get("name"))] = parts
    servers: list[AcceptedServer] = []
    for parts in files.values():
        accepted_servers, problems = _parse_servers(parts.path, parts.fields.get(MCP))
        if problems:
            raise _build_error(parts, [_build_fault(parts, MCP, problem) for problem in problems])
        servers += accepted_servers
    _refuse_two_meanings(servers)
    return servers


def _refuse_two_meanings(servers: Sequence[AcceptedServer]) -> None:
    """Refuse two tools of one name with different servers or listings.

    Raises:
        InvalidSpecialist: there are such tools.
    """
    meanings: dict[str, tuple[object, AcceptedServer]] = {}
    for server in servers:
        same = server.config.model_copy(update={"tools": (), "digest": None})
        for name, tool in server.tools.items():
            meaning = (same, server.listing[tool], server.file.parent)
            first, owner = meanings.setdefault(name, (meaning, server))
            if first != meaning:
                raise InvalidSpecialist(
                    f"{server.file}: mcp: {owner.file.name} has another server {server.name}: give"
                    " one of the two another name"
                )


def _parse_servers(path: Path, value: Any) -> tuple[list[AcceptedServer], list[str]]:
    """Return the MCP servers of a file, and the faults of the others."""
    if value is None:
        return [], []
    servers, faults = read_servers(value)
    accepted_servers, further_faults = read_accepted_servers(path, servers)
    return accepted_servers, faults + further_faults


def _add_tools(values: dict[str, Any], names: Iterable[str]) -> None:
    """Add tools to the tools of a specialist."""
    declared_tools = values.get("tools", ())
    if isinstance(declared_tools, tuple):
        values["tools"] = (*declared_tools, *names)


class _Fault(NamedTuple):
    """A fault of a file."""

    line: int
    field: str
    problem: str
    """The fault and its correction."""


def _build_error(parts: FrontMatter, faults: Sequence[_Fault]) -> InvalidSpecialist:
    """Return the error with all faults of a file, ordered by their lines."""
    texts: list[str] = []
    for fault in sorted(faults, key=lambda fault: fault.line):
        texts.append(f"{parts.path}:{fault.line}: {fault.problem}")
    return InvalidSpecialist(*texts)


def find_specialists_folder() -> Path:
    """Return the folder of the built-in specialists.

    Raises:
        UserError: the package of the workers is not installed.
    """
    package = find_spec("handoff_queue.workers")  # finds the package and does not run it
    if package is None or not package.submodule_search_locations:
        raise UserError(
            "the package `handoff_queue.workers` is not installed here: install all of"
            " handoff-queue"
        )
    return Path(next(iter(package.submodule_search_locations))) / "specialists"


def load_specialists(
    *folders: Path, tools: Collection[str] | None = None
) -> dict[str, SpecialistSpec]:
    """Return all specialists of these folders by name, in order of their names. A specialist
    of a later folder replaces a specialist of the same name.

    Raises:
        InvalidSpecialist: a folder is missing or has no specialist, a file has faults, or two
            files of one folder have the same name.
    """
    specialists: dict[str, SpecialistSpec] = {}
    for folder in folders:
        paths: dict[str, Path] = {}
        for path in _iterate_files(folder):
            spec = read_specialist(path, tools=tools)
            if spec.name in paths:
                raise InvalidSpecialist(
                    f"{path}: name: {spec.name} is taken by {paths[spec.name]}; rename or remove"
                    " one of the two"
                )
            paths[spec.name] = path
            specialists[spec.name] = spec
    return dict(sorted(specialists.items()))


_CHOICES: Mapping[str, type[StrEnum]] = {
    "tier": Tier,
    "effort": Effort,
    "thinking": Thinking,
    "runner": RunnerKind,
}
"""Fields with a closed set of values."""
_TIER_OF_ALIAS = {"haiku": Tier.CHEAP, "sonnet": Tier.CAPABLE, "opus": Tier.CAPABLE}
"""Families of models in subagent files, and their tiers. The settings name the model of a tier."""


def _resolve_alias(values: dict[str, Any]) -> None:
    """Remove the model `inherit`, and replace the name of a family by its tier."""
    match values.get("model"):
        case "inherit":
            del values["model"]
        case str(alias) if alias in _TIER_OF_ALIAS:
            values.setdefault("tier", _TIER_OF_ALIAS[alias])
            del values["model"]


def _iterate_files(folder: Path) -> Iterator[Path]:
    """Yield the files of specialists in a folder, without hidden files and `NOT_SPECIALISTS`.

    Raises:
        InvalidSpecialist: there is no such folder, or it has no file of a specialist.
    """
    if not folder.is_dir():
        raise InvalidSpecialist(f"{folder}: no such folder; name a folder of Markdown files")
    has_specialists = False
    for path in find_files_with_suffix(folder, {".md"}):
        if not path.name.startswith(".") and path.name.lower() not in NOT_SPECIALISTS:
            has_specialists = True
            yield path
    if not has_specialists:
        raise InvalidSpecialist(
            f"{folder}: has no specialist: write a file NAME.md, or name another folder"
        )


def _find_wrong_keys(parts: FrontMatter) -> Iterator[_Fault]:
    for key in parts.fields:
        if key not in FIELDS:
            advice = suggest_name(str(key), FIELDS, otherwise="remove it")
            yield _build_fault(parts, key, f"is not a known field; {advice}")
    for key in ("name", "description"):
        if parts.fields.get(key) is None:
            yield _Fault(1, key, f"{key}: is missing; add a line `{key}: ...` to the front matter")


def _in_strict_form(key: str, value: Any) -> Any:
    """Return a value in the form that the strict type takes."""
    match key, value:
        case (("tools" | "ask" | "hosts" | "models"), str()):
            names = [name.strip() for name in value.split(",")]
            return tuple(name for name in names if name)
        case (("tools" | "ask" | "hosts" | "models"), list()):
            return tuple(value)
        case (("name" | "description" | "model"), str()):
            return " ".join(value.split())
        case (("tier" | "effort" | "thinking" | "runner"), str()) if value in list(_CHOICES[key]):
            return _CHOICES[key](value)
        case "context", dict():
            return _parse_context(value)
        case _:
            return value


def _find_wrong_models(parts: FrontMatter, values: Mapping[str, Any]) -> Iterator[_Fault]:
    """Yield the faults of a list of models that its type cannot find."""
    models = values.get("models")
    if models is None:
        return
    if "model" in parts.fields:
        yield _build_fault(
            parts, "models", "cannot be combined with `model`; remove one of the two"
        )
    if not isinstance(models, tuple):
        return
    for position, name in enumerate(models):
        if name in models[:position]:
            yield _build_fault(parts, "models", f"names {name} twice; remove one of the two")
        if name == "inherit" or name in _TIER_OF_ALIAS:
            yield _build_fault(
                parts, "models", f"{name} is not a full name of a model; write the full name"
            )


def _parse_context(value: dict[Any, Any]) -> object:
    """Return the rules for the context, or the value if it has a fault."""
    try:
        return ContextRules.from_value(value)
    except MalformedMessage:
        return value


def _find_wrong_context(parts: FrontMatter, values: Mapping[str, Any]) -> Iterator[_Fault]:
    """Yield the faults of `context`."""
    value = values.get("context")
    if value is None or isinstance(value, ContextRules):
        return
    if not isinstance(value, dict):
        problem = "write clear_tools_at, keep, compact_at or managed_by below it"
        yield _build_fault(parts, "context", problem)
        return
    try:
        ContextRules.from_value(value)
    except MalformedMessage as error:
        problem = str(error).partition(": ")[2]
        if isinstance(error.__cause__, ValidationError):
            problem = describe_problems(error.__cause__, kind=ContextRules, shows_values=True)
        yield _build_fault(parts, "context", f"{problem}; fix this field")


def _find_wrong_schema(parts: FrontMatter, values: Mapping[str, Any]) -> Iterator[_Fault]:
    try:
        check_schema(values.get("output_schema", {}))
    except BrokenSchema as error:
        yield _build_fault(parts, "output_schema", str(error))


def _find_wrong_tools(
    parts: FrontMatter, values: Mapping[str, Any], tools: Collection[str] | None
) -> Iterator[_Fault]:
    """Yield a fault for each name in `tools` that is given twice, or is not a tool.

    Args:
        tools: names of existing tools; None: not checked.
    """
    names: list[str] = []
    tool_names = values.get("tools")
    if isinstance(tool_names, tuple):
        for name in tool_names:
            if isinstance(name, str):
                names.append(name)
    if len(set(names)) != len(names):
        yield _build_fault(parts, "tools", "a tool is named twice; name it once")
    for name in dict.fromkeys(names):
        if name in TOOL_OF_SANDBOX.values():
            yield _build_fault(parts, "tools", f"{name} comes with `sandbox`; name it there")
        elif tools is not None and name not in tools:
            advice = suggest_name(
                name, sorted(tools), otherwise="add the folder of its file (--tools DIR)"
            )
            yield _build_fault(parts, "tools", f"there is no tool {name}; {advice}")


def _find_wrong_sandbox(parts: FrontMatter, sandbox: object) -> Iterator[_Fault]:
    if sandbox != "none" and (not isinstance(sandbox, str) or sandbox not in TOOL_OF_SANDBOX):
        problem = f"{sandbox!r:.60} is unknown; write none, local or provider"
        if isinstance(sandbox, bool):  # the file has for example `yes`
            problem = "must be none, local or provider"
        yield _build_fault(parts, SANDBOX, problem)


def _find_wrong_asks(parts: FrontMatter, values: Mapping[str, Any]) -> Iterator[_Fault]:
    """Yield a fault for each name in `ask` that is not a tool of the specialist."""
    asked_tools = values.get("ask")
    tool_names = values.get("tools", ())
    if not isinstance(asked_tools, tuple) or not isinstance(tool_names, tuple):
        return
    for name in asked_tools:
        if isinstance(name, str) and name not in tool_names:
            advice = suggest_name(name, list(map(str, tool_names)), otherwise="add it to tools")
            yield _build_fault(parts, "ask", f"{name} is not a tool of this specialist; {advice}")


def _find_wrong_share(parts: FrontMatter, values: Mapping[str, Any]) -> Iterator[_Fault]:
    """Yield the faults of `share` and another field that exclude each other."""
    if values.get("share") is not True:
        return
    for name in ("ask", "runner"):
        if values.get(name):
            yield _build_fault(
                parts, "share", f"cannot be combined with `{name}`; remove one of the two"
            )
    tools = values.get("tools")
    if isinstance(tools, tuple) and MEMORY in tools:
        yield _build_fault(
            parts, "share", f"cannot be combined with the tool {MEMORY}; remove one of the two"
        )


def _resolve_duration(parts: FrontMatter, values: dict[str, Any]) -> Iterator[_Fault]:
    """Replace a duration by its seconds, or yield its fault."""
    text = values.get("max_seconds")
    if isinstance(text, str):
        try:
            values["max_seconds"] = parse_whole_seconds(text)
        except InvalidDuration as error:
            yield _build_fault(parts, "max_seconds", str(error))


def _find_wrong_task(parts: FrontMatter, values: Collection[str]) -> Iterator[_Fault]:
    """Yield faults of fields that exclude each other: a specialist is an agent, or a task of
    the host's Celery app.
    """
    if "celery_task" in values:
        for name in OF_AGENTS:
            if name in values:
                yield _build_fault(
                    parts,
                    name,
                    "has no effect with celery_task, which calls no model; remove it",
                )
        return
    for name in ("celery_queue", "repeatable"):
        if name in values:
            yield _build_fault(
                parts, name, "belongs to celery_task; add celery_task, or remove this line"
            )


def _find_wrong_values(
    parts: FrontMatter, error: ValidationError, faulty_fields: Collection[str]
) -> Iterator[_Fault]:
    """Yield the faults that pydantic finds, except for fields with an earlier fault."""
    hints = {
        "runner": " (leave it out for our own loop)",
        "hosts": " (a host such as example.org, or *.example.org for each subdomain)",
        "celery_task": " (the name under which your app registers the task, such as shop.enrich)",
    }
    for where, problem in iterate_problems(error, SpecialistSpec, shows_values=True):
        field = where[0]
        if field in faulty_fields:
            continue
        text = problem
        if field in _CHOICES:
            choices = f"must be one of {', '.join(_CHOICES[field])}"
            text = with_value(choices, parts.fields.get(field))
        line = parts.get_line(field)
        if field == "instructions":
            line = parts.body_line
        text = with_hint(text, hints.get(field, ""))
        yield _Fault(line, field, f"{'.'.join(where)}: {text}; fix this field")


def _build_fault(parts: FrontMatter, field: str, problem: str) -> _Fault:
    return _Fault(parts.get_line(field), field, f"{replace_unprintable(field):.80}: {problem}")
