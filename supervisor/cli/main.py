"""The command line: `handoff`, and what it says of itself."""

from __future__ import annotations

from typing import Annotated

import typer

from handoff_queue.shared.settings.foreign_environment import forget_celery_variables
from handoff_queue.supervisor.cli.commands import HELP_OPTIONS, Commands
from handoff_queue.supervisor.cli.display.terminal import use_standard_streams
from handoff_queue.supervisor.cli.errors import EXIT_CODES, run_guarded

ABOUT = f"""
A team of LLM specialists, run as a distributed task queue.

A supervisor plans a job, hands each step to the Celery queue of the specialist that should do it, reviews what comes back, and writes one
answer with its sources.

[bold]Try it[/bold], with no key and no Redis:

  handoff run "Compare Qdrant and Milvus" --docs examples/vector-databases

[bold]A system that stays[/bold]: `handoff up` in one terminal; in another the `export` line that it prints, and then

  handoff submit "Summarise the risks in these contracts" --docs contracts
  handoff watch JOB

[bold]Environment[/bold]

  HANDOFF_REDIS_URL         the broker: redis://:password@host:6379/0
                            (not set: `run` starts a private Redis)
  ANTHROPIC_API_KEY         a real model, or
  ANTHROPIC_BASE_URL        any server that speaks the Messages API
                            (neither: the offline model)
  HANDOFF_SUPERVISOR_MODEL  the model that plans, reviews, synthesises
  HANDOFF_SPECIALIST_MODEL  the model of the specialists
  HANDOFF_REVIEWER_MODEL    one of its own for who judges their work
  HANDOFF_SPECIALISTS_DIRS  folders of your own specialists, as in PATH
  HANDOFF_TOOLS_DIRS        folders of your own tools, as in PATH
  HANDOFF_CACHE_DIR         indexes and interrupted runs (~/.cache/handoff)

{EXIT_CODES}
"""

app = typer.Typer(
    name="handoff",
    cls=Commands,
    help=ABOUT,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings=HELP_OPTIONS,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"handoff {version('handoff-queue')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Options of `handoff` itself."""


def main() -> None:
    """The entry point `handoff`."""
    forget_celery_variables()
    use_standard_streams()
    run_guarded(lambda: app(prog_name="handoff", standalone_mode=False))


if __name__ == "__main__":
    main()
