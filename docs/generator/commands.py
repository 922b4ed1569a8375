"""The page of all commands, from the command line itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from docs.generator.markdown import code, table
from handoff_queue.supervisor.cli.commands import ENTRIES, load_command
from handoff_queue.supervisor.cli.job_options import JobOptions
from handoff_queue.supervisor.cli.main import app

JOB_OPTIONS = {field.name for field in fields(JobOptions)}
SHARED = "Options of a job"
METAVARS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
"""Type of an option that names no metavar -> how the page writes its value."""
EXAMPLE = re.compile(r"(?:[A-Z_]+=\S+ )*handoff \S.*")

INTRODUCTION = """\
# Commands

Each command has `--help` (`-h`). [The command line](command-line.md) describes exit codes, durations and output formats.
In the examples, `j-0123456789ab` is the id of a job. The beginning of an id is enough if no other job's id begins with it.
"""


def page() -> str:
    group: Any = typer.main.get_command(app)
    commands = {name: load_command(name) for name in ENTRIES}
    own = [param for param in group.params if param.param_type_name == "option"]
    parts = [INTRODUCTION, option_table(own), *overview()]
    parts += [section(name, command) for name, command in commands.items()]
    parts += [
        f"## {SHARED}\n",
        "These options describe a job. `run`, `submit` and `quote` take all.\n",
    ]
    parts.append(by_panel(param for param in commands["run"].params if param.name in JOB_OPTIONS))
    return "\n".join(part for part in parts if part)


def overview() -> Iterator[str]:
    """Yield a table of commands for each panel of `handoff --help`."""
    for panel, entries in groupby(ENTRIES.items(), key=lambda item: item[1].panel):
        rows = [(f"[`{name}`](#handoff-{name})", entry.line) for name, entry in entries]
        yield table([panel, "What it does"], rows)


def section(name: str, command: Any) -> str:
    """Return the section of one command: its help, its arguments and its options."""
    takes_job = {param.name for param in command.params} >= JOB_OPTIONS
    own = [
        param
        for param in command.params
        if not param.hidden and not (takes_job and param.name in JOB_OPTIONS)
    ]
    options = [param for param in own if param.param_type_name == "option" and param.name != "help"]
    arguments = [param for param in own if param.param_type_name == "argument"]
    parts = [f"## handoff {name}\n", usage(name, arguments), *help_parts(command.help or "")]
    if arguments:
        rows: list[tuple[str, Any | str]] = []
        for one in arguments:
            if one.help:
                rows.append((code(label(one)), one.help or ""))
        parts.append(table(["Argument", "What it is"], rows))
    parts.append(option_table(options))
    if takes_job:
        parts.append(f"All [options of a job](#{SHARED.lower().replace(' ', '-')}) apply.\n")
    return "\n".join(part for part in parts if part)


def usage(name: str, arguments: list[Any]) -> str:
    words: list[str] = []
    for one in arguments:
        words.append(label(one) if one.required else f"[{label(one)}]")
    return f"```text\nhandoff {' '.join([name, '[OPTIONS]', *words])}\n```\n"


def label(argument: Any) -> str:
    metavar = argument.metavar or argument.name.upper()
    return f"{metavar}..." if argument.nargs == -1 else metavar


def help_parts(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text, and its examples as one block."""
    paragraphs: list[str] = []
    for part in text.replace("\b", "").split("\n\n"):
        if part.strip():
            paragraphs.append(part.strip().removeprefix("$ "))
    examples: list[str] = []
    for paragraph in paragraphs:
        if EXAMPLE.fullmatch(paragraph):
            examples.append(example(paragraph))
        else:
            yield " ".join(paragraph.split()) + "\n"
    if examples:
        yield "\n".join(["```console", *examples, "```\n"])


def example(line: str) -> str:
    """Return a line with its prompt. Three spaces part the command from a remark on it."""
    command, *remark = re.split(r" {3,}", line, maxsplit=1)
    return f"$ {command}" + "".join(f"  # {text.lstrip('# ')}" for text in remark)


def by_panel(options: Any) -> str:
    """Return a table of options for each panel of the command's help."""
    panels: dict[str, list[Any]] = {}
    for option in options:
        panels.setdefault(option.rich_help_panel or "", []).append(option)
    return "\n".join(option_table(members, panel) for panel, members in panels.items())


def option_table(options: list[Any], heading: str = "Option") -> str:
    rows: list[tuple[str, str, str, Any | str]] = []
    for option in options:
        rows.append((names(option), value(option), default(option), option.help or ""))
    return table([heading, "Value", "Default", "What it does"], rows)


def names(option: Any) -> str:
    return ", ".join(code(name) for name in [*option.opts, *option.secondary_opts])


def value(option: Any) -> str:
    """Return the form and the bounds of an option's value."""
    if option.is_flag or option.count:
        return ""
    annotation = option.type_descriptor.annotation
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        shown = ", ".join(code(str(choice.value)) for choice in annotation)
    else:
        shown = code(option.metavar or METAVARS[annotation])
    if option.min is not None and option.max is not None:
        shown += f", {option.min:,} to {option.max:,}"
    elif option.min is not None:
        shown += f", at least {option.min:,}"
    is_said = "repeated" in (option.help or "")
    return shown + (", repeatable" if option.multiple and not is_said else "")


def default(option: Any) -> str:
    """Return the default as a user types it, or an empty text."""
    if isinstance(option.show_default, str):
        return code(option.show_default)
    if option.is_flag or option.default in (None, [], ""):
        return ""
    if isinstance(option.default, Enum):
        return code(str(option.default.value))
    if isinstance(option.default, float):
        return code(f"{option.default:g}")
    return code(str(option.default))
