"""`handoff list`: list the newest jobs, one line per job on a wide screen, several on a narrow
one.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Annotated

import typer

from handoff_queue.shared.store.job_filter import EVERY_JOB
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.job_options import Mode, Priority
from handoff_queue.shared.types.usage import to_usd
from handoff_queue.supervisor.cli.connection import connect_to_broker
from handoff_queue.supervisor.cli.display.remedies import describe_with_command
from handoff_queue.supervisor.cli.display.terminal import (
    AT_MOST,
    format_bounded_count,
    format_clock,
    format_money,
    get_stdout,
    print_message,
    shorten,
    write_as_json,
    write_line,
)
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.cli.options import (
    FILTERS,
    AsJson,
    NewerThan,
    OlderThan,
    Statuses,
    Tenant,
    build_filter,
    convert_amount,
    filter_option,
    parse_statuses,
)
from handoff_queue.supervisor.client.json_forms import convert_job_info
from handoff_queue.supervisor.client.waiting_reasons import with_waiting

LINE_COLUMNS = 120
"""Least width, in characters, for one line per job. A narrower screen has no room for the title."""
_MAX_TITLE_CHARS = 60
"""Most characters of a title in the list."""
_ID_CHARS = 18
"""Characters of the id of a job: see `create_job_id`."""
_NARROW_HEADER = f"{'job':<{_ID_CHARS}}  {'status':<9}  submitted"
_WIDE_HEADER = f"{_NARROW_HEADER:<50}  {'turns':>7}  {'tokens':>14}  {'cost':>12}  request"


def format_header(columns: int) -> str:
    """Return the names of the columns, for a screen of this width in characters."""
    if columns >= LINE_COLUMNS:
        return _WIDE_HEADER
    return _NARROW_HEADER


def iterate_job_lines(job: JobInfo, columns: int) -> Iterator[str]:
    """Yield the lines of a job, with the reasons why it waits. The complete id comes first.

    Args:
        columns: width of the screen in characters.
    """
    tokens = job.input_tokens + job.output_tokens
    at_most = job.cut_calls > 0
    cost = format_money(to_usd(job.cost_microusd), at_most=at_most)
    start = f"{job.job_id:<{_ID_CHARS}}  {job.status:<9}  {format_clock(job.submitted_at)}"
    if columns >= LINE_COLUMNS:
        token_text = f"{AT_MOST if at_most else ''}{tokens:,}"
        line = f"{start}  {job.turns:>7,}  {token_text:>14}  {cost:>12}  "
        title_chars = min(_MAX_TITLE_CHARS, columns - len(line))
        yield line + shorten(job.title, title_chars)
        for reason in job.waiting_for.split("; "):
            if reason:
                yield f"    {reason}"
        return
    yield start
    usage_texts = (
        format_count(job.turns, "turn"),
        format_bounded_count(tokens, "token", at_most=at_most),
        cost,
    )
    yield f"  {'  '.join(usage_texts)}"
    yield f"  {shorten(job.title, max(20, columns - 2))}"
    for reason in job.waiting_for.split("; "):
        yield from textwrap.wrap(
            reason,
            max(20, columns),
            initial_indent="  ",
            subsequent_indent="    ",
            break_on_hyphens=False,
        )


def list_jobs(
    statuses: Statuses = [],  # noqa: B006
    tenant: Tenant = None,
    specialist: Annotated[
        str | None,
        filter_option("specialist", "NAME", "Only jobs in which this specialist got a handoff."),
    ] = None,
    failed_specialist: Annotated[
        str | None,
        filter_option("failed-specialist", "NAME", "Only jobs in which this specialist failed."),
    ] = None,
    text: Annotated[
        str | None, filter_option("text", "TEXT", "Only jobs whose title or id has this text.")
    ] = None,
    mode: Annotated[Mode | None, filter_option("mode", "MODE", "Only jobs of this mode.")] = None,
    priority: Annotated[
        Priority | None, filter_option("priority", "PRIORITY", "Only jobs of this priority.")
    ] = None,
    min_usd: Annotated[
        float | None,
        typer.Option(
            "--min-usd",
            metavar="X",
            help="Only jobs that cost at least this much, in dollars.",
            rich_help_panel=FILTERS,
        ),
    ] = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    as_json: AsJson = False,
    count: Annotated[
        int, typer.Option("-n", metavar="N", min=1, max=10_000, help="Number of jobs.")
    ] = 20,
) -> int:
    """List the newest jobs.

    handoff list --status queued,running --older-than 2h
    """
    chosen_statuses = parse_statuses(statuses)
    jobs = connect_to_broker()
    where = build_filter(
        chosen_statuses,
        jobs.store.connection.now(),
        older_than_s=older_than,
        newer_than_s=newer_than,
        min_microusd=convert_amount("--min-usd", min_usd),
        tenant=tenant,
        specialist=specialist,
        failed_specialist=failed_specialist,
        text=text,
        mode=mode,
        priority=priority,
    )
    if as_json:
        write_as_json([convert_job_info(info) for info in jobs.newest(count, where)])
        return OK
    stored_jobs = jobs.store.jobs.read(jobs.store.jobs.list_newest(count, where))
    job_infos = with_waiting(jobs.store, stored_jobs, describe_with_command)
    if not job_infos:
        problem = "no job matches"
        if where == EVERY_JOB:
            problem = _NO_JOBS
        print_message(problem)
        return OK
    columns = get_stdout().width
    write_line(format_header(columns))
    for info in job_infos:
        for line in iterate_job_lines(info, columns):
            write_line(line)
    return OK


_NO_JOBS = 'there are no jobs (`handoff submit "..."` makes one)'
