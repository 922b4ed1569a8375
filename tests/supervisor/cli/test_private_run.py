"""A run on a private Redis names no command that could not reach that Redis."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.store.presence import Presence
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import SUPERVISOR_QUEUE
from handoff_queue.supervisor.cli.display.job_view import JobUpdate, JobView
from handoff_queue.supervisor.cli.display.remedies import describe_with_command
from handoff_queue.supervisor.cli.follow_job import with_remedies_in_place
from handoff_queue.supervisor.client.waiting_reasons import WaitingReason, find_waiting_reasons

JOB = JobInfo(JobId("j-0123456789ab"), JobStatus.WAITING, 1, "What is HNSW?", 0.0, cancelled=False)

UNSERVED = {"coder": "no sandbox: bubblewrap is not installed"}


def shown_reasons(*entries: WaitingReason) -> str:
    (moment,) = with_remedies_in_place(
        [JobUpdate(JobView(JOB.job_id, waiting_reasons=entries))], UNSERVED
    )
    return "; ".join(map(str, moment.view.waiting_reasons))


@pytest.mark.parametrize(
    "job",
    [
        replace(JOB, approval="plan"),
        replace(JOB, asks="a step failed"),
        replace(JOB, status=JobStatus.QUEUED),
    ],
    ids=["an approval", "a decision", "a process"],
)
def test_no_entry_names_a_command(job: JobInfo) -> None:
    entries = find_waiting_reasons(job, Presence(frozenset(), {}, {}))

    assert all("`handoff" in describe_with_command(entry) for entry in entries)
    assert "`handoff" not in shown_reasons(*entries)
    assert "here" in shown_reasons(*entries) or "starts it again" in shown_reasons(*entries)


def test_a_redis_that_takes_no_writes_keeps_its_reason() -> None:
    full = WaitingReason("a Redis that accepts writes", "raise maxmemory")

    assert shown_reasons(full) == "the job waits for a Redis that accepts writes: raise maxmemory"


def test_a_run_does_not_promise_a_worker_of_a_specialist_that_it_cannot_serve() -> None:
    unclaimed = {JOB.job_id: {HandoffId("code.1"): "coder"}}
    running = replace(JOB, status=JobStatus.RUNNING)
    entries = find_waiting_reasons(running, Presence(frozenset({SUPERVISOR_QUEUE}), unclaimed, {}))

    assert shown_reasons(*entries) == (
        "step code waits for a worker of `coder`: this run cannot serve it (no sandbox: bubblewrap"
        " is not installed)"
    )
