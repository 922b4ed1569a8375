"""Commands on jobs that are in the queue: watch, result, list, retry, finish, delete."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from handoff_queue.shared.store.jobs import EVERY_JOB
from handoff_queue.shared.text.durations import DurationRange, in_units
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.limits import MOST_COUNT, MOST_SECONDS
from handoff_queue.supervisor.cli.display.job_list import header, listed
from handoff_queue.supervisor.cli.display.terminal import stdout, write_as_json, write_line
from handoff_queue.supervisor.cli.errors import INTERRUPTED, OK, end_like_ctrl_c, exit_code_of, say
from handoff_queue.supervisor.cli.job_options import (
    OlderThan,
    Statuses,
    Tenant,
    filter_of,
    statuses_of,
)
from handoff_queue.supervisor.cli.options import LIMITS, AllowPartial, AsJson, RowsFile
from handoff_queue.supervisor.client.fleet import usage_of
from handoff_queue.supervisor.client.job_lookup import job_named
from handoff_queue.supervisor.client.journal_follower import RECONNECT_FOR_S

if TYPE_CHECKING:
    from handoff_queue.shared.settings.settings import Settings
    from handoff_queue.shared.store.jobs import JobStanding
    from handoff_queue.shared.types.ids import JobId
    from handoff_queue.supervisor.client.client import Client

Job = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="The id that `submit` printed, j-0123456789ab, or as much of its beginning as is unique.",
    ),
]


def client_of_broker() -> Client:
    """Raises: UserError: HANDOFF_REDIS_URL is not set."""
    from handoff_queue.shared.settings.settings import load_settings

    settings = load_settings()
    if settings.redis_url is None:
        raise UserError(
            "HANDOFF_REDIS_URL is not set: name the broker (`handoff up` starts one and prints it), or use `handoff run`"
        )
    return client_with(settings)


def client_and_job(job: str) -> tuple[Client, JobId]:
    """Return a client of the broker, and the id that `job` names or begins.

    Raises:
        UserError: HANDOFF_REDIS_URL is not set, or `job` does not name exactly one job.
    """
    jobs = client_of_broker()
    return jobs, job_named(jobs.ledger, job)


def client_with(settings: Settings) -> Client:
    """For a command, which is not to wait long where Redis is silent."""
    from handoff_queue.shared.store.redis.connection import COMMAND_TIMEOUT_S
    from handoff_queue.supervisor.client import client

    return client.connect(settings=settings, timeout_s=COMMAND_TIMEOUT_S)


def watch(
    job: Job,
    as_json: AsJson = False,
    reconnect: Annotated[
        float,
        typer.Option(
            metavar="TIME",
            parser=DurationRange(0, MOST_SECONDS),
            show_default=in_units(RECONNECT_FOR_S),
            help="How long to try again when Redis goes away: 90s, 10m.",
        ),
    ] = RECONNECT_FOR_S,
    allow_partial: AllowPartial = False,
) -> int:
    """Follow a job until its end, then print its answer.

    May be stopped and started at any time; it begins with what has happened so far.
    """
    from handoff_queue.supervisor.cli.run import stay

    jobs, job_id = client_and_job(job)
    end_like_ctrl_c()
    try:
        return stay(
            jobs,
            job_id,
            as_json=as_json,
            allow_partial=allow_partial,
            reconnect_for_s=reconnect,
        )
    except KeyboardInterrupt:
        say(f"the job goes on: `handoff watch {job_id}` comes back to it")
        return INTERRUPTED


def result(
    job: Job,
    as_json: AsJson = False,
    wait: Annotated[
        float,
        typer.Option(
            metavar="TIME",
            parser=DurationRange(0, MOST_SECONDS),
            show_default=in_units(0),
            help="How long to wait for the job's end: 90s, 10m, 1h30m.",
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
    from handoff_queue.supervisor.cli.run import print_outcome

    jobs, job_id = client_and_job(job)
    if output is not None:
        from handoff_queue.supervisor.cli.display.rows import write_rows

        status = jobs.wait(job_id, wait)
        write_rows(job_id, jobs.rows(job_id), output)
        return exit_code_of(status, allow_partial=allow_partial)
    found = jobs.result(job_id, wait_s=wait)
    if as_json or found.status.ended:
        return print_outcome(found, as_json=as_json, allow_partial=allow_partial)
    if found.waits_for:
        say(f"{job_id} is {found.status.value}: {'; '.join(found.waits_for)}")
    else:
        say(
            f"{job_id} is {found.status.value}: `--wait 10m` waits for its end, `handoff watch {job_id}` shows what it does"
        )
    return exit_code_of(found.status)


def list_jobs(
    statuses: Statuses = [],  # noqa: B006
    tenant: Tenant = None,
    older_than: OlderThan = None,
    as_json: AsJson = False,
    count: Annotated[int, typer.Option("-n", min=1, max=10_000, help="How many.")] = 20,
) -> int:
    """The newest jobs.

    handoff list --status queued,running --older-than 2h
    """
    wanted = statuses_of(statuses)
    jobs = client_of_broker()
    where = filter_of(wanted, tenant, older_than, jobs.ledger.connection.now())
    standings = jobs.newest(count, where)
    if as_json:
        write_as_json([_as_json(standing) for standing in standings])
        return OK
    if not standings:
        say(_NO_JOBS if where == EVERY_JOB else "no job matches")
        return OK
    columns = stdout().width
    write_line(header(columns))
    for standing in standings:
        for line in listed(standing, columns):
            write_line(line)
    return OK


_NO_JOBS = 'there are no jobs (`handoff submit "..."` makes one)'


MaxJobTurns = Annotated[
    int | None,
    typer.Option(
        "--max-job-turns",
        metavar="N",
        min=1,
        max=MOST_COUNT,
        help="The new limit of turns of the whole job, with the turns that it has had.",
        rich_help_panel=LIMITS,
    ),
]
MaxUsd = Annotated[
    float | None,
    typer.Option(
        "--max-usd",
        metavar="X",
        min=1e-6,
        max=1e9,
        help="The new limit of what the whole job may cost.",
        rich_help_panel=LIMITS,
    ),
]

MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        metavar="N",
        min=1,
        help="The new limit of tokens of the whole job.",
        rich_help_panel=LIMITS,
    ),
]


def retry(
    job: Job,
    from_step: Annotated[
        str | None, typer.Option("--from", metavar="STEP", help="Everything from this step on.")
    ] = None,
    max_job_turns: MaxJobTurns = None,
    max_usd: MaxUsd = None,
    max_tokens: MaxTokens = None,
) -> int:
    """Go on with an ended job: do again what did not succeed, or everything from a step on.

    What it has spent stays spent. One that its budget has ended needs a higher limit.
    """
    from handoff_queue.supervisor.cli.request_options import new_limits

    limits = new_limits(max_job_turns, max_tokens, max_usd)
    jobs, job_id = client_and_job(job)
    jobs.retry(job_id, from_step, limits)
    write_line(f"{job_id} goes on: `handoff watch {job_id}`")
    return OK


def finish(
    job: Job,
    max_job_turns: MaxJobTurns = None,
    max_usd: MaxUsd = None,
    max_tokens: MaxTokens = None,
) -> int:
    """Fill the gaps of an ended job: the steps that it did without, then what builds on them.

    What is whole stays as it is, and is not paid for again. This time nothing is left out for being late.
    """
    from handoff_queue.supervisor.cli.request_options import new_limits

    limits = new_limits(max_job_turns, max_tokens, max_usd)
    jobs, job_id = client_and_job(job)
    jobs.retry(job_id, None, limits, whole=True)
    write_line(f"{job_id} goes on: `handoff watch {job_id}`")
    return OK


def delete(job: Job) -> int:
    """Remove an ended job and everything of it."""
    jobs, job_id = client_and_job(job)
    jobs.delete(job_id)
    write_line(f"{job_id} is deleted")
    return OK


def _as_json(standing: JobStanding) -> dict[str, Any]:
    fields = {
        name: value
        for name, value in asdict(standing).items()
        if not name.startswith("cut_") and name != "cost_microusd"
    }
    return {**fields, **usage_of(standing), "ended": standing.status.ended}
