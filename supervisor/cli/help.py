"""`handoff help`: describe all commands, or one command."""

from __future__ import annotations

from typing import Annotated

import typer

from handoff_queue.supervisor.cli.commands import ENTRIES, Commands, print_all_commands
from handoff_queue.supervisor.cli.errors import OK


def list_command_names() -> list[str]:
    """Return the names of all commands, for shell completion."""
    return list(ENTRIES)


def show_help(
    context: typer.Context,
    command: Annotated[
        str | None,
        typer.Argument(
            metavar="COMMAND", autocompletion=list_command_names, help="The command to describe."
        ),
    ] = None,
) -> int:
    """Describe all commands, or one command with its options.

    `handoff help COMMAND` prints the same as `handoff COMMAND --help`.
    """
    if command is None:
        print_all_commands(ENTRIES)
        return OK
    root = context.find_root()
    assert isinstance(root.command, Commands)
    name, click_command, _ = root.command.resolve_command(root, [command])
    click_command.make_context(name, ["--help"], parent=root)  # prints the help, and raises `Exit`
    return OK
