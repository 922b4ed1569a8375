"""The texts of `handoff --help`, one screen of 24 lines and 80 columns, and of `handoff help`."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from rich.text import Text

from handoff_queue.supervisor.cli.display.terminal import get_stdout

COLUMNS = 80
"""Most columns of a line."""


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
