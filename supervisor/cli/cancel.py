"""`handoff cancel`: stop jobs by their ids, or all that match a filter."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from handoff_queue.shared.store.job_filter import JobFilter
from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.errors import StoreUnavailable, UnknownJob, UserError
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.cli.connection import connect_to_broker
from handoff_queue.supervisor.cli.display.terminal import (
    can_ask,
    confirm,
    print_message,
    write_line,
)
from handoff_queue.supervisor.cli.errors import BAD_INPUT, FAILED, OK
from handoff_queue.supervisor.cli.options import (
    OlderThan,
    Statuses,
    Tenant,
    build_filter,
    parse_statuses,
)
from handoff_queue.supervisor.client.job_lookup import find_job

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.client import Client

OPEN = frozenset(status for status in JobStatus if not status.has_ended)


def cancel(
    job: Annotated[
        list[str] | None,
        typer.Argument(metavar="JOB", help="Job ids, or their unique beginnings."),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Cancel all jobs that match the filters. Asks first."),
    ] = False,
    statuses: Statuses = [],  # noqa: B006
    tenant: Tenant = None,
    older_than: OlderThan = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Stop jobs on all machines.

    The results so far are kept, and `handoff retry` continues the job.

    handoff cancel j-k5tq2wbz7x3mhd4n j-w4hr7dzn5obx2ugk

    handoff cancel --all --status queued --tenant team-a --older-than 2h
    """
    names = job or []
    has_filter = bool(statuses) or tenant is not None or older_than is not None
    if names and (everything or has_filter):
        raise UserError("name the jobs, or use --all with filters, but not both")
    if has_filter and not everything:
        raise UserError("--status, --tenant and --older-than need --all")
    if not names and not everything:
        raise UserError("name the jobs to cancel, or use --all (`handoff list` shows the jobs)")
    chosen_statuses = parse_open_statuses(statuses)
    if everything and not yes and not can_ask():
        raise UserError("--all asks before it cancels, and there is no terminal to ask: use --yes")
    jobs = connect_to_broker()
    if names:
        return _cancel_named(jobs, names)
    where = build_filter(
        chosen_statuses, jobs.store.connection.now(), older_than_s=older_than, tenant=tenant
    )
    return _cancel_all(jobs, where, asks=not yes)


def parse_open_statuses(texts: Sequence[str]) -> frozenset[JobStatus]:
    """Return the statuses of the jobs to cancel: the named statuses, or all statuses of open
    jobs.

    Raises:
        UserError: a text is not a status, or is the status of an ended job.
    """
    statuses = parse_statuses(texts)
    ended_statuses = sorted(statuses - OPEN)
    if ended_statuses:
        raise UserError(
            f"--status {ended_statuses[0]}: these jobs have ended already; only jobs that are "
            f"{' or '.join(sorted(OPEN))} can be cancelled"
        )
    return statuses or OPEN


class CancelOutcome(Enum):
    """Effect of a cancel on one job."""

    STOPPED = auto()
    HAD_ENDED = auto()
    UNKNOWN = auto()
    """The job never existed, or was deleted."""


def _cancel_named(jobs: Client, names: Sequence[str]) -> int:
    """Cancel each job and print a line for each. A wrong id does not stop the command.

    Args:
        names: ids, or their beginnings.
    """
    job_ids: dict[JobId, None] = {}
    problems = 0
    for name in names:
        try:
            job_ids[find_job(jobs.store, name)] = None
        except UserError as error:
            print_message(error.line)
            problems += 1

    def tell(job_id: JobId, outcome: CancelOutcome, problem: str) -> None:
        if outcome is CancelOutcome.STOPPED:
            write_line(f"{job_id} is being cancelled")
        else:
            print_message(problem or f"{job_id} had ended before")

    outcomes = cancel_each(jobs, list(job_ids), tell)
    if problems or outcomes[CancelOutcome.UNKNOWN]:
        return BAD_INPUT
    return OK


def _cancel_all(jobs: Client, where: JobFilter, *, asks: bool) -> int:
    """Cancel the jobs that match now. A job that ends or is deleted in the meantime is not
    an error.

    Args:
        asks: whether the person at the terminal must confirm first.
    """
    matching = list(jobs.store.jobs.iterate_matching(where))
    if not matching:
        print_message("no open job matches: there is nothing to cancel")
        return OK
    if asks and not confirm(f"cancel {format_count(len(matching), 'job')}?"):
        print_message("no job was cancelled")
        return FAILED
    outcomes = cancel_each(jobs, matching, lambda *_: None)
    stopped = outcomes[CancelOutcome.STOPPED]
    verb = "is" if stopped == 1 else "are"
    write_line(f"{format_count(stopped, 'job')} {verb} being cancelled")
    had_ended = outcomes.total() - stopped
    if had_ended:
        print_message(f"{format_count(had_ended, 'job')} had ended before")
    return OK


def cancel_each(
    jobs: Client, job_ids: Sequence[JobId], tell: Callable[[JobId, CancelOutcome, str], None]
) -> Counter[CancelOutcome]:
    """Cancel these jobs one after the other and count the outcomes.

    Args:
        tell: called after each job with its outcome, and with the error about its id or an empty
            text.

    Raises:
        KeyboardInterrupt, StoreUnavailable: if there are several jobs, a line with the number of
            cancelled jobs comes first.
    """
    outcomes = Counter[CancelOutcome]()
    try:
        with defer_interrupt() as is_interrupted:
            for job_id in job_ids:
                if is_interrupted():
                    raise KeyboardInterrupt
                outcome, problem = _cancel_one(jobs, job_id)
                outcomes[outcome] += 1
                tell(job_id, outcome, problem)
    except (KeyboardInterrupt, StoreUnavailable):
        if len(job_ids) > 1:
            print_message(
                f"{outcomes[CancelOutcome.STOPPED]:,} of {len(job_ids):,} jobs are being cancelled;"
                " the same command cancels the rest"
            )
        raise
    return outcomes


def _cancel_one(jobs: Client, job_id: JobId) -> tuple[CancelOutcome, str]:
    """Cancel a job. Return the outcome, and the error about its id or an empty text."""
    try:
        is_stopped = jobs.cancel(job_id)
    except UnknownJob as error:
        return CancelOutcome.UNKNOWN, error.line
    if is_stopped:
        return CancelOutcome.STOPPED, ""
    return CancelOutcome.HAD_ENDED, ""


@contextmanager
def defer_interrupt() -> Iterator[Callable[[], bool]]:
    """Record the first Ctrl-C, SIGTERM or SIGHUP instead of raising it, so that the count is
    exact.

    Yield a function that returns whether a signal came. A second signal raises
    KeyboardInterrupt at once. A signal that is ignored, or that has another handler, keeps its
    handler.
    """
    was_signalled = False

    def record_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal was_signalled
        if was_signalled:
            raise KeyboardInterrupt
        was_signalled = True

    replaced: dict[signal.Signals, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            replaced[number] = signal.signal(number, record_signal)
    try:
        yield lambda: was_signalled
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
