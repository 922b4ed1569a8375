"""Wake-ups in quick succession cause few evaluations, which see every earlier write."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from celery import Celery

from handoff_queue.shared.types.ids import HandoffId, JobId, create_job_id
from handoff_queue.supervisor.client.handoff_publishing import OutgoingHandoff
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.engine.wake_up_coalescing import WakeUpCoalescer
from tests.supervisor.shell import DyingDispatcher, Shell
from tests.supervisor.workflows.workflow_files import (
    ROW_STEP,
    UNREVIEWED,
    make_workflow,
    numbered_rows,
)
from tests.waiting import wait_until

JOB = create_job_id()
A, B, C = HandoffId("a.1"), HandoffId("b.1"), HandoffId("c.1")


def has_waiting_caller(together: WakeUpCoalescer, job_id: JobId = JOB) -> bool:
    return together._lines[job_id].waiting is not None


def test_a_third_caller_joins_the_waiting_caller_during_an_evaluation() -> None:
    together, suspects_seen = WakeUpCoalescer(), list[Sequence[HandoffId]]()

    def second() -> None:
        with together.turn(JOB, [B]) as place:
            assert place is not None
            suspects_seen.append(place.suspects)

    with together.turn(JOB, [A]) as first:
        assert first is not None
        suspects_seen.append(first.suspects)
        other = threading.Thread(target=second)
        other.start()
        wait_until(lambda: has_waiting_caller(together), expected="the second one waits")
        for suspects in ([C], [], [B]):
            with together.turn(JOB, suspects) as place:
                assert place is None
    other.join()

    assert suspects_seen == [(A,), (B, C)]
    assert together.jobs == 0


def test_a_caller_that_has_decided_delays_no_other_caller() -> None:
    together = WakeUpCoalescer()
    with together.turn(JOB) as first:
        assert first is not None
        first.end()
        with together.turn(JOB) as second:
            assert second is not None
            first.end()
            with together.turn(create_job_id()) as another_job:
                assert another_job is not None
            assert together.jobs == 1


def test_the_next_caller_evaluates_in_parallel_after_a_hang() -> None:
    together = WakeUpCoalescer(most_s=0.01)
    with together.turn(JOB), together.turn(JOB, [B]) as second:
        assert second is not None
        assert second.suspects == (B,)
        with together.turn(JOB, [C]) as third:
            assert third is not None
            assert third.suspects == (C,)
    assert together.jobs == 0


def test_after_a_failure_the_next_caller_evaluates() -> None:
    together = WakeUpCoalescer(most_s=60)
    with pytest.raises(KeyError), together.turn(JOB):
        raise KeyError
    with together.turn(JOB) as next_one:
        assert next_one is not None


def test_an_evaluation_sees_every_write_before_its_wake_up() -> None:
    """Many threads write and then wake the job, in any order. All writes are read in the end."""
    together, written, read, looks, lock = (
        WakeUpCoalescer(),
        list[int](),
        set[int](),
        list[int](),
        threading.Lock(),
    )
    start = threading.Barrier(16)

    def write_and_wake(thread: int) -> None:
        start.wait()
        for n in range(200):
            with lock:
                written.append(200 * thread + n)
            with together.turn(JOB) as place:
                if place is not None:
                    looks.append(1)
                    read.update(list(written))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(write_and_wake, range(16)))

    assert read == {*written}
    assert len(looks) <= len(written)
    assert together.jobs == 0


class SlowDispatcher(DyingDispatcher):
    """Dispatcher that pauses each publication until the test sets `may_go_on`."""

    def __init__(self, app: Celery) -> None:
        super().__init__(app)
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

    def publish_group(self, job_id: JobId, outgoing: Sequence[OutgoingHandoff]) -> None:
        self.has_begun.set()
        assert self.may_go_on.wait(60)
        super().publish_group(job_id, outgoing)


def test_wake_ups_during_an_evaluation_cause_one_more_evaluation(
    shell: Shell, tmp_path: Path
) -> None:
    slow = SlowDispatcher(shell.app)
    shell.dispatcher, shell.advance._dispatcher = slow, slow
    job_id = shell.jobs.submit(
        Request(
            "Look at them all.",
            workflow=make_workflow(tmp_path, ROW_STEP, UNREVIEWED),
            items=numbered_rows(3),
        )
    )

    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(shell.advance, job_id)
        assert slow.has_begun.wait(60)
        for event in shell.open(job_id):
            shell.do(job_id, event)
        others = [pool.submit(shell.advance, job_id) for _ in range(8)]
        wait_until(
            lambda: sum(evaluation.done() for evaluation in others) == len(others) - 1,
            expected="one waits, and all others go with it",
        )
        assert not shell.jobs.info(job_id).status.has_ended
        slow.may_go_on.set()
        for evaluation in (first, *others):
            evaluation.result()

    assert shell.jobs.info(job_id).status.has_ended
