"""The text of `handoff --help`: one screen of 40 lines and 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.text import Text

from handoff_queue.supervisor.cli.display.terminal import stdout

if TYPE_CHECKING:
    from handoff_queue.supervisor.cli.commands import Entry

COLUMNS = 80
"""Most columns of a line."""


def print_main_help(
    entries: Mapping[str, Entry], above: Sequence[str], below: Sequence[str]
) -> None:
    """Print the commands in panels, each command on one line. Click ends the last line.

    `above` and `below`: the lines before and after the panels. `below` is not empty.
    """
    console = stdout()
    names: dict[str, str] = {}
    for name, entry in entries.items():
        if entry.shown_with is None:
            names[name] = name
        else:
            names[entry.shown_with] += f", {name}"
    width = max(map(len, names.values()))
    for line in above:
        console.print(line)
    for panel, group in groupby(entries.items(), lambda item: item[1].panel):
        rule = "─" * (COLUMNS - len(panel) - 3)
        console.print(Text.assemble("─ ", (panel, "bold"), f" {rule}"))
        for name, entry in group:
            if name in names:
                padded = (names[name].ljust(width), "bold cyan")
                console.print(Text.assemble("  ", padded, f"  {entry.line}"))
    console.print("\n".join(below), end="")
