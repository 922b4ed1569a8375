"""`handoff run`: submit a job and stay until its answer, on the broker that is set or on one
of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from handoff_queue.shared.settings.settings import OFFLINE_MODEL, Settings, load_settings
from handoff_queue.shared.types.errors import StoreUnavailable, UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import NOBODY_THERE
from handoff_queue.shared.types.limits import OnLimit
from handoff_queue.supervisor.cli.display.terminal import (
    OutputFailed,
    note,
    say,
)
from handoff_queue.supervisor.cli.display.terminal_input import can_ask
from handoff_queue.supervisor.cli.errors import (
    FAILED,
    INTERRUPTED,
    NOT_ENDED,
    end_like_ctrl_c,
)
from handoff_queue.supervisor.cli.follow_job import NobodyToAsk, stay
from handoff_queue.supervisor.cli.job_options import JobOptions, takes_a_job
from handoff_queue.supervisor.cli.options import (
    CONTINUE,
    AllowPartial,
    AsJson,
    OwnSpecialists,
    OwnTools,
    RequestText,
    RowsFile,
)
from handoff_queue.supervisor.cli.request_options import (
    RequestOptions,
    check_model,
    request_of,
    text_of,
)

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.client import Request


@dataclass(frozen=True)
class RunOptions:
    """What `run` was told beside the job."""

    specialists: tuple[Path, ...] = ()
    tools: tuple[Path, ...] = ()
    as_json: bool = False
    resume: str | None = None
    output: Path | None = None
    """The file of rows; None: the answer is printed."""
    allow_partial: bool = False
    """Whether a partial answer gives exit code 0."""


@takes_a_job
def run(
    job: JobOptions,
    request: RequestText = None,
    specialists: OwnSpecialists = [],  # noqa: B006
    tools: OwnTools = [],  # noqa: B006
    as_json: AsJson = False,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="JOB",
            help="Go on with a run that Ctrl-C interrupted.",
            rich_help_panel=CONTINUE,
        ),
    ] = None,
    output: RowsFile = None,
    allow_partial: AllowPartial = False,
) -> int:
    """Submit a job and stay until its answer.

    Uses the broker in HANDOFF_REDIS_URL and its workers. Without it, starts a private Redis, a
    supervisor and three workers, all of them gone when the command ends. Progress goes to
    stderr, the answer to stdout.

      handoff run "Which of these licences allow resale?" --docs licences --max-usd 0.50

      handoff run "List the deadlines" --docs contract.pdf --answer-schema deadlines.json --json | jq .answer
    """
    return _run(
        request,
        job.asked(),
        RunOptions(tuple(specialists), tuple(tools), as_json, resume, output, allow_partial),
    )


def _run(request: str | None, asked: RequestOptions, how: RunOptions) -> int:
    """Returns the exit code. `request`: as it was typed; `asked`: all else about the job; with
    `how.resume` neither counts.
    """
    settings = load_settings()
    end_like_ctrl_c()
    if how.resume is not None:
        job_id = _run_to_resume(request, how.resume, settings)
        return _run_here(None, replace(how, resume=job_id), settings)
    if how.output is not None and not asked.workflow:
        raise UserError("--output writes a row for each item of a workflow: name one (--workflow)")
    asked = replace(asked, request=text_of(request, settings))
    if settings.redis_url is None:
        if asked.on_limit is OnLimit.ASK:
            raise UserError(
                "--on-limit ask needs a broker (HANDOFF_REDIS_URL): to a private one nobody else could bring the decision"
            )
        if asked.after is not None:
            raise UserError(
                "--after needs a broker (HANDOFF_REDIS_URL): the jobs of a private one are gone with it"
            )
        if asked.is_to_be_approved and not can_ask():
            raise UserError(
                "--approve needs a terminal, or a broker (HANDOFF_REDIS_URL): here nobody could be asked, and nobody else could answer"
            )
        return _run_here(asked, how, _settings_here(asked, how, settings))
    _refuse_what_workers_own(how)
    return _run_there(asked, how, settings)


def _refuse_steps_to_approve(request: Request) -> None:
    """Raises: UserError: a step of the workflow waits for an approval that nobody could give."""
    steps = request.workflow.steps if request.workflow else ()
    step = next((step for step in steps if step.approve), None)
    if step is not None:
        raise UserError(
            f"{step.where}: `approve: true` needs a terminal, or a broker (HANDOFF_REDIS_URL):"
            " here nobody could be asked, and nobody else could answer"
        )


def _run_there(asked: RequestOptions, how: RunOptions, settings: Settings) -> int:
    """On the broker in HANDOFF_REDIS_URL, with its workers."""
    from handoff_queue.supervisor.cli.fleet_state import require_somebody
    from handoff_queue.supervisor.client import client

    jobs = client.connect(settings=settings)
    request = replace(request_of(asked, jobs), is_quoted=True)
    require_somebody(jobs, asked.model)
    job_id = jobs.submit(request)
    try:
        return stay(
            jobs,
            job_id,
            as_json=how.as_json,
            allow_partial=how.allow_partial,
            asks=can_ask(),
            output=how.output,
        )
    except KeyboardInterrupt:
        say(
            f"the job goes on: `handoff watch {job_id}` comes back to it, `handoff cancel {job_id}` stops it"
        )
        return INTERRUPTED
    except StoreUnavailable as error:
        raise StoreUnavailable(
            f"{error} Nothing is lost: `handoff watch {job_id}` comes back to the job"
        ) from error
    except OutputFailed as error:
        raise OutputFailed(
            f"{error}. Nothing is lost: `handoff watch {job_id}` comes back to the job"
        ) from error


def _run_here(asked: RequestOptions | None, how: RunOptions, settings: Settings) -> int:
    """On a Redis and processes of its own, which end with it."""
    from handoff_queue.supervisor.cli.embedded_system import EmbeddedSystem

    job_id: JobId | None = None
    system = EmbeddedSystem(settings, resume=how.resume)
    try:
        with system:
            from handoff_queue.supervisor.client import client

            jobs = client.connect(system.url, settings)
            try:
                request = request_of(asked, jobs) if asked else None
                if request and not can_ask():
                    _refuse_steps_to_approve(request)
                    request = replace(request, approvals=NOBODY_THERE)
                note(
                    "starting a private Redis, a supervisor and workers (HANDOFF_REDIS_URL is not set)"
                )
                system.wait_until_ready(jobs)
                job_id = jobs.submit(request) if request else JobId(str(how.resume))
                return stay(
                    jobs,
                    job_id,
                    as_json=how.as_json,
                    allow_partial=how.allow_partial,
                    asks=can_ask(),
                    check=system.check,
                    output=how.output,
                    is_private=True,
                )
            except (KeyboardInterrupt, OutputFailed, NobodyToAsk):
                if job_id is not None:
                    system.keep_as(job_id)
                raise
    except KeyboardInterrupt:
        say(f"interrupted{_after_the_end(job_id, was_kept=system.was_kept)}")
        return INTERRUPTED
    except OutputFailed as error:
        say(f"{error}{_after_the_end(job_id, was_kept=system.was_kept)}")
        return FAILED
    except NobodyToAsk as error:
        say(f"{error}{_after_the_end(job_id, was_kept=system.was_kept)} in a terminal")
        return NOT_ENDED


def _run_to_resume(request: str | None, job: str, settings: Settings) -> JobId:
    """Return the job of the interrupted run that `--resume` names.

    Raises:
        UserError: the command line has a request, a broker is set, or no such run is kept.
    """
    from handoff_queue.supervisor.cli import interrupted_runs as kept

    if request is not None:
        raise UserError("--resume goes on with its own request: leave the other one out")
    if settings.redis_url is not None:
        raise UserError(
            f"--resume goes on with a run of this machine, and HANDOFF_REDIS_URL is set: `handoff watch {job}`"
        )
    return kept.find_kept_job(settings, job)


def _settings_here(asked: RequestOptions, how: RunOptions, settings: Settings) -> Settings:
    """Everything about specialists and models that can be refused before anything starts."""
    from handoff_queue.supervisor.cli.processes import check_own

    changes: dict[str, Any] = {
        "specialists_dirs": (*settings.specialists_dirs, *how.specialists),
        "tools_dirs": (*settings.tools_dirs, *how.tools),
    }
    check_model(asked.model, settings)
    if asked.model == OFFLINE_MODEL:
        changes["offline"] = True
    changed = settings.model_copy(update=changes)
    check_own(changed)
    return changed


def _refuse_what_workers_own(how: RunOptions) -> None:
    for option, given, variable in (
        ("--specialists", how.specialists, "SPECIALISTS"),
        ("--tools", how.tools, "TOOLS"),
    ):
        if given:
            raise UserError(
                f"{option} is the workers' affair, and HANDOFF_REDIS_URL names a broker with workers of its own: "
                f"start them with HANDOFF_{variable}_DIRS, or unset HANDOFF_REDIS_URL"
            )


def _after_the_end(job_id: JobId | None, *, was_kept: bool) -> str:
    """Return the second half of a line: what is left of a run on a private Redis."""
    if job_id is None:
        return " before the job was submitted; everything is stopped"
    if was_kept:
        return f"; everything is stopped, and what was done is kept: `handoff run --resume {job_id}` goes on"
    return "; everything is stopped, and what was done could not be kept (is HANDOFF_CACHE_DIR writable?)"
