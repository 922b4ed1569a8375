"""A small job next to a job with a thousand rows does not wait until all rows are published."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from handoff_queue.shared.types.events import HandoffIssued, JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.lifecycle.decide import MAX_HANDOFFS_A_DECISION
from handoff_queue.testing import Json, MessagesServer, Reply, result_reply
from tests.running_system import SUPERVISOR, model_environment, running_system
from tests.supervisor.workflows.workflow_files import (
    ROW_STEP,
    UNREVIEWED,
    make_workflow,
    numbered_rows,
)

pytestmark = pytest.mark.slow

ROWS = 2 * MAX_HANDOFFS_A_DECISION + 1
WRITER = ("writer", "handoff_queue.workers.app", "writer")


def model(_request: Json) -> Reply:
    """Answer every call at once."""
    return result_reply("So it is.")


def issue_times(jobs: Client, job_id: JobId, count: int) -> list[float]:
    """Wait until this number of handoffs is issued, and return their times."""
    issued = (
        recorded.at for recorded in jobs.events(job_id) if isinstance(recorded.event, HandoffIssued)
    )
    return list(islice(issued, count))


def test_a_small_job_is_issued_between_the_slices_of_a_large_job(tmp_path: Path) -> None:
    """The supervisor has one slot, so the times in the journals give the order of its work.

    No worker serves the rows, which only have to be issued.
    """
    large = Request(
        "Look at them all.",
        workflow=make_workflow(tmp_path, ROW_STEP, UNREVIEWED),
        items=numbered_rows(ROWS),
    )
    with (
        MessagesServer(model) as server,
        running_system(tmp_path / "system", (WRITER,), model_environment(server)) as system,
    ):
        jobs = system.jobs()
        job_id = jobs.submit(large)
        small_job = jobs.submit(
            Request("Say how it stands.", specialists=("writer",), mode=Mode.SINGLE)
        )
        system.start_worker(*SUPERVISOR, 1)

        large_job_times = issue_times(jobs, job_id, ROWS)
        assert jobs.wait(small_job, 60) is JobStatus.OK
        small_job_times = issue_times(jobs, small_job, ROWS)
        assert len(large_job_times) == ROWS
        assert min(large_job_times) < max(small_job_times) < max(large_job_times)
        jobs.cancel(job_id)
        assert jobs.wait(job_id, 60) is JobStatus.CANCELLED
        jobs.store.connection.close()
