"""The sweep finds what time or a lost message has left behind, once among any number of
sweepers, and nothing that merely waits.
"""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.jobs import LOST_AFTER_S, SWEEP_AT_MOST
from handoff_queue.shared.store.store import Ledger
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import LeaseLost
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from tests.doubles.jobs import (
    a_job,
    books,
    claim,
    finish,
    granted,
    issue,
    let_lease_run_out,
    nothing_reserved,
    replied,
    verdict,
    version_of,
)
from tests.doubles.sweeps import (
    QUEUE,
    issued_ago,
    looked_at,
    make_due,
    published,
    running_and_queued,
    woken_ago,
)


@pytest.fixture
def job_id(ledger: Ledger) -> JobId:
    """A job with three handoffs on the researchers' queue."""
    job_id = a_job(ledger)
    issue(ledger, job_id, "a.1", "b.1", "c.1")
    return job_id


def test_what_is_not_due_is_left_alone(ledger: Ledger, job_id: JobId) -> None:
    assert ledger.jobs.sweep().due == {}


def test_a_job_that_is_due_is_found_once_and_again_later(ledger: Ledger, job_id: JobId) -> None:
    make_due(ledger, job_id)

    assert ledger.jobs.sweep().due == {job_id: []}
    assert ledger.jobs.sweep().due == {}
    woken_ago(ledger, LOST_AFTER_S + 1, job_id)
    assert ledger.jobs.sweep().due == {job_id: []}


def test_a_wake_up_that_waits_in_its_queue_is_not_sent_again_however_often_the_job_is_due(
    ledger: Ledger, job_id: JobId
) -> None:
    """With no supervisor there for an hour, its queue does not grow."""
    make_due(ledger, job_id)
    ledger.jobs.sweep()
    published(ledger, "the wake-up", queue=SUPERVISOR_QUEUE)
    woken_ago(ledger, 3_600, job_id)
    issued_ago(ledger, job_id, 3_600, "b.1")
    let_lease_run_out(ledger, granted(ledger, job_id, "a.1"))
    make_due(ledger, job_id)

    assert [ledger.jobs.sweep().due for _ in range(3)] == [{}, {}, {}]
    looked_at(ledger, job_id)
    ledger.connection.redis.zadd(keys.DUE, {f"{job_id}/a.1": 1})
    assert {*ledger.jobs.sweep().due[job_id]} == {"a.1", "b.1"}


def test_a_wake_up_that_was_taken_and_led_to_no_look_is_sent_again_whatever_waits_in_its_queue(
    ledger: Ledger,
) -> None:
    first, second = a_job(ledger), a_job(ledger)
    make_due(ledger, first)
    make_due(ledger, second)
    ledger.jobs.sweep()
    published(ledger, "the first's", "the second's", queue=SUPERVISOR_QUEUE)
    woken_ago(ledger, 90, first, second)
    assert ledger.jobs.sweep().due == {}
    ledger.connection.redis.zadd(keys.OUT + SUPERVISOR_QUEUE, {first: 1, second: 1})
    looked_at(ledger, second)

    assert ledger.jobs.sweep().due == {first: []}


def test_what_was_taken_beside_a_wake_up_is_no_reason_for_another(ledger: Ledger) -> None:
    """The body of a chord, whose look has come to its end."""
    ledger.connection.redis.zadd(keys.OUT + SUPERVISOR_QUEUE, {a_job(ledger): 1})

    assert ledger.jobs.sweep().due == {}
    assert not ledger.connection.redis.exists(keys.OUT + SUPERVISOR_QUEUE)


def test_a_job_that_nobody_has_begun_is_announced_again_when_that_is_lost_and_not_before(
    ledger: Ledger,
) -> None:
    _, fresh = running_and_queued(ledger)
    swept = ledger.jobs.sweep()
    assert (swept.due, swept.fresh) == ({}, ())
    woken_ago(ledger, LOST_AFTER_S + 1, fresh, queue=SUBMISSIONS_QUEUE)

    swept = ledger.jobs.sweep()
    assert (swept.due, swept.fresh) == ({}, (fresh,))
    published(ledger, "again", queue=SUBMISSIONS_QUEUE)
    woken_ago(ledger, 3_600, fresh, queue=SUBMISSIONS_QUEUE)
    assert ledger.jobs.sweep().fresh == ()


def test_a_job_that_was_begun_is_woken_and_one_that_was_not_is_announced(ledger: Ledger) -> None:
    running, fresh = running_and_queued(ledger)
    looked_at(ledger, fresh)
    make_due(ledger, running)
    make_due(ledger, fresh)

    swept = ledger.jobs.sweep()
    assert (swept.due, swept.fresh) == ({running: []}, (fresh,))


def test_a_job_is_due_soon_when_something_happened_while_it_was_looked_at(
    ledger: Ledger, job_id: JobId
) -> None:
    make_due(ledger, job_id)
    decided_on = version_of(ledger, job_id)
    ledger.jobs.sweep()
    finish(granted(ledger, job_id, "a.1"))
    ledger.journal.set_due(job_id, ledger.connection.now() + 3_600, decided_on)

    assert ledger.connection.redis.zscore(keys.DUE, job_id) < (ledger.connection.now() + 10) * 1000


def test_what_a_dead_worker_had_set_aside_is_booked_when_its_lease_is_found_to_have_run_out(
    ledger: Ledger,
) -> None:
    """Its siblings wait for that budget, and may hold every slot in which it could be claimed
    again.
    """
    job_id = a_job(ledger, max_turns=2)
    issue(ledger, job_id, "a.1", "b.1")
    worst = WorstCase(input_tokens=100, output_tokens=50, microusd=7)
    dead, sibling = claim(ledger, job_id, "a.1", first=worst), granted(ledger, job_id, "b.1")
    let_lease_run_out(ledger, dead)
    ledger.jobs.sweep()

    spent = {"turns": 1, "input_tokens": 100, "output_tokens": 50, "usd": 7, "unpriced": 0}
    assert nothing_reserved(ledger, job_id)
    assert {name: books(ledger, job_id)[name] for name in spent} == spent
    assert verdict(sibling, worst) == b"ok"
    with pytest.raises(LeaseLost):
        dead.checkpoint(replied())
    assert granted(ledger, job_id, "a.1").fence != dead.fence
    assert books(ledger, job_id)["turns"] == 1


def test_a_lapsed_lease_of_a_job_that_retention_has_removed_brings_nothing_back(
    ledger: Ledger, job_id: JobId
) -> None:
    let_lease_run_out(
        ledger,
        claim(ledger, job_id, "a.1", first=WorstCase(input_tokens=1, output_tokens=1, microusd=1)),
    )
    ledger.connection.redis.delete(keys.job(job_id))

    assert ledger.jobs.sweep().due == {}
    assert not ledger.connection.redis.exists(keys.job(job_id))


def test_many_sweepers_share_what_is_due(ledger: Ledger) -> None:
    job_ids = [a_job(ledger) for _ in range(300)]
    for job_id in job_ids:
        make_due(ledger, job_id)
    start = threading.Barrier(8)

    def sweep(_: int) -> list[JobId]:
        start.wait()
        return [*ledger.jobs.sweep().due, *ledger.jobs.sweep().due]

    with ThreadPoolExecutor(8) as pool:
        found = Counter(job_id for swept in pool.map(sweep, range(8)) for job_id in swept)
    assert found == Counter(job_ids)


def test_one_sweep_takes_no_more_than_it_can_do(ledger: Ledger) -> None:
    for _ in range(SWEEP_AT_MOST + 20):
        make_due(ledger, a_job(ledger))

    assert [len(ledger.jobs.sweep().due) for _ in range(3)] == [SWEEP_AT_MOST, 20, 0]


def test_a_handoff_whose_lease_ran_out_is_found(ledger: Ledger, job_id: JobId) -> None:
    let_lease_run_out(ledger, granted(ledger, job_id, "a.1"))

    assert ledger.jobs.sweep().due == {job_id: [HandoffId("a.1")]}
    assert ledger.jobs.handoffs(job_id, [HandoffId("a.1")])[HandoffId("a.1")].lost


def test_a_handoff_whose_lease_ran_out_waits_in_its_queue_once_it_is_sent(
    ledger: Ledger, job_id: JobId
) -> None:
    """With no worker there for an hour, its message is not published again every few seconds."""
    let_lease_run_out(ledger, granted(ledger, job_id, "a.1"))
    ledger.jobs.sweep()
    published(ledger, "a.1 again")
    ledger.jobs.sent(job_id, [HandoffId("a.1")])
    issued_ago(ledger, job_id, 3_600, "a.1")

    assert ledger.jobs.sweep().due == {}
    assert ledger.connection.redis.zscore(keys.DUE, f"{job_id}/a.1") is None


def test_and_when_that_message_is_lost_too_it_is_found_again(ledger: Ledger, job_id: JobId) -> None:
    let_lease_run_out(ledger, granted(ledger, job_id, "a.1"))
    ledger.jobs.sweep()
    looked_at(ledger, job_id)
    ledger.jobs.sent(job_id, [HandoffId("a.1")])
    issued_ago(ledger, job_id, LOST_AFTER_S + 1, "a.1")

    assert ledger.jobs.sweep().due == {job_id: [HandoffId("a.1")]}


def test_a_worker_that_was_only_slow_renews_in_time_or_is_refused(
    ledger: Ledger, job_id: JobId
) -> None:
    slow = granted(ledger, job_id, "a.1")
    let_lease_run_out(ledger, slow)
    slow.renew()
    assert ledger.jobs.sweep().due == {}
    let_lease_run_out(ledger, slow)
    assert ledger.jobs.sweep().due == {job_id: [HandoffId("a.1")]}

    with pytest.raises(LeaseLost):
        slow.renew()
    assert finish(slow) is None


def test_a_role_whose_supervisor_died_is_found_until_somebody_has_it(ledger: Ledger) -> None:
    job_id = a_job(ledger)
    issue(ledger, job_id, "planner.1", role="planner", group=None)
    let_lease_run_out(ledger, granted(ledger, job_id, "planner.1"))

    assert ledger.jobs.sweep().due == {job_id: [HandoffId("planner.1")]}
    looked_at(ledger, job_id)
    ledger.connection.redis.zadd(keys.DUE, {f"{job_id}/planner.1": 1})
    assert ledger.jobs.sweep().due == {job_id: [HandoffId("planner.1")]}


def test_a_handoff_that_ended_is_never_found(ledger: Ledger, job_id: JobId) -> None:
    finish(granted(ledger, job_id, "a.1"))
    issued_ago(ledger, job_id, 60, "a.1")
    ledger.connection.redis.zadd(keys.DUE, {f"{job_id}/a.1": 1})

    assert ledger.jobs.sweep().due == {}
    assert ledger.connection.redis.zscore(keys.DUE, f"{job_id}/a.1") is None
    assert ledger.connection.redis.zscore(keys.WAITING + QUEUE, f"{job_id}/a.1") is None
