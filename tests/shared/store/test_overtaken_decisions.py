"""A decision that only issues steps is committed although results arrived in between. So is an
forced end. All other overtaken decisions are refused.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import VersionConflict
from handoff_queue.shared.types.events import (
    CancelRequested,
    Event,
    JobEnded,
    JobStatus,
    StepRetry,
    StepsAbandoned,
    StepsTriedAgain,
)
from handoff_queue.shared.types.ids import JobId, StepId
from tests.doubles.jobs import a_job, finish, granted_claim, issue, issued_event, version_of

TRIED_AGAIN = StepsTriedAgain(steps=(StepRetry(step=StepId("third")),))


@pytest.fixture
def job_id(store: Store) -> JobId:
    """Return a job whose first step is issued. The decisions build on this version."""
    created = a_job(store)
    issue(store, created, "first.1")
    return created


def commit_decision(
    store: Store,
    job_id: JobId,
    *events: Event,
    expected: int = 2,
    due_in_s: float = 3_600,
    tip: float | None = None,
    forces_end: bool = False,
) -> int:
    """Commit a decision, and return the version of its first event in the journal."""
    due_at = store.connection.now() + due_in_s
    order = Commit(
        job_id=job_id,
        expected=expected,
        events=list(events),
        due_at=due_at,
        tip=tip,
        forces_end=forces_end,
    )
    recorded = store.journal.commit(order)
    assert recorded == store.journal.read(job_id, recorded[0].version - 1)
    return recorded[0].version


def event_types(store: Store, job_id: JobId) -> list[str]:
    return [recorded.event.type for recorded in store.journal.read(job_id)]


def test_steps_are_issued_after_a_result_that_arrived_in_between(
    store: Store, job_id: JobId
) -> None:
    finish(granted_claim(store, job_id, "first.1"))

    assert commit_decision(store, job_id, issued_event("second.1", group="g2"), TRIED_AGAIN) == 4
    assert event_types(store, job_id) == [
        "job_submitted",
        "handoff_issued",
        "handoff_finished",
        "handoff_issued",
        "steps_tried_again",
    ]
    granted_claim(store, job_id, "second.1")


def test_only_one_of_two_supervisors_issues_a_step(store: Store, job_id: JobId) -> None:
    commit_decision(store, job_id, issued_event("second.1", group="g2"))

    with pytest.raises(VersionConflict):
        commit_decision(store, job_id, issued_event("second.1", group="g2"))


@pytest.mark.parametrize(
    "event",
    [
        JobEnded(status=JobStatus.OK),
        issued_event("planner.1", "planner", None),
        issued_event("fact_gate.1", "writer", "g2"),
    ],
    ids=["the end", "a role", "a check of the answer"],
)
def test_a_decision_that_could_differ_now_is_refused(
    store: Store, job_id: JobId, event: Event
) -> None:
    finish(granted_claim(store, job_id, "first.1"))

    with pytest.raises(VersionConflict):
        commit_decision(store, job_id, issued_event("second.1", group="g2"), event)


def test_a_forced_end_is_stored_after_results_that_arrived_in_between(
    store: Store, job_id: JobId
) -> None:
    finish(granted_claim(store, job_id, "first.1"))

    assert (
        commit_decision(
            store,
            job_id,
            StepsAbandoned(steps=(), why="no time"),
            JobEnded(status=JobStatus.PARTIAL),
            forces_end=True,
        )
        == 4
    )
    assert event_types(store, job_id)[2:] == ["handoff_finished", "steps_abandoned", "job_ended"]


def test_a_forced_decision_that_does_not_end_the_job_is_refused(
    store: Store, job_id: JobId
) -> None:
    finish(granted_claim(store, job_id, "first.1"))

    with pytest.raises(VersionConflict):
        commit_decision(store, job_id, StepsAbandoned(steps=(), why="no time"), forces_end=True)


def test_a_job_is_ended_only_once(store: Store, job_id: JobId) -> None:
    commit_decision(store, job_id, JobEnded(status=JobStatus.PARTIAL))

    with pytest.raises(VersionConflict):
        commit_decision(store, job_id, JobEnded(status=JobStatus.OK), forces_end=True)


@pytest.mark.parametrize(
    "more",
    [CancelRequested(), StepsAbandoned(steps=(), why="no more")],
    ids=["a cancel", "another decision"],
)
def test_a_decision_overtaken_by_other_events_than_results_is_refused(
    store: Store, job_id: JobId, more: Event
) -> None:
    finish(granted_claim(store, job_id, "first.1"), "An answer.", more)

    with pytest.raises(VersionConflict):
        commit_decision(store, job_id, issued_event("second.1", group="g2"))


def test_a_decision_on_another_history_with_that_version_is_refused(
    store: Store, job_id: JobId
) -> None:
    tip = store.journal.read(job_id)[-1].at
    finish(granted_claim(store, job_id, "first.1"))

    with pytest.raises(VersionConflict):
        commit_decision(store, job_id, issued_event("second.1", group="g2"), tip=tip - 1)
    assert commit_decision(
        store, job_id, issued_event("second.1", group="g2"), tip=tip
    ) == version_of(store, job_id)


def test_the_earlier_due_time_of_a_result_is_kept(store: Store, job_id: JobId) -> None:
    """The chord's body may be lost. The publishing supervisor does not know the result."""
    finish(granted_claim(store, job_id, "first.1"))
    due_by_the_result = store.connection.redis.zscore(keys.DUE, job_id)

    commit_decision(store, job_id, issued_event("second.1", group="g2"), due_in_s=3_600)

    assert store.connection.redis.zscore(keys.DUE, job_id) == due_by_the_result
