"""The command line `handoff`."""

from __future__ import annotations

from typing import Annotated

import typer

from handoff_queue.shared.local.fast_exit import without_teardown
from handoff_queue.shared.settings.foreign_environment import forget_celery_variables
from handoff_queue.supervisor.cli.commands import HELP_OPTIONS, Commands
from handoff_queue.supervisor.cli.display.terminal import use_standard_streams
from handoff_queue.supervisor.cli.errors import run_guarded

app = typer.Typer(
    name="handoff",
    cls=Commands,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings=HELP_OPTIONS,
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        typer.echo(f"handoff {version('handoff-queue')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Declare the options of `handoff` itself."""


def main() -> None:
    """Run the command line. Entry point of `handoff`."""
    forget_celery_variables()
    use_standard_streams()
    run_guarded(lambda: app(prog_name="handoff", standalone_mode=False))


if __name__ == "__main__":
    with without_teardown():
        main()
