"""The steps of many rows are issued in slices, with turns for other jobs between two slices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.due_work import LOST_AFTER_S
from handoff_queue.shared.types.events import HandoffIssued
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.names import SUPERVISOR_QUEUE
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.lifecycle.decide import MAX_HANDOFFS_A_DECISION
from tests.supervisor.shell import Shell, running_shell
from tests.supervisor.workflows.workflow_files import (
    ROW_STEP,
    UNREVIEWED,
    make_workflow,
    numbered_rows,
)

ROWS_LEFT = 3


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    with running_shell(redis_url, "researcher") as supervisor:
        yield supervisor


@pytest.fixture
def job_id(shell: Shell, tmp_path: Path) -> JobId:
    """Return a job after its first evaluation. It has `ROWS_LEFT` rows more than one slice
    holds.
    """
    request = Request(
        "Look at them all.",
        workflow=make_workflow(tmp_path, ROW_STEP, UNREVIEWED),
        items=numbered_rows(MAX_HANDOFFS_A_DECISION + ROWS_LEFT),
    )
    submitted = shell.jobs.submit(request)
    shell.advance(submitted)
    return submitted


def issued_count(shell: Shell, job_id: JobId) -> int:
    return shell.kinds(job_id).count("handoff_issued")


@pytest.mark.slow
def test_one_evaluation_issues_a_slice_and_leaves_the_rest_to_a_later_wake_up(
    shell: Shell, job_id: JobId
) -> None:
    redis = shell.store.connection.redis

    assert (
        issued_count(shell, job_id),
        redis.llen("researcher"),
        redis.llen(SUPERVISOR_QUEUE),
    ) == (
        MAX_HANDOFFS_A_DECISION,
        MAX_HANDOFFS_A_DECISION,
        1,
    )
    shell.advance(job_id)
    assert (issued_count(shell, job_id), redis.llen("researcher")) == (
        MAX_HANDOFFS_A_DECISION + ROWS_LEFT,
        MAX_HANDOFFS_A_DECISION + ROWS_LEFT,
    )
    assert redis.llen(SUPERVISOR_QUEUE) == 1, "nothing is left, and nobody is woken for it"


@pytest.mark.slow
def test_a_job_with_unissued_steps_is_due_soon(shell: Shell, job_id: JobId) -> None:
    now = shell.store.connection.now()

    assert shell.store.connection.redis.zscore(keys.DUE, job_id) / 1000 <= now + LOST_AFTER_S
    shell.advance(job_id)
    assert shell.store.connection.redis.zscore(keys.DUE, job_id) / 1000 > now + 60


@pytest.mark.slow
def test_concurrent_evaluations_issue_each_step_once(shell: Shell, job_id: JobId) -> None:
    others = [shell.another() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda supervisor: supervisor.advance(job_id), others))
    shell.advance(job_id)

    attempts = Counter(
        event.handoff_id for event in shell.events(job_id) if isinstance(event, HandoffIssued)
    )
    assert (len(attempts), set(attempts.values())) == (MAX_HANDOFFS_A_DECISION + ROWS_LEFT, {1})
    assert shell.store.connection.redis.llen("researcher") == MAX_HANDOFFS_A_DECISION + ROWS_LEFT


@pytest.mark.slow
def test_a_supervisor_that_reads_thousands_of_results_reads_each_only_once(
    shell: Shell, job_id: JobId
) -> None:
    """Each evaluation reads only the new events."""
    for event in shell.open(job_id)[:ROWS_LEFT]:
        shell.do(job_id, event)
    shell.advance(job_id)
    sent = shell.store.connection.redis.info("stats")["total_net_output_bytes"]
    shell.advance(job_id)

    assert shell.store.connection.redis.info("stats")["total_net_output_bytes"] - sent < 20_000
