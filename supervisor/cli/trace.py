"""`handoff trace`: write a job as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.errors import MalformedMessage, UnknownJob, UserError
from handoff_queue.shared.types.events import HandoffIssued, PlanMade
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.cli.connection import connect_and_find_job
from handoff_queue.supervisor.cli.display.atomic_output import STDOUT, write_out
from handoff_queue.supervisor.cli.display.event_lines import iterate_lines
from handoff_queue.supervisor.cli.display.job_view import JobUpdate, JobView
from handoff_queue.supervisor.cli.display.terminal import print_progress
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.cli.export import print_unverified_end
from handoff_queue.supervisor.client.export import Export, extract_record
from handoff_queue.supervisor.client.job_record import JobRecord
from handoff_queue.supervisor.client.job_result import build_report
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.text.plain_yaml import read_bounded
from handoff_queue.supervisor.text.sanitizing import replace_unsafe
from handoff_queue.supervisor.tracing.page import TracedJob, build_tree, find_absent, render_page
from handoff_queue.supervisor.tracing.timeline import build_timeline

MAX_BYTES = 500_000_000
"""Most bytes of an exported job. A plan has at most 10,000 steps, of about 20 kB each."""
MAX_NAMED = 5
"""Most child jobs that the note about missing child jobs names."""


def trace(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB|FILE",
            help="A job id, its beginning, or a file of `handoff export`.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File of the page; `-`: stdout.",
            show_default="JOB.html",
        ),
    ] = None,
) -> int:
    """Write a job as one HTML page: the timeline and all texts.

    The page needs no network and no other file. It contains turns and tool calls if the
    workers keep them (HANDOFF_KEEP_TURNS).

      handoff trace j-k5tq2wbz7x3mhd4n

      handoff trace job.json -o job.html
    """
    is_file = job.endswith(".json") or Path(job).is_file()
    if is_file:
        exports = _read_export_file(Path(job))
    else:
        exports = _read_stored_jobs(job)
    first = exports[0]
    try:
        traced = {export.job.job_id: _make_traced_job(export) for export in exports}
        tree = build_tree(traced, first.job.job_id)
        text = render_page(tree, first.made_by)
    except (LookupError, MalformedMessage, ArithmeticError, ValueError) as error:
        if not is_file:
            raise
        problem = " ".join(str(error).split())[:200]
        raise UserError(
            f"{job} is incomplete or damaged ({problem}): export the job again"
        ) from error
    target = output or Path(f"{first.job.job_id}.html")
    write_out(target, text)
    for export in exports:
        print_unverified_end(export)
    if target != STDOUT:
        print_progress(f"{first.job.job_id} is in {replace_unsafe(str(target))}")
    absent = find_absent(tree)
    if absent:
        print_progress(
            f"not in the page: {_describe_absent_children(absent)};"
            " `handoff trace` shows each while it is stored"
        )
    return OK


def _describe_absent_children(absent: Sequence[JobId]) -> str:
    more = ""
    if len(absent) > MAX_NAMED:
        more = f" and {len(absent) - MAX_NAMED} more"
    return f"{format_count(len(absent), 'child job')}, {', '.join(absent[:MAX_NAMED])}{more}"


def _read_export_file(path: Path) -> list[Export]:
    data = read_bounded(path, MAX_BYTES, "export it without `--texts`")
    try:
        return [Export.from_json(data)]
    except MalformedMessage as error:
        problem = str(error).removeprefix("Export: ")
        raise UserError(
            f"{path} is not a file of `handoff export`: {problem}; name a job, or write the file"
            " with `handoff export JOB -o FILE`"
        ) from error


def _read_stored_jobs(job: str) -> list[Export]:
    """Return the job, then its stored child jobs."""
    jobs, job_id = connect_and_find_job(job)
    exports = [jobs.export(job_id)]
    left = _list_children(exports[0])
    while left:
        with suppress(UnknownJob):  # deleted on its own
            exports.append(jobs.export(left.pop(0)))
            left += _list_children(exports[-1])
    return exports


def _list_children(export: Export) -> list[JobId]:
    children: dict[JobId, None] = {}
    for recorded in export.journal:
        if isinstance(recorded.event, HandoffIssued) and recorded.event.child:
            children[recorded.event.child.job_id] = None
    return list(children)


def _make_traced_job(export: Export) -> TracedJob:
    record = extract_record(export)
    return TracedJob(
        record=record,
        report=build_report(record),
        timeline=build_timeline(record),
        story=tuple(_iterate_story(record)),
        turns=export.turns,
    )


def _iterate_story(record: JobRecord) -> Iterator[tuple[float, str]]:
    """Yield the lines about the events of a job, each with the time of its event."""
    texts = ResultTexts(record.payloads)
    empty_view = JobView(record.job.job_id, handoffs=record.handoffs, texts=texts)
    view = empty_view.apply_events(record.journal)
    for number, recorded in enumerate(record.journal):
        before = None
        if isinstance(recorded.event, PlanMade):
            before = fold(view.job_id, None, record.journal[:number])
        yield from iterate_lines(JobUpdate(view, (recorded,)), before)
