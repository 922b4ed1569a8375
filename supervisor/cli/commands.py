"""The list of all commands, and the texts of `handoff --help`, one screen of 24 lines and 80
columns, and of `handoff help`.

A command is imported when it is used. All commands together import most of the project, and
the list alone is enough for `handoff --help`, for completions and for an unknown command.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from itertools import groupby
from typing import Any

import typer
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from handoff_queue.shared.settings.optional_packages import check_extra, without_collection
from handoff_queue.shared.text.word_forms import close_names
from handoff_queue.supervisor.cli.display.terminal import get_stdout, print_message

COLUMNS = 80
"""Most columns of a line."""
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}
FOR_NEWCOMERS = "Start here"
"""The panel whose commands `handoff --help` describes. It shows only names of the others."""
STARTS_PROCESSES = frozenset({"run", "up", "supervisor", "worker", "chaos"})
"""Commands that need the packages of a worker. The other commands need the client only."""
HAVE_LOGS = frozenset({"supervisor", "worker", "serve", "mcp"})
"""Commands that become a process with a log. The log names the unknown variables."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A command in the list of all commands."""

    place: str
    """The function of the command, as `module:name` in `supervisor/cli/`."""
    line: str
    """The first paragraph of the help. It fits on one line of `handoff help`."""
    panel: str


def print_main_help(entries: Mapping[str, Entry], panel_name: str) -> None:
    """Print the commands of the panel `panel_name` with their lines, and the names of the others.

    Click ends the last line.
    """
    console = get_stdout()
    console.print("Usage: handoff COMMAND [OPTIONS]\n")
    panels = _group_commands_by_panel(entries)
    first = panels.pop(panel_name)
    console.print(Text(panel_name, "bold"))
    _print_lines(first)
    console.print()
    width = max(map(len, panels))
    for panel, commands in panels.items():
        names = textwrap.wrap(", ".join(commands), COLUMNS - width - 2)
        console.print(Text.assemble((panel.ljust(width), "bold"), f"  {names[0]}"))
        for line in names[1:]:
            console.print(" " * (width + 2) + line)
    console.print(
        "\n`handoff help` describes all commands, `handoff help COMMAND` describes one.", end=""
    )


def print_all_commands(entries: Mapping[str, Entry]) -> None:
    """Print the commands in panels, each command on one line."""
    console = get_stdout()
    for panel, commands in _group_commands_by_panel(entries).items():
        rule = "─" * (COLUMNS - len(panel) - 3)
        console.print(Text.assemble("─ ", (panel, "bold"), f" {rule}"))
        _print_lines(commands, max(map(len, entries)))
    console.print("`handoff COMMAND --help` lists options. `handoff doctor` checks your system.")


def _group_commands_by_panel(entries: Mapping[str, Entry]) -> dict[str, dict[str, Entry]]:
    """Return the name of a panel -> its commands."""
    panels: dict[str, dict[str, Entry]] = {}
    for panel, commands in groupby(entries.items(), lambda item: item[1].panel):
        panels[panel] = dict(commands)
    return panels


def _print_lines(commands: Mapping[str, Entry], width: int | None = None) -> None:
    """Print each command with its line.

    Args:
        width: width of the names, by default of the longest name.
    """
    width = width or max(map(len, commands))
    console = get_stdout()
    for name, entry in commands.items():
        console.print(Text.assemble("  ", (name.ljust(width), "bold cyan"), f"  {entry.line}"))


def _build_entries(panels: dict[str, dict[str, tuple[str, str]]]) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for panel, commands in panels.items():
        for name, (place, line) in commands.items():
            entries[name] = Entry(place, line, panel)
    return entries


ENTRIES = _build_entries({
    FOR_NEWCOMERS: {
        "run": ("run:run", "Run a job and wait for its answer. Needs no key and no Redis."),
        "up": ("up:up", "Start Redis, a supervisor, workers and the console here."),
        "submit": ("submit:submit", "Enqueue a job and print its id."),
        "watch": ("watch:watch", "Follow a job until it ends, then print its answer."),
        "result": ("result:result", "Print the answer of a job, its sources and its usage."),
    },
    "Jobs": {
        "list": ("list:list_jobs", "List the newest jobs."),
        "show": ("show:show", "Show the status, the handoffs and the answer of a job."),
        "trace": ("trace:trace", "Write a job as one HTML page: the timeline and all texts."),
        "export": ("export:export", "Write a job, or all jobs of a tenant, to one file."),
        "schedule": ("schedule:schedule", "Start a job at the times of a cron expression."),
        "quote": ("quote:quote", "Plan a job and estimate its cost before it runs."),
        "memory": ("memory:memory", "List, show, write or delete the notes of a tenant."),
    },
    "Evaluation": {
        "eval": ("eval:evaluate", "Run a set of requests in several modes and score the answers."),
        "compare": ("compare:compare", "Run one request in two modes and recommend one mode."),
        "fork": ("fork:fork", "Run a part of an ended job again, as a new job."),
        "golden": ("golden:golden", "Add an ended job to a golden set for `handoff eval`."),
    },
    "Decisions": {
        "approve": (
            "approve:approve",
            "Approve a plan, steps, a tool call or an answer.",
        ),
        "reject": (
            "approve:reject",
            "Reject a plan, steps, a tool call or an answer, with feedback.",
        ),
        "say": ("say:say", "Send a message to the agents of a running job."),
        "retry": ("retry:retry", "Repeat failed steps, fill gaps, or continue a stopped run."),
        "cancel": ("cancel:cancel", "Stop jobs on all machines."),
        "delete": ("delete:delete", "Delete an ended job, or everything of a tenant."),
    },
    "Processes": {
        "supervisor": ("supervisor_and_worker:supervisor", "Start a supervisor process."),
        "worker": (
            "supervisor_and_worker:worker",
            "Start a worker process for one or more specialists.",
        ),
        "serve": ("serve:serve", "Serve the HTTP API and the console."),
        "mcp": ("mcp:mcp", "Serve the queue to one MCP client over stdin and stdout."),
        "keys": ("keys:keys", "Make the keys that sign messages, and the users of Redis."),
        "token": ("api_tokens:token", "Create, list or revoke tokens of the HTTP API."),
        "pause": ("pause:pause", "Pause an agent on all machines."),
        "unpause": ("pause:unpause", "Unpause an agent."),
    },
    "Operations": {
        "doctor": ("doctor:doctor", "Check Redis, all processes and the model, and suggest fixes."),
        "specialists": (
            "specialists:specialists",
            "List the specialists with their workers, load and tools.",
        ),
        "stats": ("stats:stats", "Print slots, queues, rate limits and spending of the fleet."),
        "top": ("top:top", "Show the fleet live: slots, queues, handoffs and spending."),
        "dead": ("dead:dead", "List, show, requeue or drop dead letters."),
        "audit": ("audit:audit", "Print the actions of users on the fleet, or on one job."),
        "chaos": ("chaos:chaos", "Kill processes while jobs run, and check every promise."),
        "help": ("help:show_help", "Describe all commands, or one command with its options."),
    },
})  # fmt: skip
"""All commands, in the order of `handoff help`."""


class OneCommand(TyperCommand):
    """A command whose errors about the command line have the context of the command."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. First print a line that names the unknown variables `HANDOFF_...`."""
        if self.name not in HAVE_LOGS:
            from handoff_queue.shared.settings.unknown_variables import (
                build_unknown_variables_warning,
            )

            if problem := build_unknown_variables_warning():
                print_message(problem)
        return super().invoke(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, and add the context to errors of Typer that lack it."""
        try:
            self._check_values(ctx, args)
            return super().parse_args(ctx, args)
        except Exception as error:
            if getattr(error, "ctx", ctx) is None:
                error.ctx = ctx  # type: ignore[attr-defined]
            raise

    def _check_values(self, ctx: Any, args: list[str]) -> None:
        """Refuse an option with an empty value, and an option with one value that is given twice.

        Commands would read an empty value as an absent option, or as the current folder. Typer
        would drop the first of two values.

        Raises:
            UsageError: the message names the option.
        """
        if ctx.resilient_parsing:
            return
        parser: Any = self.make_parser(ctx)
        values, _, parameters = parser.parse_args(args=[*args])
        known: set[str] = set()
        for parameter in parameters:
            if parameter.param_type_name != "option" or parameter.is_flag:
                continue
            option = max(parameter.opts, key=len)
            if _has_blank(values[parameter.name]):
                ctx.fail(f"{option} is empty: give it a value, or leave the option out")
            if parameter.name in known and not parameter.multiple:
                ctx.fail(f"{option} is given twice: give it once")
            known.add(parameter.name)

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option `--help`; None: the command has none."""
        option = super().get_help_option(ctx)
        if option is not None:
            simplify_help(option)
        return option


def _has_blank(value: str | list[str]) -> bool:
    """Return whether a value of the command line, or one of several, is empty or white space."""
    if isinstance(value, str):
        return not value.strip()
    return not all(text.strip() for text in value)


def simplify_help(parameter: Any) -> None:
    """Leave out the type of a flag, and of an argument without choices. Write a default such as
    `30s` without brackets, and bounds in words. Typer would print `<bool>`, `<str>`, `(30s)` and
    `1<=x<=10`.
    """
    is_option = parameter.param_type_name == "option"
    kind = parameter.type_descriptor.annotation
    is_choice = isinstance(kind, type) and issubclass(kind, Enum)
    if parameter.is_flag if is_option else not is_choice:
        parameter.display_type_rich = lambda **_: None
    if isinstance(parameter.show_default, str):
        parameter._get_default_string = lambda **_: parameter.show_default
    parameter._get_number_range_help_str = lambda: describe_bounds(parameter)


def describe_bounds(parameter: Any) -> str | None:
    """Return the bounds of a number, such as `1 to 10,000` or `at least 1`. None: no bounds."""
    if parameter.min is None:
        return None
    if parameter.max is None:
        return f"at least {parameter.min:,}"
    return f"{parameter.min:,} to {parameter.max:,}"


@cache
def load_command(name: str) -> Any:
    """Return the command with its options and its help.

    Raises:
        UserError: the command starts processes, and a package of a worker is not installed.
    """
    if name in STARTS_PROCESSES:
        check_extra("worker", f"handoff {name}")
    module, _, function = ENTRIES[name].place.partition(":")
    alone = typer.Typer(
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings=HELP_OPTIONS,
    )
    with without_collection():
        imported = import_module(f"{__package__}.{module}")
    alone.command(name, cls=OneCommand)(getattr(imported, function))
    command = typer.main.get_command(alone)
    command.help = wrap_help(command.help or "")
    for parameter in command.params:
        simplify_help(parameter)
    return command


def wrap_help(docstring: str) -> str:
    """Return the help with one line for each paragraph, because Typer keeps line breaks.

    An example, which starts with `handoff `, gets a `$` in front.
    """
    paragraphs: list[str] = []
    for part in docstring.split("\n\n"):
        paragraph = " ".join(part.split())
        if paragraph.startswith("handoff "):
            paragraph = f"$ {paragraph}"
        paragraphs.append(paragraph)
    return "\n\n".join(paragraphs)


class Commands(TyperGroup):
    """The group of all commands. A command is only a name and a line until it is used."""

    def __init__(self, **attributes: Any) -> None:
        lines: dict[str, TyperCommand] = {}
        for name, entry in ENTRIES.items():
            lines[name] = TyperCommand(name, help=entry.line, rich_help_panel=entry.panel)
        super().__init__(**{**attributes, "commands": lines})

    def format_help(self, *_: Any) -> None:
        """Print the main help."""
        print_main_help(ENTRIES, FOR_NEWCOMERS)

    def resolve_command(self, *context_and_arguments: Any) -> Any:
        """Return the name, the command and its arguments.

        Raises:
            UsageError: there is no such command. The message names the closest command.
        """
        context, arguments = context_and_arguments
        typed = arguments[0]
        if typed not in self.commands and not typed.startswith("-"):
            close = close_names(typed, self.commands)
            hint = ""
            if close:
                hint = f": did you mean {close[0]}?"
            context.fail(f"there is no command {typed[:40]!r}{hint}")
        name, command, rest = super().resolve_command(*context_and_arguments)
        return name, command and load_command(command.name), rest
