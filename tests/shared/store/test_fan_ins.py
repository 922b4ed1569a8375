"""The end of a handoff counts usable results. It wakes a supervisor only if a fan-in may
continue.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import HandoffClaim
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import CountedFanIn
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import JobId
from tests.doubles.jobs import (
    a_job,
    due_at,
    finish,
    finish_with,
    granted_claim,
    issue,
    issued_event,
    result_of,
    version_of,
)


@pytest.fixture
def job_id(store: Store) -> JobId:
    """Return a job with four handoffs. The first three belong to a fan-in that needs two
    results.
    """
    job_id = a_job(store)
    counts = (CountedFanIn(fan_in="d", wakes_from=2),)
    parts = [
        issued_event(f"{step}.1", index=n).model_copy(update={"counts": counts})
        for n, step in enumerate("abc")
    ]
    due_at = store.connection.now() + 3_600
    events = [*parts, issued_event("x.1", index=3)]
    store.journal.commit(
        Commit(job_id=job_id, expected=version_of(store, job_id), events=events, due_at=due_at)
    )
    return job_id


def end_wakes(claimed: HandoffClaim, status: ResultStatus = ResultStatus.OK) -> bool:
    result = result_of(claimed).model_copy(
        update={"status": status, "error": "no" if status is ResultStatus.FAILED else None}
    )
    return finish_with(claimed, result).wakes


def test_the_supervisor_is_woken_when_a_fan_in_may_continue(store: Store, job_id: JobId) -> None:
    assert [end_wakes(granted_claim(store, job_id, f"{step}.1")) for step in "abc"] == [
        False,
        True,
        True,
    ]


def test_a_part_of_no_counted_fan_in_wakes_no_supervisor(store: Store, job_id: JobId) -> None:
    assert not end_wakes(granted_claim(store, job_id, "x.1"))


def test_an_unusable_result_is_announced_at_once_and_not_counted(
    store: Store, job_id: JobId
) -> None:
    assert end_wakes(granted_claim(store, job_id, "a.1"), ResultStatus.FAILED)
    assert not end_wakes(granted_claim(store, job_id, "b.1"))
    assert end_wakes(granted_claim(store, job_id, "c.1"))


def test_a_repeated_result_is_counted_once(store: Store, job_id: JobId) -> None:
    claimed = granted_claim(store, job_id, "a.1")

    assert [end_wakes(claimed), end_wakes(claimed)] == [False, False]
    assert end_wakes(granted_claim(store, job_id, "b.1"))


def test_the_sweeper_wakes_a_supervisor_after_a_failed_wake_up(store: Store, job_id: JobId) -> None:
    for step in "ab":
        end_wakes(granted_claim(store, job_id, f"{step}.1"))

    assert due_at(store, job_id) < store.connection.now() + 60


def test_a_later_result_does_not_delay_the_wake_up_for_an_earlier_one(store: Store) -> None:
    job_id = a_job(store)
    issue(store, job_id, "a.1")
    store.connection.redis.zadd(keys.due("researcher"), {job_id: 5})

    finish(granted_claim(store, job_id, "a.1"))

    assert store.connection.redis.zscore(keys.due("researcher"), job_id) == 5
