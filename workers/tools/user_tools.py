"""The user's own tools: typed functions in a folder of Python files (`--tools DIR`), or in
installed packages with the entry point group `handoff.tools`.

Every public function that a file defines is a tool. It needs a name, a docstring and types.

Only a tool host loads tools, because this runs the code of the user.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from handoff_queue.shared.agent.function_tools import FunctionTool, build_function_tool
from handoff_queue.shared.settings.folders import expand_folder, find_files_with_suffix
from handoff_queue.shared.types.errors import InvalidTool
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.workers.tools.tool_decorator import (
    get_credentials,
    get_declarations,
    get_network,
    get_secrets,
    get_timeout,
    is_tool,
)
from handoff_queue.workers.tools.tool_host_protocol import ToolDefinition

ENTRY_POINT_GROUP = "handoff.tools"
_OS_FILES = ("<frozen os>", os.__file__)
"""Names of the file that raises the error of a missing variable."""


@dataclass(frozen=True, slots=True)
class UserTool:
    """A user's tool with its code."""

    definition: ToolDefinition
    function: FunctionTool

    @property
    def name(self) -> str:
        return self.definition.name


def _ignore(_place: str) -> None:
    """Ignore a report."""


def load_tools(folder: Path, on_load: Callable[[str], None] = _ignore) -> tuple[UserTool, ...]:
    """Return the tools of all Python files in a folder, sorted by name. Subfolders, and names
    with a leading `_` or `.`, are skipped.

    Args:
        on_load: called with the path of each file before it is loaded.

    Raises:
        InvalidTool: the folder is missing or has no file of tools, or a file does not load. Or a
            function has no docstring or types, or two tools have the same name.
    """
    folder = expand_folder(folder, "--tools")
    if not folder.is_dir():
        raise InvalidTool(f"no such folder of tools: {folder} (give an existing folder to --tools)")
    files = [
        file
        for file in find_files_with_suffix(folder, {".py"})
        if not file.name.startswith(("_", "."))
    ]
    if not files:
        raise InvalidTool(
            f"{folder}: has no file of tools: write a file NAME.py, or give another folder to"
            " --tools"
        )
    tools: list[tuple[str, UserTool]] = []
    for file in files:
        on_load(str(file))
        for name, function in _iterate_functions(_load(file)):
            tools.append((str(file), _as_tool(function, name, str(file))))
    return _remove_repeated_tools(tools)


@cache
def read_entry_points() -> EntryPoints:
    """Return the entry points of installed packages. This reads a file of every package."""
    return entry_points(group=ENTRY_POINT_GROUP)


def load_installed_tools(
    points: Iterable[EntryPoint], on_load: Callable[[str], None] = _ignore
) -> tuple[UserTool, ...]:
    """Return the tools of installed packages: each entry point names a function, or a module
    of functions.

    Args:
        on_load: called with the name of each entry point before it is loaded.

    Raises:
        InvalidTool: an entry point does not load or is not a tool, or two tools have the same name.
    """
    tools: list[tuple[str, UserTool]] = []
    for point in sorted(points, key=lambda point: point.name):
        where = f"entry point {point.name}"
        on_load(where)
        try:
            target = point.load()
        except BaseException as error:
            raise InvalidTool(
                f"{where}: cannot be loaded ({_describe_error(error)}): correct its package, or"
                " uninstall it"
            ) from error
        functions: Iterable[tuple[str, Any]] = [(getattr(target, "__name__", point.name), target)]
        if isinstance(target, ModuleType):
            functions = _iterate_functions(target)
        for name, function in functions:
            tools.append((where, _as_tool(function, name, where)))
    return _remove_repeated_tools(tools)


def _load(file: Path) -> ModuleType:
    """Run a file as a module with a unique name, so that two folders may each have a
    `weather.py`.

    Raises:
        InvalidTool: the file cannot be loaded.
    """
    if file.exists() and not file.is_file():  # a pipe would never end
        raise InvalidTool(f"{file}: is not a regular file; take it out of the folder")
    name = f"handoff_user_tools_{compute_digest(str(file.resolve()))[:12]}_{file.stem}"
    # The loader is given, because Python does not know the suffix .PY.
    loader = SourceFileLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise InvalidTool(
            f"{file}{_find_line(error, file)}: cannot be loaded ({_describe_error(error)}):"
            " correct the file, or take it out of the folder"
        ) from error
    return module


def _find_line(error: BaseException, file: Path) -> str:
    """Return ":7" for the last line of the file that an error has passed through, or ""."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f":{error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == str(file):
            return f":{frame.lineno}"
    return ""


def _describe_error(error: BaseException) -> str:
    text = " ".join(str(error).split())[:200]
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, KeyError) and frames and frames[-1].filename in _OS_FILES:
        text += ": read the variable in the function, and name it in its secrets"
    if text:
        return f"{type(error).__name__}: {text}"
    return type(error).__name__


def _iterate_functions(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the names and functions of the tools that a module defines itself.

    These are its public functions, also with a decorator such as `functools.cache`, and other
    callables with the attributes of `@tool`. Imported functions are left out.
    """
    seen = set[int]()
    for name, member in sorted(vars(module).items()):
        if name.startswith("_") or not callable(member) or inspect.isclass(member):
            continue
        if inspect.isroutine(member) or hasattr(member, "__wrapped__"):
            is_own_tool = getattr(member, "__module__", None) == module.__name__
        else:
            is_own_tool = is_tool(member)
        if is_own_tool and id(member) not in seen:
            seen.add(id(member))
            yield name, member


def _as_tool(function: Callable[..., Any], name: str, where: str) -> UserTool:
    """Return the function as a tool.

    Raises:
        InvalidTool: the function cannot be a tool. The message begins with `where`.
    """
    try:
        tool = build_function_tool(function, name=name)
        definition = ToolDefinition(
            name=name,
            description=tool.description,
            input_schema=tool.input_schema,
            repeatable=tool.repeatable,
            timeout_s=get_timeout(function),
            secrets=get_secrets(function),
            credentials=get_credentials(function),
            reads_context=tool.reads_context,
            network=get_network(function),
            **get_declarations(function),
        )
    except InvalidTool as error:
        raise InvalidTool(f"{where}: {error}") from error
    except (TypeError, ValueError) as error:
        raise InvalidTool(f"{where}: tool {name}: {_describe_error(error)}") from error
    return UserTool(definition, tool)


def _remove_repeated_tools(named_tools: list[tuple[str, UserTool]]) -> tuple[UserTool, ...]:
    """Return the tools, sorted by name.

    Args:
        named_tools: each tool with the place where it was found.

    Raises:
        InvalidTool: two tools have the same name.
    """
    places: dict[str, str] = {}
    tools: dict[str, UserTool] = {}
    for where, tool in named_tools:
        if tool.name in tools:
            raise InvalidTool(
                f"{where}: there is a tool {tool.name} in {places[tool.name]} already: rename one"
            )
        places[tool.name] = where
        tools[tool.name] = tool
    return tuple(tools[name] for name in sorted(tools))
