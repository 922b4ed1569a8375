"""The page of all commands, from the command line itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from docs.generator.markdown import build_table, format_code, join_parts
from handoff_queue.supervisor.cli.commands import ENTRIES, describe_bounds, load_command
from handoff_queue.supervisor.cli.main import app
from handoff_queue.supervisor.cli.request_options import JobOptions

JOB_OPTIONS = {field.name for field in fields(JobOptions)}
SHARED = "Options of a job"
METAVARS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
"""Type of an option that names no metavar -> how the page writes its value."""
EXAMPLE = re.compile(r"(?:[A-Z_]+=\S+ )*handoff \S.*")

INTRODUCTION = """\
# Commands

Each command has `--help` (`-h`), and `handoff help` describes all commands. [The command line](command-line.md) describes exit codes, durations and output formats.
In the examples, `j-k5tq2wbz7x3mhd4n` is the id of a job. The beginning of an id is enough if no other job's id begins with it.
"""  # noqa: E501 - lines of a text


def build_page() -> str:
    """Return the text of the page."""
    group: Any = typer.main.get_command(app)
    parts = [
        INTRODUCTION,
        build_option_table(filter_by_kind(group.params, "option")),
        *build_overview(),
    ]
    for name in ENTRIES:
        parts.append(build_section(name, load_command(name)))
    parts += [
        f"## {SHARED}\n",
        "These options describe a job. `run`, `submit` and `quote` take all.\n",
    ]
    run: Any = load_command("run")
    parts.append(build_tables(param for param in run.params if param.name in JOB_OPTIONS))
    return join_parts(parts)


def filter_by_kind(params: Iterable[Any], kind: str) -> list[Any]:
    """Return the parameters of a kind: `option` or `argument`."""
    return [param for param in params if param.param_type_name == kind]


def build_overview() -> Iterator[str]:
    """Yield a table of commands for each panel of `handoff help`."""
    for panel, entries in groupby(ENTRIES.items(), key=lambda item: item[1].panel):
        rows = [(f"[`{name}`](#handoff-{name})", entry.line) for name, entry in entries]
        yield build_table([panel, "What it does"], rows)


def build_section(name: str, command: Any) -> str:
    """Return the section of one command: its help, its arguments and its options. An option of a
    job with another help than in `handoff run` is an option of the command.
    """
    takes_job = {param.name for param in command.params} >= JOB_OPTIONS
    run: Any = load_command("run")
    usual_helps = {param.name: param.help for param in filter_by_kind(run.params, "option")}
    shown: list[Any] = []
    for param in command.params:
        is_of_job = takes_job and param.name in JOB_OPTIONS
        is_of_job = is_of_job and param.help == usual_helps[param.name]
        if not param.hidden and not is_of_job and param.name != "help":
            shown.append(param)
    arguments = filter_by_kind(shown, "argument")
    parts = [f"## handoff {name}\n", build_usage(name, arguments), *split_help(command.help or "")]
    parts.append(build_argument_table(arguments))
    parts.append(build_option_table(filter_by_kind(shown, "option")))
    if takes_job:
        others = "All other" if JOB_OPTIONS & {param.name for param in shown} else "All"
        parts.append(f"{others} [options of a job](#{SHARED.lower().replace(' ', '-')}) apply.\n")
    return join_parts(parts)


def build_usage(name: str, arguments: list[Any]) -> str:
    """Return the usage line of a command. Optional arguments are in brackets."""
    words: list[str] = []
    for argument in arguments:
        words.append(
            format_argument(argument) if argument.required else f"[{format_argument(argument)}]"
        )
    return f"```text\nhandoff {' '.join([name, '[OPTIONS]', *words])}\n```\n"


def build_argument_table(arguments: list[Any]) -> str:
    """Return a table of the arguments that have a help text."""
    rows: list[tuple[str, str]] = []
    for argument in arguments:
        if argument.help:
            rows.append((format_code(format_argument(argument)), argument.help))
    return build_table(["Argument", "What it is"], rows)


def format_argument(argument: Any) -> str:
    """Return the name of an argument in the usage line."""
    metavar = argument.metavar or argument.name.upper()
    return f"{metavar}..." if argument.nargs == -1 else metavar


def split_help(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text, and its examples as one block."""
    paragraphs: list[str] = []
    for part in text.replace("\b", "").split("\n\n"):
        if part.strip():
            paragraphs.append(part.strip().removeprefix("$ "))
    examples: list[str] = []
    for paragraph in paragraphs:
        if EXAMPLE.fullmatch(paragraph):
            examples.append(format_example(paragraph))
        else:
            yield " ".join(paragraph.split()) + "\n"
    if examples:
        yield "\n".join(["```console", *examples, "```\n"])


def format_example(line: str) -> str:
    """Return an example with its prompt. Three spaces separate the command from its remark, if
    there is one.
    """
    command, *remarks = re.split(r" {3,}", line, maxsplit=1)
    shown = f"$ {command}"
    for remark in remarks:
        shown += f"  # {remark.lstrip('# ')}"
    return shown


def build_tables(options: Any) -> str:
    """Return a table of options for each panel of the command's help."""
    panels: dict[str, list[Any]] = {}
    for option in options:
        panels.setdefault(option.rich_help_panel or "", []).append(option)
    tables = [build_option_table(members, panel) for panel, members in panels.items()]
    return "\n".join(tables)


def build_option_table(options: list[Any], heading: str = "Option") -> str:
    rows: list[tuple[str, str, str, Any | str]] = []
    for option in options:
        rows.append(
            (format_names(option), format_value(option), format_default(option), option.help or "")
        )
    return build_table([heading, "Value", "Default", "What it does"], rows)


def format_names(option: Any) -> str:
    """Return all names of an option, such as `--json, --no-json`."""
    return ", ".join(map(format_code, [*option.opts, *option.secondary_opts]))


def format_value(option: Any) -> str:
    """Return the form and the bounds of an option's value."""
    if option.is_flag or option.count:
        return ""
    annotation = option.type_descriptor.annotation
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        choices = [format_code(str(choice.value)) for choice in annotation]
        shown = ", ".join(choices)
    else:
        shown = format_code(option.metavar or METAVARS[annotation])
    bounds = describe_bounds(option)
    if bounds:
        shown += f", {bounds}"
    if option.multiple and "repeated" not in (option.help or ""):
        shown += ", repeatable"
    return shown


def format_default(option: Any) -> str:
    """Return the default as a user types it, or an empty text."""
    if isinstance(option.show_default, str):
        return format_code(option.show_default)
    if option.is_flag or option.default in (None, [], ""):
        return ""
    if isinstance(option.default, Enum):
        return format_code(str(option.default.value))
    if isinstance(option.default, float):
        return format_code(f"{option.default:g}")
    return format_code(str(option.default))
