"""`handoff retry`: continue an ended job, or an interrupted `handoff run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from handoff_queue.shared.settings.optional_packages import check_extra
from handoff_queue.shared.settings.settings import load_settings
from handoff_queue.shared.types.errors import UnknownJob, UserError
from handoff_queue.shared.types.limits import MAX_COUNT, NewLimits
from handoff_queue.supervisor.cli.connection import Job, connect_and_find_job
from handoff_queue.supervisor.cli.display.terminal import write_line
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.cli.options import (
    BUDGET,
    AllowPartial,
    AsJson,
    RowsFile,
)

if TYPE_CHECKING:
    from handoff_queue.shared.settings.settings import Settings
    from handoff_queue.supervisor.cli.private_run import ResultOptions

RetryFromStep = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="STEP", help="Repeat this step and all steps that depend on it."
    ),
]
NewMaxUsd = Annotated[
    float | None,
    typer.Option(
        "--max-usd",
        metavar="X",
        help="New limit of the cost of the whole job, in dollars.",
        rich_help_panel=BUDGET,
    ),
]
NewMaxTurns = Annotated[
    int | None,
    typer.Option(
        "--max-turns",
        metavar="N",
        min=1,
        max=MAX_COUNT,
        help="New limit of turns of the whole job.",
        rich_help_panel=BUDGET,
    ),
]
NewMaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        metavar="N",
        min=1,
        help="New limit of tokens of the whole job.",
        rich_help_panel=BUDGET,
    ),
]


def retry(
    job: Job,
    from_step: RetryFromStep = None,
    max_usd: NewMaxUsd = None,
    max_turns: NewMaxTurns = None,
    max_tokens: NewMaxTokens = None,
    as_json: AsJson = False,
    output: RowsFile = None,
    allow_partial: AllowPartial = False,
) -> int:
    """Repeat failed steps, fill gaps, or continue a stopped run.

    An ended job repeats the steps that failed. If its answer has gaps, it fills the gaps.
    Finished steps are not paid for again, and earlier spending still counts.

      handoff retry j-k5tq2wbz7x3mhd4n --max-usd 2

    Without HANDOFF_REDIS_URL, the command continues a `handoff run` that was interrupted on
    this machine, and prints its result.
    """
    from handoff_queue.supervisor.cli.private_run import ResultOptions
    from handoff_queue.supervisor.cli.request_options import build_new_limits

    limits = build_new_limits(max_turns, max_tokens, max_usd)
    result_options = ResultOptions(as_json, output, allow_partial)
    settings = load_settings()
    if settings.redis_url is None:
        return _continue_run(job, from_step, limits, result_options, settings)
    return _retry_on_broker(job, from_step, limits, result_options, settings)


def _continue_run(
    job: str,
    from_step: str | None,
    limits: NewLimits,
    result_options: ResultOptions,
    settings: Settings,
) -> int:
    """Continue an interrupted run. Return the exit code of its job.

    Raises:
        UserError: no such run is kept, or an option is only for ended jobs.
    """
    from handoff_queue.supervisor.cli.interrupted_runs import find_kept_job
    from handoff_queue.supervisor.cli.private_run import continue_run

    job_id = find_kept_job(settings, job)
    if from_step is not None or limits != NewLimits():
        raise UserError(
            f"{job_id} is an interrupted run, and continues with its own limits:"
            " leave out --from and --max-..."
        )
    check_extra("worker", "handoff retry")
    return continue_run(job_id, result_options, settings)


def _retry_on_broker(
    job: str,
    from_step: str | None,
    limits: NewLimits,
    result_options: ResultOptions,
    settings: Settings,
) -> int:
    """Store the retry of an ended job. The workers of the broker do the work.

    Raises:
        UserError: see `Client.retry`, or an option is only for interrupted runs.
    """
    if result_options.as_json or result_options.output or result_options.allow_partial:
        raise UserError(
            "--json, --output and --allow-partial are for an interrupted run:"
            f" use them with `handoff result {job} --wait 1h`"
        )
    try:
        jobs, job_id = connect_and_find_job(job)
        jobs.retry(job_id, from_step, limits)
    except UnknownJob as error:
        raise UnknownJob(f"{error.line}{_build_hint(job, settings)}") from error
    write_line(f"{job_id} continues: `handoff watch {job_id}`")
    return OK


def _build_hint(job: str, settings: Settings) -> str:
    """Return what to do if the unknown job is an interrupted run of this machine."""
    from handoff_queue.supervisor.cli.interrupted_runs import find_kept_jobs

    for job_id in find_kept_jobs(settings):
        if job_id.startswith(job):
            return (
                f"; {job_id} is an interrupted run on this machine: unset HANDOFF_REDIS_URL to"
                " continue it"
            )
    return ""
