"""The command line: what there is to type. Each command imports what it needs when it runs, so that `--help` is quick."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from supervisor.cli import (
    approving,
    chaos,
    comparing,
    dead,
    doctor,
    evaluating,
    exporting,
    fleet,
    jobs,
    pausing,
    processes,
    quoting,
    stats,
    submit,
    top,
    tracing,
    up,
)
from supervisor.cli.errors import EXIT_CODES, guarded
from supervisor.cli.job_options import JobOptions, takes_a_job
from supervisor.cli.options import AsJson, OwnSpecialists, OwnTools, RequestText

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
@takes_a_job
def run(
    job: JobOptions,
    request: RequestText = None,
    specialists: OwnSpecialists = [],  # noqa: B006
    tools: OwnTools = [],  # noqa: B006
    as_json: AsJson = False,
    resume: Annotated[str | None, typer.Option(metavar="JOB", help="Go on with a run that Ctrl-C interrupted.")] = None,
) -> int:
    """Submit a job and stay until its answer.

    Uses the broker in HANDOFF_REDIS_URL and its workers. Without it, starts a private Redis, a supervisor and three workers, all of them
    gone when the command ends. Progress goes to stderr, the answer to stdout.

      handoff run "Which of these licences allow resale?" --docs licences --max-usd 0.50

      handoff run "List the deadlines" --docs contract.pdf --answer-schema deadlines.json --json | jq .answer
    """
    from supervisor.cli import run as running

    return running.run(request, job.asked(), running.HowToRun(tuple(specialists), tuple(tools), as_json, resume))


PANELS: dict[str, tuple[tuple[str, Callable[..., int]], ...]] = {
    "Jobs": (
        ("submit", submit.submit),
        ("watch", jobs.watch),
        ("result", jobs.result),
        ("show", jobs.show),
        ("list", jobs.list_jobs),
        ("export", exporting.export),
        ("trace", tracing.trace),
        ("cancel", jobs.cancel),
        ("approve", approving.approve),
        ("reject", approving.reject),
        ("retry", jobs.retry),
        ("finish", jobs.finish),
        ("delete", jobs.delete),
    ),
    "Processes": (("up", up.up), ("supervisor", processes.supervisor), ("worker", processes.worker)),
    "Is it worth it?": (("quote", quoting.quote), ("eval", evaluating.evaluate), ("compare", comparing.compare)),
    "Looking after it": (
        ("specialists", fleet.specialists),
        ("doctor", doctor.doctor),
        ("stats", stats.stats),
        ("top", top.top),
        ("pause", pausing.pause),
        ("resume", pausing.resume),
        ("dead", dead.dead),
        ("chaos", chaos.chaos),
    ),
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
