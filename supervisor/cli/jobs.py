"""Commands on jobs that are in the queue: watch, result, list, cancel, retry, delete."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shared.wire.errors import UserError
from shared.wire.ids import JobId
from shared.wire.limits import MOST_SECONDS
from supervisor.books import usage_of
from supervisor.cli.errors import INTERRUPTED, OK, end_like_ctrl_c, exit_code_of, say
from supervisor.cli.listing import listed
from supervisor.cli.options import AllowPartial, AsJson, RowsFile
from supervisor.cli.terminal import stdout, write_as_json, write_line
from supervisor.reconnecting import RECONNECT_FOR_S

if TYPE_CHECKING:
    from shared.config import Settings
    from shared.ledger.jobs import JobStanding
    from supervisor.client import Client

Job = Annotated[
    str, typer.Argument(metavar="JOB", help="The id that `submit` printed, j-0123456789ab.")
]


def client_of_broker() -> Client:
    """Raises: UserError: HANDOFF_REDIS_URL is not set."""
    from shared.config import load_settings

    settings = load_settings()
    if settings.redis_url is None:
        raise UserError(
            "HANDOFF_REDIS_URL is not set: name the broker (`handoff up` starts one and prints it), or use `handoff run`"
        )
    return client_with(settings)


def client_with(settings: Settings) -> Client:
    """For a command, which is not to wait long where Redis is silent."""
    from shared.ledger.connection import COMMAND_TIMEOUT_S
    from supervisor import client

    return client.connect(settings=settings, timeout_s=COMMAND_TIMEOUT_S)


def watch(
    job: Job,
    as_json: AsJson = False,
    reconnect: Annotated[
        float,
        typer.Option(
            min=0,
            max=MOST_SECONDS,
            metavar="S",
            help="How long to try again when Redis goes away.",
        ),
    ] = RECONNECT_FOR_S,
    allow_partial: AllowPartial = False,
) -> int:
    """Follow a job until its end, then print its answer.

    May be stopped and started at any time; it begins with what has happened so far.
    """
    from supervisor.cli.run import stay

    jobs = client_of_broker()
    end_like_ctrl_c()
    try:
        return stay(
            jobs,
            JobId(job),
            as_json=as_json,
            allow_partial=allow_partial,
            reconnect_for_s=reconnect,
        )
    except KeyboardInterrupt:
        say(f"the job goes on: `handoff watch {job}` comes back to it")
        return INTERRUPTED


def result(
    job: Job,
    as_json: AsJson = False,
    wait: Annotated[
        float,
        typer.Option(
            min=0, max=MOST_SECONDS, metavar="S", help="Wait up to S seconds for the job's end."
        ),
    ] = 0.0,
    output: RowsFile = None,
    allow_partial: AllowPartial = False,
) -> int:
    """Print a job's answer, its sources and what it took.

    Exit code 4: the job has not ended yet. Exit code 5: its answer is partial.

    With `--output` the results of a workflow with `for_each` go into a table, a row for each item.
    While the job runs, the table has the rows so far.

      handoff result j-0123456789ab --output rows.csv
    """
    from supervisor.cli.run import print_outcome

    jobs = client_of_broker()
    if output is not None:
        from supervisor.cli.rows import write_rows

        status = jobs.wait(JobId(job), wait)
        write_rows(JobId(job), jobs.rows(JobId(job)), output)
        return exit_code_of(status, allow_partial=allow_partial)
    found = jobs.result(JobId(job), wait_s=wait)
    if as_json or found.status.ended:
        return print_outcome(found, as_json=as_json, allow_partial=allow_partial)
    say(
        f"{job} is {found.status.value}: --wait S waits for its end, `handoff watch {job}` shows what it does"
    )
    return exit_code_of(found.status)


def list_jobs(
    as_json: AsJson = False,
    count: Annotated[int, typer.Option("-n", min=1, max=10_000, help="How many.")] = 20,
) -> int:
    """The newest jobs."""
    standings = client_of_broker().newest(count)
    if as_json:
        write_as_json([_as_json(standing) for standing in standings])
        return OK
    columns = stdout().width
    for standing in standings:
        for line in listed(standing, columns):
            write_line(line)
    if not standings:
        say('there are no jobs (`handoff submit "..."` makes one)')
    return OK


def cancel(job: Job) -> int:
    """Stop a job everywhere; what it has done stays."""
    if client_of_broker().cancel(JobId(job)):
        write_line(f"{job} is being cancelled")
    else:
        say(f"{job} had ended before")
    return OK


MaxTurns = Annotated[
    int | None,
    typer.Option("--max-turns", metavar="N", min=1, help="The most turns of the whole job, now."),
]
MaxUsd = Annotated[
    float | None,
    typer.Option(
        "--max-usd", metavar="X", min=1e-6, max=1e9, help="The most that it may cost, now."
    ),
]

MaxTokens = Annotated[
    int | None,
    typer.Option("--max-tokens", metavar="N", min=1, help="The most tokens of the whole job, now."),
]


def retry(
    job: Job,
    from_step: Annotated[
        str | None, typer.Option("--from", metavar="STEP", help="Everything from this step on.")
    ] = None,
    max_turns: MaxTurns = None,
    max_usd: MaxUsd = None,
    max_tokens: MaxTokens = None,
) -> int:
    """Go on with an ended job: do again what did not succeed, or everything from a step on.

    What it has spent stays spent. One that its budget has ended needs a higher limit.
    """
    from supervisor.cli.asking import new_limits

    limits = new_limits(max_turns, max_tokens, max_usd)
    client_of_broker().retry(JobId(job), from_step, limits)
    write_line(f"{job} goes on: `handoff watch {job}`")
    return OK


def finish(
    job: Job,
    max_turns: MaxTurns = None,
    max_usd: MaxUsd = None,
    max_tokens: MaxTokens = None,
) -> int:
    """Fill the gaps of an ended job: the steps that it did without, then what builds on them.

    What is whole stays as it is, and is not paid for again. This time nothing is left out for being late.
    """
    from supervisor.cli.asking import new_limits

    limits = new_limits(max_turns, max_tokens, max_usd)
    client_of_broker().retry(JobId(job), None, limits, whole=True)
    write_line(f"{job} goes on: `handoff watch {job}`")
    return OK


def delete(job: Job) -> int:
    """Remove an ended job and everything of it."""
    client_of_broker().delete(JobId(job))
    write_line(f"{job} is deleted")
    return OK


def _as_json(standing: JobStanding) -> dict[str, Any]:
    fields = {
        name: value
        for name, value in asdict(standing).items()
        if not name.startswith("cut_") and name != "cost_microusd"
    }
    return {**fields, **usage_of(standing), "ended": standing.status.ended}
