"""The command line: what there is to type. Each command imports what it needs when it runs, so that `--help` is quick."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import typer

from supervisor.cli import approving, chaos, dead, doctor, exporting, fleet, jobs, pausing, processes, submit, up
from supervisor.cli.asking import Asked, gates_of, schema_of
from supervisor.cli.errors import EXIT_CODES, guarded
from supervisor.cli.options import (
    AnswerSchema,
    Approve,
    ApproveAboveUsd,
    ApproveTimeout,
    AsJson,
    Docs,
    GatesOption,
    ItemsOption,
    MaxRounds,
    MaxTurns,
    MaxUsd,
    Model,
    ModeOption,
    OnLimitOption,
    OnTimeoutOption,
    OwnSpecialists,
    OwnTools,
    RequestText,
    SkipBadDocs,
    Timeout,
    WorkflowOption,
)

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
def run(
    request: RequestText = None,
    docs: Docs = None,
    specialists: OwnSpecialists = [],  # noqa: B006
    tools: OwnTools = [],  # noqa: B006
    model: Model = None,
    max_turns: MaxTurns = None,
    max_usd: MaxUsd = None,
    max_rounds: MaxRounds = None,
    timeout: Timeout = None,
    on_limit: OnLimitOption = None,
    mode: ModeOption = None,
    workflow: WorkflowOption = None,
    items: ItemsOption = None,
    gates: GatesOption = None,
    approve: Approve = [],  # noqa: B006
    approve_above_usd: ApproveAboveUsd = None,
    approve_timeout: ApproveTimeout = None,
    on_timeout: OnTimeoutOption = None,
    answer_schema: AnswerSchema = None,
    skip_bad_docs: SkipBadDocs = False,
    as_json: AsJson = False,
    resume: Annotated[str | None, typer.Option(metavar="JOB", help="Go on with a run that Ctrl-C interrupted.")] = None,
) -> int:
    """Submit a job and stay until its answer.

    Uses the broker in HANDOFF_REDIS_URL and its workers. Without it, starts a private Redis, a supervisor and three workers, all of them
    gone when the command ends. Progress goes to stderr, the answer to stdout.

      handoff run "Which of these licences allow resale?" --docs licences --max-usd 0.50

      handoff run "List the deadlines" --docs contract.pdf --answer-schema deadlines.json --json | jq .answer
    """
    from supervisor.cli.run import HowToRun
    from supervisor.cli.run import run as run_job

    asked = Asked("", docs, skip_bad_docs, model, max_turns, max_usd, max_rounds, timeout, schema_of(answer_schema))
    asked = replace(asked, on_limit=on_limit, mode=mode, workflow=workflow, items=items, gates=gates_of(gates))
    asked = asked.to_be_approved(approve, approve_above_usd, approve_timeout, on_timeout)
    return run_job(request, asked, HowToRun(tuple(specialists), tuple(tools), as_json, resume))


PANELS: dict[str, tuple[tuple[str, Callable[..., int]], ...]] = {
    "Jobs": (
        ("submit", submit.submit),
        ("watch", jobs.watch),
        ("result", jobs.result),
        ("show", jobs.show),
        ("list", jobs.list_jobs),
        ("export", exporting.export),
        ("cancel", jobs.cancel),
        ("approve", approving.approve),
        ("reject", approving.reject),
        ("retry", jobs.retry),
        ("delete", jobs.delete),
    ),
    "Processes": (("up", up.up), ("supervisor", processes.supervisor), ("worker", processes.worker)),
    "Looking after it": (
        ("specialists", fleet.specialists),
        ("doctor", doctor.doctor),
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
