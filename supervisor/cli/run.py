"""`handoff run`: submit a job and wait for its answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from handoff_queue.shared.settings.optional_packages import check_extra
from handoff_queue.shared.settings.settings import OFFLINE_MODEL, Settings, load_settings
from handoff_queue.shared.types.errors import INTERRUPTED, StoreUnavailable, UserError
from handoff_queue.shared.types.limits import OnLimit
from handoff_queue.supervisor.cli.connection import with_this_user
from handoff_queue.supervisor.cli.console_process import job_pages
from handoff_queue.supervisor.cli.display.terminal import OutputFailed, can_ask, print_message
from handoff_queue.supervisor.cli.errors import end_like_ctrl_c
from handoff_queue.supervisor.cli.follow_job import follow_to_end
from handoff_queue.supervisor.cli.options import (
    AllowPartial,
    AsJson,
    OwnSpecialists,
    OwnTools,
    RequestText,
    RowsFile,
)
from handoff_queue.supervisor.cli.private_run import ResultOptions, start_run
from handoff_queue.supervisor.cli.request_options import (
    JobOptions,
    RequestOptions,
    build_request,
    check_model,
    read_request_text,
    with_job_options,
)


@dataclass(frozen=True)
class RunOptions:
    """Options of `run` that are not part of the request."""

    specialists: tuple[Path, ...]
    tools: tuple[Path, ...]
    result: ResultOptions


@with_job_options
def run(
    job: JobOptions,
    request: RequestText = None,
    specialists: OwnSpecialists = [],  # noqa: B006
    tools: OwnTools = [],  # noqa: B006
    as_json: AsJson = False,
    output: RowsFile = None,
    allow_partial: AllowPartial = False,
    opens_page: Annotated[
        bool, typer.Option("--open", help="Open the page of the job in the browser.")
    ] = False,
) -> int:
    """Run a job and wait for its answer. Needs no key and no Redis.

    With HANDOFF_REDIS_URL, the job runs on that broker and its workers. Otherwise the command
    starts a private Redis, a supervisor and three workers, and stops them at the end. Progress
    goes to stderr, the answer to stdout. With --open, a console on 127.0.0.1 shows the job until
    Ctrl-C, or without a terminal until the end of the job.

      handoff run "Which licences allow resale?" --docs licences --max-usd 0.50
    """
    if opens_page:
        check_extra("serve", "handoff run --open")
    result_options = ResultOptions(as_json, output, allow_partial, opens_page)
    options = RunOptions(tuple(specialists), tuple(tools), result_options)
    return _run(request, job.build_request_options(), options)


def _run(request: str | None, request_options: RequestOptions, options: RunOptions) -> int:
    """Run the job on the broker, or on a private Redis. Return the exit code.

    Raises:
        UserError: the request or an option cannot be used.
    """
    settings = load_settings()
    end_like_ctrl_c()
    result_options = options.result
    if result_options.output is not None and not request_options.workflow:
        raise UserError("--output writes a row for each item of a workflow: name one (--workflow)")
    request_options = replace(request_options, request=read_request_text(request, settings))
    if settings.redis_url is None:
        if request_options.on_limit is OnLimit.ASK:
            raise UserError(
                "--on-limit ask needs a broker (HANDOFF_REDIS_URL): no other command reaches a"
                " private Redis"
            )
        if request_options.after is not None:
            raise UserError(
                "--after needs a broker (HANDOFF_REDIS_URL): the jobs of a private Redis end"
                " with it"
            )
        if request_options.needs_approval and not can_ask():
            raise UserError(
                "--approve needs a terminal, or a broker (HANDOFF_REDIS_URL): there is no other way"
                " to answer"
            )
        return start_run(
            request_options,
            result_options,
            _build_private_settings(request_options, options, settings),
        )
    _refuse_own_folders(options)
    return _run_on_broker(request_options, result_options, settings)


def _run_on_broker(
    request_options: RequestOptions, result_options: ResultOptions, settings: Settings
) -> int:
    """Run the job on the broker in HANDOFF_REDIS_URL, with its workers. Return the exit code.

    Raises:
        UserError: the request cannot be used, or the broker has no processes.
        StoreUnavailable, OutputFailed: the message names the command that continues.
    """
    from handoff_queue.supervisor.cli.connection import require_processes
    from handoff_queue.supervisor.client import client

    jobs = with_this_user(client.connect(settings=settings))
    request = replace(build_request(request_options, jobs), is_quoted=True)
    require_processes(jobs, request_options.model)
    assert settings.redis_url is not None
    redis_url = settings.redis_url.get_secret_value()
    job_id = jobs.submit(request)
    try:
        with job_pages(redis_url, are_wanted=result_options.opens_page) as pages:
            if pages:
                pages.open(job_id)
            code = follow_to_end(
                jobs,
                job_id,
                as_json=result_options.as_json,
                allow_partial=result_options.allow_partial,
                asks=can_ask(),
                output=result_options.output,
            )
            if pages:
                pages.stay()
            return code
    except KeyboardInterrupt:
        print_message(
            f"the job continues: `handoff watch {job_id}` follows it, `handoff cancel {job_id}`"
            " stops it"
        )
        return INTERRUPTED
    except StoreUnavailable as error:
        raise StoreUnavailable(
            f"{error}. Nothing is lost: `handoff watch {job_id}` follows the job"
        ) from error
    except OutputFailed as error:
        raise OutputFailed(
            f"{error}. Nothing is lost: `handoff watch {job_id}` follows the job"
        ) from error


def _build_private_settings(
    request_options: RequestOptions, options: RunOptions, settings: Settings
) -> Settings:
    """Return the settings of a private run. Check the specialists, tools and model first.

    With `--model offline`, all agents use the offline model.

    Raises:
        UserError: a specialist, a tool or the model cannot be used.
    """
    from handoff_queue.supervisor.cli.supervisor_and_worker import check_folders, check_own

    changes: dict[str, Any] = {
        "specialists_dirs": (*settings.specialists_dirs, *options.specialists),
        "tools_dirs": (*settings.tools_dirs, *options.tools),
    }
    check_model(request_options.model, settings)
    if request_options.model == OFFLINE_MODEL:
        changes["offline"] = True
    elif request_options.model is not None:
        changes["job_model"] = request_options.model
    private_settings = settings.model_copy(update=changes)
    check_folders(private_settings)
    check_own(private_settings)
    return private_settings


def _refuse_own_folders(options: RunOptions) -> None:
    """Refuse --specialists and --tools for a job on a broker.

    Raises:
        UserError: one of the options is given. The workers of the broker have their own folders.
    """
    for option, folders, variable in (
        ("--specialists", options.specialists, "SPECIALISTS"),
        ("--tools", options.tools, "TOOLS"),
    ):
        if folders:
            raise UserError(
                f"{option} does not reach the workers of HANDOFF_REDIS_URL: "
                f"start them with HANDOFF_{variable}_DIRS, or unset HANDOFF_REDIS_URL"
            )
