"""The command line: what there is to type. Each command imports what it needs when it runs, so that `--help` is quick."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from supervisor.cli import doctor, fleet, jobs, processes, submit, up
from supervisor.cli.errors import EXIT_CODES, guarded

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
  HANDOFF_SPECIALISTS_DIRS  JSON list of folders of your own specialists
  HANDOFF_TOOLS_DIRS        JSON list of folders of your own tools
  HANDOFF_CACHE_DIR         indexes and interrupted runs (~/.cache/handoff)

{EXIT_CODES}
"""

app = typer.Typer(
    name="handoff",
    help=ABOUT,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"handoff {version('handoff-queue')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    """Options of `handoff` itself."""


@app.command(rich_help_panel="Jobs")
def run(
    request: Annotated[str | None, typer.Argument(help="What you want, in plain words; `-` reads it from stdin.")] = None,
    docs: Annotated[Path | None, typer.Option(help="A folder (or file) to work from.")] = None,
    specialists: Annotated[list[Path], typer.Option(help="A folder of your own specialists; may be repeated.")] = [],  # noqa: B006
    tools: Annotated[list[Path], typer.Option(help="A folder of your own tools; may be repeated.")] = [],  # noqa: B006
    model: Annotated[str | None, typer.Option(help="The model of every agent of this job.")] = None,
    max_turns: Annotated[int | None, typer.Option(min=1, help="The most turns of one handoff.")] = None,
    max_usd: Annotated[float | None, typer.Option(help="The most that the job may cost.")] = None,
    max_rounds: Annotated[int | None, typer.Option(min=0, max=10, help="How often a review may send work back.")] = None,
    timeout: Annotated[int | None, typer.Option(min=1, help="Seconds until the job ends with what it has.")] = None,
    answer_schema: Annotated[Path | None, typer.Option(help="A JSON Schema that the answer must match.")] = None,
    skip_bad_docs: Annotated[bool, typer.Option("--skip-bad-docs", help="Leave out documents that cannot be read.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout, everything else on stderr.")] = False,
    resume: Annotated[str | None, typer.Option(metavar="JOB", help="Go on with a run that Ctrl-C interrupted.")] = None,
) -> int:
    """Submit a job and stay until its answer.

    Uses the broker in HANDOFF_REDIS_URL and its workers. Without it, starts a private Redis, a supervisor and three workers, all of them
    gone when the command ends. Progress goes to stderr, the answer to stdout.

      handoff run "Which of these licences allow resale?" --docs licences --max-usd 0.50

      handoff run "List the deadlines" --docs contract.pdf --answer-schema deadlines.json --json | jq .answer
    """
    from shared.config import load_settings
    from shared.wire.errors import UserError
    from supervisor.cli.asking import Asked, schema_of, text_of
    from supervisor.cli.run import HowToRun
    from supervisor.cli.run import run as run_job

    how = HowToRun(tuple(specialists), tuple(tools), as_json, resume)
    if resume is not None:
        if request is not None:
            raise UserError("--resume goes on with its own request: leave the other one out")
        return run_job(None, how)
    asked = Asked(
        request=text_of(request, load_settings()),
        docs=docs,
        skip_bad_docs=skip_bad_docs,
        model=model,
        max_turns=max_turns,
        max_usd=max_usd,
        max_rounds=max_rounds,
        timeout_s=timeout,
        answer_schema=schema_of(answer_schema),
    )
    return run_job(asked, how)


PANELS: dict[str, tuple[tuple[str, Callable[..., int]], ...]] = {
    "Jobs": (
        ("submit", submit.submit),
        ("watch", jobs.watch),
        ("result", jobs.result),
        ("show", jobs.show),
        ("list", jobs.list_jobs),
        ("cancel", jobs.cancel),
        ("retry", jobs.retry),
        ("delete", jobs.delete),
    ),
    "Processes": (("up", up.up), ("supervisor", processes.supervisor), ("worker", processes.worker)),
    "Looking after it": (("specialists", fleet.specialists), ("doctor", doctor.doctor), ("dead", jobs.dead)),
}
for panel, commands in PANELS.items():
    for name, command in commands:
        app.command(name, rich_help_panel=panel)(command)


def main() -> None:
    """The entry point `handoff`."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    guarded(lambda: app(standalone_mode=False))


if __name__ == "__main__":
    main()
