"""Write trace pages of invented jobs."""

from __future__ import annotations

from pathlib import Path

from handoff_queue.supervisor.client.job_result import build_report
from handoff_queue.supervisor.tracing.page import TracedJob, render_page
from handoff_queue.supervisor.tracing.timeline import build_timeline
from tests.supervisor.tracing.job_record_builder import JobRecordBuilder


def write_page(builder: JobRecordBuilder, to: Path, **reported: object) -> Path:
    """Write the trace page of a job to a file. `reported`: changed fields of the job's report."""
    record = builder.record()
    to.write_text(
        render_page(
            [
                TracedJob(
                    record, build_report(record).model_copy(update=reported), build_timeline(record)
                )
            ],
            "handoff-queue 0",
        ),
        encoding="utf-8",
    )
    return to
