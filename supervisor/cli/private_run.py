"""A run on a private Redis, with a supervisor and workers that end with the command."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from handoff_queue.shared.types.errors import INTERRUPTED, UserError
from handoff_queue.shared.types.job_options import APPROVE_AT_ONCE
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.supervisor.cli.connection import with_this_user
from handoff_queue.supervisor.cli.display.terminal import (
    OutputFailed,
    can_ask,
    print_message,
    print_progress,
)
from handoff_queue.supervisor.cli.errors import FAILED, NOT_ENDED, end_like_ctrl_c
from handoff_queue.supervisor.cli.follow_job import NoTerminal, follow_to_end
from handoff_queue.supervisor.cli.request_options import RequestOptions, read_request
from handoff_queue.supervisor.cli.unserved_specialists import (
    check_served,
    find_unserved,
    print_unserved,
)

if TYPE_CHECKING:
    from handoff_queue.shared.settings.settings import Settings
    from handoff_queue.shared.types.ids import JobId
    from handoff_queue.supervisor.cli.console_process import JobPages
    from handoff_queue.supervisor.cli.embedded_system import EmbeddedSystem
    from handoff_queue.supervisor.client.request import Request


@dataclass(frozen=True)
class ResultOptions:
    """Options for the result of a job."""

    as_json: bool = False
    output: Path | None = None
    """The file that gets a row for each item. None: the answer goes to stdout."""
    allow_partial: bool = False
    """True if a partial answer gives exit code 0."""
    opens_page: bool = False
    """True to open the page of the job in the browser."""


def start_run(
    request_options: RequestOptions, result_options: ResultOptions, settings: Settings
) -> int:
    """Run a new job on a private Redis. Return the exit code.

    Raises:
        UserError: the request cannot be used, or a process cannot start.
    """
    request = _build_request(request_options, settings)
    return _PrivateRun(settings, result_options, request, job_id=None).run()


def continue_run(job_id: JobId, result_options: ResultOptions, settings: Settings) -> int:
    """Continue an interrupted run on a private Redis. Return the exit code.

    Raises:
        UserError: the data of the run cannot be read, or a process cannot start.
    """
    end_like_ctrl_c()
    return _PrivateRun(settings, result_options, request=None, job_id=job_id).run()


@dataclass(slots=True)
class _PrivateRun:
    """The run of one job on a private Redis."""

    settings: Settings
    result_options: ResultOptions
    request: Request | None
    """A new job; None: an interrupted job."""
    job_id: JobId | None
    """None: the new job is not submitted yet."""
    is_ready: bool = False
    """True if the system runs the job, so that its data can be kept for another run."""

    def run(self) -> int:
        """Start the private system, run the job to its end, and return the exit code."""
        from handoff_queue.supervisor.cli.embedded_system import EmbeddedSystem

        system = EmbeddedSystem(self.settings, interrupted=self.job_id)
        try:
            with system, system.open_pages(are_wanted=self.result_options.opens_page) as pages:
                try:
                    return self._run_on(system, pages)
                except (KeyboardInterrupt, OutputFailed, NoTerminal):
                    if self.job_id is not None and self.is_ready:
                        system.keep_as(self.job_id)
                    raise
        except KeyboardInterrupt:
            print_message(f"interrupted{self._explain_how_to_continue(system)}")
            return INTERRUPTED
        except OutputFailed as error:
            print_message(f"{error}{self._explain_how_to_continue(system)}")
            return FAILED
        except NoTerminal as error:
            print_message(f"{error}{self._explain_how_to_continue(system)} in a terminal")
            return NOT_ENDED

    def _run_on(self, system: EmbeddedSystem, pages: JobPages | None) -> int:
        """Run the job on a system that starts. Return the exit code."""
        from handoff_queue.supervisor.client import client

        jobs = with_this_user(client.connect(system.url, system.build_client_settings()))
        print_progress(
            "starting a private Redis, a supervisor and workers (HANDOFF_REDIS_URL is not set)"
        )
        system.wait_until_ready(jobs)
        unserved = find_unserved(jobs.store.presence.read_announcements())
        print_unserved(unserved)
        if self.request is not None:
            named_specialists = _list_named_specialists(self.request, self.settings)
            check_served(named_specialists, self.request.specialists, unserved)
            self.job_id = jobs.submit(self.request)
        assert self.job_id is not None
        self.is_ready = True
        if pages:
            pages.open(self.job_id)
        code = follow_to_end(
            jobs,
            self.job_id,
            as_json=self.result_options.as_json,
            allow_partial=self.result_options.allow_partial,
            asks=can_ask(),
            check=system.check,
            output=self.result_options.output,
            is_private=True,
            unserved=unserved,
        )
        if pages:
            pages.stay()
        return code

    def _explain_how_to_continue(self, system: EmbeddedSystem) -> str:
        """Return the end of the message about an interruption: the state of the work."""
        if self.job_id is None:
            return " before the job was submitted; everything is stopped"
        if system.was_kept:
            return (
                "; everything is stopped and the work is kept: `handoff retry"
                f" {self.job_id}` continues it"
            )
        return (
            "; everything is stopped, and the work could not be kept (is HANDOFF_CACHE_DIR"
            " writable?)"
        )


def _build_request(request_options: RequestOptions, settings: Settings) -> Request:
    """Return the checked request, before anything starts. Without a terminal, no question waits
    for an answer.

    Raises:
        UserError: the request cannot be used, it names an unknown specialist, or a step needs an
            approval without a terminal.
    """
    request = read_request(request_options, settings)
    _check_specialists(request, settings)
    if can_ask():
        return request
    _refuse_steps_to_approve(request)
    return replace(request, approvals=APPROVE_AT_ONCE)


def _check_specialists(request: Request, settings: Settings) -> None:
    """Check that the specialists of the workflow and of the gates exist: the workers of this run
    serve no others.

    Raises:
        UserError: a specialist does not exist. The message names its place.
    """
    from handoff_queue.supervisor.cli.supervisor_and_worker import (
        check_specialists,
        list_specialist_names,
    )

    named_specialists = _list_named_specialists(request, settings)
    if not named_specialists:
        return
    known = list_specialist_names(settings)
    for where, name in named_specialists:
        try:
            check_specialists([name], known)
        except UserError as error:
            raise UserError(f"{where}: {error.line}") from error


def _list_named_specialists(request: Request, settings: Settings) -> list[tuple[str, str]]:
    """Return the specialists of the workflow and of the gates, each after its place."""
    from handoff_queue.supervisor.client.request import choose_answer_gates

    named_specialists: list[tuple[str, str]] = []
    steps = request.workflow.steps if request.workflow else ()
    for step in steps:
        if step.specialist != CHILD_JOB_SPECIALIST:
            named_specialists.append((step.where, step.specialist))
    gates = choose_answer_gates(request, settings).gates
    if gates and gates.fact_checker:
        named_specialists.append(("fact_checker", gates.fact_checker))
    return named_specialists


def _refuse_steps_to_approve(request: Request) -> None:
    """Refuse a workflow with a step that needs an approval, because there is no terminal.

    Raises:
        UserError: a step needs an approval. The message names the first such step.
    """
    if not request.workflow:
        return
    for step in request.workflow.steps:
        if step.approve:
            raise UserError(
                f"{step.where}: `approve: true` needs a terminal, or a broker (HANDOFF_REDIS_URL):"
                " there is no other way to answer"
            )
