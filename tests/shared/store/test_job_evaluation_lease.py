"""Each evaluation is recorded from its start to its end. A job whose evaluations never end is
given up.
"""

from __future__ import annotations

from itertools import chain

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim_requests import MAX_FAILED_EVALUATIONS, ClaimRequest
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.job_evaluation_lease import COALESCING_S, FROZEN_AFTER_LEASES
from handoff_queue.shared.store.journal import MAX_EVENTS_A_READ
from handoff_queue.shared.store.leases import Leases
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.errors import PoisonJob, TooManyEvaluators, VersionConflict
from handoff_queue.shared.types.events import CancelRequested
from handoff_queue.shared.types.ids import HandoffId, JobId, create_job_id
from tests.doubles.jobs import a_job, finish, issue, issued_event, version_of
from tests.doubles.sweep_states import (
    add_unfinished_evaluations,
    age_wake_ups,
    count_unfinished_evaluations,
    simulate_silence,
)
from tests.redis_clock import redis_time_s
from tests.waiting import wait_until

GIVEN_UP_S = FROZEN_AFTER_LEASES * 3_600.0
"""Time in seconds after which a silent evaluation is given up. Leases in this file last an hour."""
SILENT_AGES_S = tuple(
    GIVEN_UP_S * (MAX_FAILED_EVALUATIONS - n) + 60 - n for n in range(MAX_FAILED_EVALUATIONS)
)
"""Ages in seconds of the maximum number of silent evaluations, each started after the last
ended.
"""


def last_heartbeats_ms(store: Store, job_id: JobId) -> dict[str, int]:
    """Return the time of the last heartbeat of each recorded evaluation (Unix ms)."""
    entries = store.connection.redis.hget(keys.job(job_id), "evaluations").decode().split()
    return {name: int(at_ms) for name, at_ms in (word.split(":") for word in entries)}


@pytest.fixture
def job_id(store: Store) -> JobId:
    return a_job(store)


def test_an_evaluation_reads_the_journal_after_a_version(store: Store, job_id: JobId) -> None:
    store.journal.append(job_id, CancelRequested())

    lease = store.evaluation_leases.open(job_id)

    assert [*chain(*lease.begin())] == store.journal.read(job_id)
    assert [*chain(*lease.begin(1))] == store.journal.read(job_id, 1)
    assert [*chain(*lease.begin(2))] == []


def test_a_long_journal_is_read_to_its_end(store: Store, job_id: JobId) -> None:
    many = [CancelRequested()] * (MAX_EVENTS_A_READ + 5)
    store.journal.commit(Commit(job_id=job_id, expected=1, events=many))

    events = chain(*store.evaluation_leases.open(job_id).begin())
    assert [recorded.version for recorded in events] == list(range(1, MAX_EVENTS_A_READ + 7))


def test_an_evaluation_of_an_unknown_job_is_not_recorded(store: Store) -> None:
    nobody = create_job_id()

    assert [*chain(*store.evaluation_leases.open(nobody).begin())] == []
    assert not store.connection.redis.exists(keys.job(nobody))


def test_an_evaluation_that_begins_twice_counts_once(store: Store, job_id: JobId) -> None:
    evaluation = store.evaluation_leases.open(job_id)
    evaluation.begin()
    evaluation.begin()

    assert count_unfinished_evaluations(store, job_id) == 1


@pytest.mark.parametrize("how_it_ends", ["commit", "due", "record_failure", "interrupted"])
def test_a_completed_evaluation_removes_itself_and_earlier_ones(
    store: Store, job_id: JobId, how_it_ends: str
) -> None:
    ending, later = store.evaluation_leases.open(job_id), store.evaluation_leases.open(job_id)
    ending.begin()
    later.begin()
    recorded = store.connection.redis.hget(keys.job(job_id), "evaluations")
    add_unfinished_evaluations(store, job_id, *SILENT_AGES_S[1:])
    before = store.connection.redis.hget(keys.job(job_id), "evaluations")
    store.connection.redis.hset(keys.job(job_id), "evaluations", before + b" " + recorded)

    match how_it_ends:
        case "commit":
            store.journal.commit(
                Commit(
                    job_id=job_id, expected=1, events=[CancelRequested()], evaluation_id=ending.name
                )
            )
        case "due":
            store.journal.set_due(job_id, None, 1, evaluation_id=ending.name)
        case "record_failure":
            store.journal.record_failure(job_id, evaluation_id=ending.name)
        case _:
            ending.remove_note()

    assert store.connection.redis.hget(keys.job(job_id), "evaluations").startswith(
        later.name.encode()
    )
    assert count_unfinished_evaluations(store, job_id) == 1


def test_a_refused_commit_ends_no_evaluation(store: Store, job_id: JobId) -> None:
    evaluation = store.evaluation_leases.open(job_id)
    evaluation.begin()

    with pytest.raises(VersionConflict):
        store.journal.commit(
            Commit(
                job_id=job_id,
                expected=7,
                events=[CancelRequested()],
                evaluation_id=evaluation.name,
            )
        )

    assert count_unfinished_evaluations(store, job_id) == 1


def test_an_evaluation_continues_after_its_role_has_finished(store: Store, job_id: JobId) -> None:
    evaluation, event = (
        store.evaluation_leases.open(job_id),
        issued_event("judge.1", role="judge", group=None),
    )
    issue(store, job_id, "judge.1", role="judge", group=None)
    claim = store.claims.claim(
        ClaimRequest(
            job_id,
            HandoffId("judge.1"),
            event.handoff.digest,
            "supervisor:1",
            evaluation_id=evaluation.name,
        )
    )
    while_it_runs = count_unfinished_evaluations(store, job_id)

    finish(claim)

    assert (while_it_runs, count_unfinished_evaluations(store, job_id)) == (0, 1)


def test_no_evaluation_begins_after_too_many_without_an_end(store: Store, job_id: JobId) -> None:
    add_unfinished_evaluations(store, job_id, *SILENT_AGES_S)

    with pytest.raises(PoisonJob):
        store.evaluation_leases.open(job_id).begin()


def test_the_process_that_gives_up_a_job_runs_alone_and_may_freeze(
    store: Store, job_id: JobId
) -> None:
    add_unfinished_evaluations(store, job_id, *SILENT_AGES_S)
    with pytest.raises(PoisonJob):
        store.evaluation_leases.open(job_id).begin()

    with pytest.raises(TooManyEvaluators):
        store.evaluation_leases.open(job_id).begin()

    add_unfinished_evaluations(store, job_id, *SILENT_AGES_S, GIVEN_UP_S + 1)
    with pytest.raises(PoisonJob):
        store.evaluation_leases.open(job_id).begin()


def test_one_evaluation_less_than_the_limit_is_not_a_reason(store: Store, job_id: JobId) -> None:
    add_unfinished_evaluations(store, job_id, *SILENT_AGES_S[1:])

    assert store.evaluation_leases.open(job_id).begin()


def test_while_one_evaluation_tests_a_failing_job_no_other_begins_and_the_job_is_due_soon(
    store: Store, job_id: JobId
) -> None:
    add_unfinished_evaluations(store, job_id, SILENT_AGES_S[-1], 60)
    age_wake_ups(store, 0, job_id)

    before = redis_time_s(store)
    with pytest.raises(TooManyEvaluators):
        store.evaluation_leases.open(job_id).begin()

    due = store.connection.redis.zscore(keys.DUE, job_id) / 1000
    assert before <= due - COALESCING_S <= redis_time_s(store)
    assert store.connection.redis.zscore(keys.WAITING + "supervisor", job_id) is None, (
        "its wake-up was taken"
    )
    assert count_unfinished_evaluations(store, job_id) == 2


def test_after_a_failure_only_one_evaluation_begins_even_at_the_same_moment(
    store: Store, job_id: JobId
) -> None:
    add_unfinished_evaluations(store, job_id, SILENT_AGES_S[-1])

    assert store.evaluation_leases.open(job_id).begin()
    with pytest.raises(TooManyEvaluators):
        store.evaluation_leases.open(job_id).begin()


def test_the_limit_of_frozen_evaluations_applies_before_any_is_given_up(
    store: Store, job_id: JobId
) -> None:
    add_unfinished_evaluations(store, job_id, *(60 - n for n in range(MAX_FAILED_EVALUATIONS - 1)))
    assert store.evaluation_leases.open(job_id).begin()

    add_unfinished_evaluations(store, job_id, *(60 - n for n in range(MAX_FAILED_EVALUATIONS)))
    with pytest.raises(TooManyEvaluators):
        store.evaluation_leases.open(job_id).begin()


def test_evaluations_that_started_before_the_first_was_given_up_count_as_one(
    store: Store, job_id: JobId
) -> None:
    """Several processes can die within seconds, for example with their machine."""
    add_unfinished_evaluations(
        store, job_id, *(GIVEN_UP_S + 60 - n for n in range(3 * MAX_FAILED_EVALUATIONS))
    )

    assert store.evaluation_leases.open(job_id).begin()


def test_any_number_of_evaluations_may_begin_at_once(store: Store, job_id: JobId) -> None:
    for _ in range(5 * MAX_FAILED_EVALUATIONS):
        assert store.evaluation_leases.open(job_id).begin()


def test_a_long_evaluation_gives_signs_of_life(redis_url: str) -> None:
    """The thread that renews leases sends them. A frozen process sends none."""
    lease_s = 0.3
    store = open_store(redis_url, Settings(lease_s=lease_s))
    leases, job_id = Leases(redis_url, lease_s, watchdog=False), a_job(store)
    leases.start()
    slow, frozen = store.evaluation_leases.open(job_id), store.evaluation_leases.open(job_id)
    slow.begin()
    frozen.begin()
    began = last_heartbeats_ms(store, job_id)

    with leases.evaluating(slow.heartbeat):
        later = FROZEN_AFTER_LEASES * lease_s * 1000
        wait_until(
            lambda: last_heartbeats_ms(store, job_id)[slow.name] > began[slow.name] + later,
            expected="heartbeats",
        )

    assert last_heartbeats_ms(store, job_id)[frozen.name] == began[frozen.name]
    leases.stop()
    store.connection.close()


def test_a_heartbeat_restores_no_removed_evaluation(store: Store, job_id: JobId) -> None:
    evaluation = store.evaluation_leases.open(job_id)
    evaluation.begin()
    evaluation.remove_note()

    store.connection.run_script("lease_job_evaluation", *evaluation.heartbeat)

    assert count_unfinished_evaluations(store, job_id) == 0


def test_a_live_evaluation_does_not_count_as_frozen(store: Store, job_id: JobId) -> None:
    add_unfinished_evaluations(store, job_id, *SILENT_AGES_S)
    redis = store.connection.redis
    first = redis.hget(keys.job(job_id), "evaluations").decode().partition(":")[0]

    store.connection.run_script(
        "lease_job_evaluation", [keys.job(job_id), keys.DUE], [first, "heartbeat"]
    )

    with pytest.raises(TooManyEvaluators):  # one evaluation is open, so the job is not given up
        store.evaluation_leases.open(job_id).begin()


def test_a_silent_redis_makes_no_evaluation_frozen(store: Store, job_id: JobId) -> None:
    add_unfinished_evaluations(store, job_id, *SILENT_AGES_S)
    simulate_silence(store, SILENT_AGES_S[0])

    with pytest.raises(TooManyEvaluators):
        store.evaluation_leases.open(job_id).begin()


def test_a_supervisor_without_evaluation_leases_leaves_other_evaluations_unchanged(
    store: Store, job_id: JobId
) -> None:
    """The supervisor's version has no evaluation leases. It decides between two evaluations of
    this version.
    """
    add_unfinished_evaluations(store, job_id, *SILENT_AGES_S[1:])
    store.journal.commit(
        Commit(job_id=job_id, expected=version_of(store, job_id), events=[CancelRequested()])
    )

    assert count_unfinished_evaluations(store, job_id) == MAX_FAILED_EVALUATIONS - 1
