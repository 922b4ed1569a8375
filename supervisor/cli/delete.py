"""`handoff delete`: remove an ended job, or all data of a tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from handoff_queue.shared.text.times import DurationRange, in_units
from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.limits import MAX_SECONDS
from handoff_queue.supervisor.cli.connection import OptionalJob, connect_to_broker
from handoff_queue.supervisor.cli.display.terminal import (
    can_ask,
    confirm,
    print_message,
    write_line,
)
from handoff_queue.supervisor.cli.errors import FAILED, OK
from handoff_queue.supervisor.client.job_lookup import find_job
from handoff_queue.supervisor.text.sanitizing import replace_unsafe

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.client import Client


WAIT_S = 60.0
"""Seconds to wait for the end of a tenant's open jobs, without `--wait`."""


def delete(
    job: OptionalJob = None,
    tenant: Annotated[
        str | None,
        typer.Option(
            "--tenant", metavar="NAME", help="All data of this tenant, also its open jobs. Asks."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait_s: Annotated[
        float | None,
        typer.Option(
            "--wait",
            metavar="TIME",
            parser=DurationRange(0, MAX_SECONDS),
            help="Time to wait for the end of the tenant's open jobs.",
            show_default=in_units(WAIT_S),
        ),
    ] = None,
) -> int:
    """Delete an ended job, or everything of a tenant.

    With a tenant: its tokens, schedules, jobs, dead letters and statistics, and the documents
    that no other job holds. Open jobs are cancelled first, which needs a supervisor. The same
    command continues an interrupted deletion.

      handoff delete j-k5tq2wbz7x3mhd4n

      handoff delete --tenant initech --yes
    """
    if job is None and tenant is None:
        raise UserError("a JOB is missing: name a job, or a tenant with --tenant")
    if job is not None and tenant is not None:
        raise UserError("a JOB and --tenant exclude each other: leave one out")
    if tenant is not None:
        return _delete_tenant(tenant, WAIT_S if wait_s is None else wait_s, asks=not yes)
    if wait_s is not None:
        raise UserError("--wait is for the deletion of a tenant: leave it out")
    jobs = connect_to_broker()
    job_id = find_job(jobs.store, job or "")
    jobs.delete(job_id)
    write_line(f"{job_id} is deleted")
    return OK


def _delete_tenant(tenant: str, wait_s: float, *, asks: bool) -> int:
    if asks and not can_ask():
        raise UserError("--tenant asks before it deletes, and there is no terminal: use --yes")
    jobs = connect_to_broker()
    if asks and not confirm(_build_question(jobs, tenant)):
        print_message("nothing was deleted")
        return FAILED
    deletion = jobs.delete_tenant(tenant, wait_s=wait_s)
    counts = (
        format_count(deletion.jobs, "job"),
        format_count(deletion.schedules, "schedule"),
        format_count(deletion.documents, "document"),
        format_count(deletion.letters, "dead letter"),
        format_count(deletion.notes, "note"),
        format_count(deletion.tokens, "token"),
    )
    write_line(f"tenant {replace_unsafe(tenant)}: deleted {', '.join(counts)}")
    if not any(count for count in deletion.model_dump(exclude={"tenant", "is_complete"}).values()):
        print_message(f"there was nothing of tenant {replace_unsafe(tenant)}: check the name")
    if deletion.kept_documents:
        kept_count = format_count(deletion.kept_documents, "document")
        print_message(f"kept {kept_count} that jobs of other tenants hold, or may hold")
    if not deletion.is_complete:
        print_message(
            f"{format_count(deletion.open_jobs, 'job')} had not ended in time: check that a"
            " supervisor runs (`handoff doctor`), and repeat the command"
        )
        return FAILED
    return OK


def _build_question(jobs: Client, tenant: str) -> str:
    from handoff_queue.shared.store.job_filter import JobFilter

    by_status = jobs.store.jobs.count_by_status(JobFilter(tenant=tenant))
    still_open = sum(count for status, count in by_status.items() if not status.has_ended)
    schedules = len(jobs.store.schedules.list_all(tenant))
    return (
        f"delete {format_count(sum(by_status.values()), 'job')} ({still_open:,} open) and"
        f" {format_count(schedules, 'schedule')} of tenant {replace_unsafe(tenant)}?"
    )
