"""Each finding of the sweep is reported once, with any number of sweepers. Waiting handoffs are not
a finding.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.due_work import LOST_AFTER_S, MAX_SWEPT
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import LeaseLost
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from tests.doubles.jobs import (
    a_job,
    accounts,
    claim,
    due_at,
    expire_lease,
    finish,
    granted_claim,
    handoff_key,
    issue,
    model_reply,
    nothing_reserved,
    reservation_verdict,
    version_of,
)
from tests.doubles.sweep_states import (
    QUEUE,
    age_issued,
    age_wake_ups,
    make_due,
    mark_evaluated,
    publish,
    running_and_queued,
)


@pytest.fixture
def job_id(store: Store) -> JobId:
    """Return a job with three issued handoffs for the researcher."""
    job_id = a_job(store)
    issue(store, job_id, "a.1", "b.1", "c.1")
    return job_id


def test_a_job_that_is_not_due_is_left_alone(store: Store, job_id: JobId) -> None:
    assert store.due_work.sweep().due == {}


def test_a_job_that_is_due_is_found_once_and_again_later(store: Store, job_id: JobId) -> None:
    make_due(store, job_id)

    assert store.due_work.sweep().due == {job_id: []}
    assert store.due_work.sweep().due == {}
    age_wake_ups(store, LOST_AFTER_S + 1, job_id)
    assert store.due_work.sweep().due == {job_id: []}


def test_a_waiting_wake_up_is_not_sent_again_for_a_job_that_is_due_repeatedly(
    store: Store, job_id: JobId
) -> None:
    """The supervisor's queue does not grow while no supervisor runs."""
    make_due(store, job_id)
    store.due_work.sweep()
    publish(store, "the wake-up", queue=SUPERVISOR_QUEUE)
    age_wake_ups(store, 3_600, job_id)
    age_issued(store, job_id, 3_600, "b.1")
    expire_lease(store, granted_claim(store, job_id, "a.1"))
    make_due(store, job_id)

    assert [store.due_work.sweep().due for _ in range(3)] == [{}, {}, {}]
    mark_evaluated(store, job_id)
    store.connection.redis.zadd(keys.due("researcher"), {f"{job_id}/a.1": 1})
    assert {*store.due_work.sweep().due[job_id]} == {"a.1", "b.1"}


def test_a_wake_up_without_an_evaluation_is_sent_again_while_others_wait_in_its_queue(
    store: Store,
) -> None:
    first, second = a_job(store), a_job(store)
    make_due(store, first)
    make_due(store, second)
    store.due_work.sweep()
    publish(store, "the first's", "the second's", queue=SUPERVISOR_QUEUE)
    age_wake_ups(store, 90, first, second)
    assert store.due_work.sweep().due == {}
    store.connection.redis.zadd(keys.OUT + SUPERVISOR_QUEUE, {first: 1, second: 1})
    mark_evaluated(store, second)

    assert store.due_work.sweep().due == {first: []}


def test_a_handoff_taken_next_to_a_wake_up_causes_no_other_wake_up(store: Store) -> None:
    """The wake-up is the body of a chord, after a completed evaluation."""
    store.connection.redis.zadd(keys.OUT + SUPERVISOR_QUEUE, {a_job(store): 1})

    assert store.due_work.sweep().due == {}
    assert not store.connection.redis.exists(keys.OUT + SUPERVISOR_QUEUE)


def test_an_unbegun_job_is_announced_again_only_after_its_announcement_is_lost(
    store: Store,
) -> None:
    _, fresh = running_and_queued(store)
    swept = store.due_work.sweep()
    assert (swept.due, swept.fresh) == ({}, ())
    age_wake_ups(store, LOST_AFTER_S + 1, fresh, queue=SUBMISSIONS_QUEUE)

    swept = store.due_work.sweep()
    assert (swept.due, swept.fresh) == ({}, (fresh,))
    publish(store, "again", queue=SUBMISSIONS_QUEUE)
    age_wake_ups(store, 3_600, fresh, queue=SUBMISSIONS_QUEUE)
    assert store.due_work.sweep().fresh == ()


def test_a_begun_job_is_woken_and_an_unbegun_job_is_announced(store: Store) -> None:
    running, fresh = running_and_queued(store)
    mark_evaluated(store, fresh)
    make_due(store, running)
    make_due(store, fresh)

    swept = store.due_work.sweep()
    assert (swept.due, swept.fresh) == ({running: []}, (fresh,))


def test_a_job_is_due_soon_if_something_happened_during_its_evaluation(
    store: Store, job_id: JobId
) -> None:
    make_due(store, job_id)
    decided_on = version_of(store, job_id)
    store.due_work.sweep()
    finish(granted_claim(store, job_id, "a.1"))
    store.journal.set_due(job_id, store.connection.now() + 3_600, decided_on)

    assert due_at(store, job_id) < store.connection.now() + 10


def test_a_dead_workers_reservation_is_booked_when_its_lease_is_found_expired(
    store: Store,
) -> None:
    """The siblings wait for this budget, and may hold every slot."""
    job_id = a_job(store, max_turns=2)
    issue(store, job_id, "a.1", "b.1")
    worst = WorstCase(input_tokens=100, output_tokens=50, microusd=7)
    dead, sibling = claim(store, job_id, "a.1", first=worst), granted_claim(store, job_id, "b.1")
    expire_lease(store, dead)
    store.due_work.sweep()

    spent = {"turns": 1, "input_tokens": 100, "output_tokens": 50, "usd": 7, "unpriced": 0}
    assert nothing_reserved(store, job_id)
    assert {name: accounts(store, job_id)[name] for name in spent} == spent
    assert reservation_verdict(sibling, worst) == b"ok"
    with pytest.raises(LeaseLost):
        dead.checkpoint(model_reply())
    assert granted_claim(store, job_id, "a.1").fence != dead.fence
    assert accounts(store, job_id)["turns"] == 1


def test_a_lapsed_lease_of_a_removed_job_restores_nothing(store: Store, job_id: JobId) -> None:
    expire_lease(
        store,
        claim(store, job_id, "a.1", first=WorstCase(input_tokens=1, output_tokens=1, microusd=1)),
    )
    store.connection.redis.delete(keys.job(job_id))

    assert store.due_work.sweep().due == {}
    assert not store.connection.redis.exists(keys.job(job_id))


@pytest.mark.slow
def test_many_sweepers_share_the_due_jobs(store: Store) -> None:
    job_ids = [a_job(store) for _ in range(300)]
    for job_id in job_ids:
        make_due(store, job_id)
    start = threading.Barrier(8)

    def sweep(_: int) -> list[JobId]:
        start.wait()
        return [*store.due_work.sweep().due, *store.due_work.sweep().due]

    with ThreadPoolExecutor(8) as pool:
        sweep_counts = Counter(job_id for swept in pool.map(sweep, range(8)) for job_id in swept)
    assert sweep_counts == Counter(job_ids)


@pytest.mark.slow
def test_one_sweep_takes_a_bounded_number_of_jobs(store: Store) -> None:
    for _ in range(MAX_SWEPT + 20):
        make_due(store, a_job(store))

    assert [len(store.due_work.sweep().due) for _ in range(3)] == [MAX_SWEPT, 20, 0]


def test_a_handoff_with_an_expired_lease_is_found(store: Store, job_id: JobId) -> None:
    expire_lease(store, granted_claim(store, job_id, "a.1"))

    assert store.due_work.sweep().due == {job_id: [HandoffId("a.1")]}
    assert store.jobs.read_handoffs(job_id, [HandoffId("a.1")])[HandoffId("a.1")].lost


def test_a_handoff_with_an_expired_lease_waits_in_its_queue_once_it_is_sent(
    store: Store, job_id: JobId
) -> None:
    """Without a worker, the message is not published again every few seconds."""
    expire_lease(store, granted_claim(store, job_id, "a.1"))
    store.due_work.sweep()
    publish(store, "a.1 again")
    store.due_work.mark_sent(job_id, [HandoffId("a.1")])
    age_issued(store, job_id, 3_600, "a.1")

    assert store.due_work.sweep().due == {}
    assert due_at(store, f"{job_id}/a.1") == math.inf


def test_a_second_lost_message_is_found_again(store: Store, job_id: JobId) -> None:
    expire_lease(store, granted_claim(store, job_id, "a.1"))
    store.due_work.sweep()
    mark_evaluated(store, job_id)
    store.due_work.mark_sent(job_id, [HandoffId("a.1")])
    age_issued(store, job_id, LOST_AFTER_S + 1, "a.1")

    assert store.due_work.sweep().due == {job_id: [HandoffId("a.1")]}


def test_a_worker_that_was_only_slow_renews_in_time_or_is_refused(
    store: Store, job_id: JobId
) -> None:
    slow = granted_claim(store, job_id, "a.1")
    expire_lease(store, slow)
    slow.renew()
    assert store.due_work.sweep().due == {}
    expire_lease(store, slow)
    assert store.due_work.sweep().due == {job_id: [HandoffId("a.1")]}

    with pytest.raises(LeaseLost):
        slow.renew()
    assert finish(slow) is None


def test_a_role_with_a_dead_supervisor_is_found_until_another_runs_it(store: Store) -> None:
    job_id = a_job(store)
    issue(store, job_id, "planner.1", role="planner", group=None)
    expire_lease(store, granted_claim(store, job_id, "planner.1"))

    assert store.due_work.sweep().due == {job_id: [HandoffId("planner.1")]}
    mark_evaluated(store, job_id)
    store.connection.redis.zadd(keys.DUE, {f"{job_id}/planner.1": 1})
    assert store.due_work.sweep().due == {job_id: [HandoffId("planner.1")]}


def test_a_handoff_that_ended_is_never_found(store: Store, job_id: JobId) -> None:
    finish(granted_claim(store, job_id, "a.1"))
    age_issued(store, job_id, 60, "a.1")
    store.connection.redis.zadd(keys.due("researcher"), {f"{job_id}/a.1": 1})

    assert store.due_work.sweep().due == {}
    assert due_at(store, f"{job_id}/a.1") == math.inf
    assert store.connection.redis.zscore(keys.WAITING + QUEUE, f"{job_id}/a.1") is None


def test_a_sweep_has_a_limit_for_the_due_times_of_all_roles_together(store: Store) -> None:
    redis = store.connection.redis
    roles = [f"role-{number}" for number in range(10)]
    for role in roles:
        redis.hset(keys.QUEUES, role, 0)
        redis.zadd(keys.due(role), {f"{role}-{number}": 1 for number in range(MAX_SWEPT)})

    def due_left() -> int:
        return sum(redis.zcard(keys.due(role)) for role in roles)

    assert store.due_work.sweep().more
    assert due_left() == 5 * MAX_SWEPT
    assert store.due_work.sweep().more
    assert due_left() == 0
    assert not store.due_work.sweep().more


def test_a_handoff_whose_state_is_unknown_is_not_due_at_each_sweep(
    store: Store, job_id: JobId
) -> None:
    store.connection.redis.hset(handoff_key(store, job_id, HandoffId("a.1")), "state", "odd")
    store.connection.redis.zadd(keys.due(QUEUE), {f"{job_id}/a.1": 1})

    store.due_work.sweep()

    assert store.connection.redis.zcount(keys.due(QUEUE), 0, store.connection.now() * 1000) == 0


def test_a_result_that_comes_during_an_evaluation_wakes_its_job_after_a_sweep(
    store: Store, job_id: JobId
) -> None:
    """The wake-up of the evaluation still counts as waiting, so the sweep sends no other."""
    redis = store.connection.redis
    known = version_of(store, job_id)
    finish(granted_claim(store, job_id, "a.1"))
    redis.zadd(keys.WAITING + SUPERVISOR_QUEUE, {job_id: store.connection.now() * 1000})
    redis.zadd(keys.due(QUEUE), {job_id: 1})
    assert store.due_work.sweep().due == {}

    store.journal.set_due(job_id, store.connection.now() + 3_600, known)

    assert redis.zscore(keys.DUE, job_id) / 1000 < store.connection.now() + 60
