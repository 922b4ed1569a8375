"""The store reports the current load of the fleet."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store import fleet_load as load
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.script_arguments import MAX_LINE_BYTES
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.presence import Announcement, Node
from handoff_queue.shared.types.rate_limits import Allowance, ExpectedUsage, RateLimits
from tests.doubles.handoffs import a_spec
from tests.doubles.jobs import a_job, expire_lease, finish, granted_claim, issue
from tests.doubles.sweep_states import age_issued, make_due
from tests.redis_clock import MAX_OFFSET_S, redis_time_s

WORST = WorstCase(1_000, 1_000, 0)
EXPECTED = ExpectedUsage("account:some-model", 400, 500)


@pytest.fixture
def job_id(store: Store) -> JobId:
    job_id = a_job(store)
    issue(store, job_id, "a.1", "b.1", "c.1")
    store.presence.announce(
        Announcement(
            worker="w1", specialists=(a_spec(name="researcher"),), slots=4, model="offline"
        )
    )
    return job_id


def test_only_handoffs_with_a_slot_count_as_at_work(store: Store, job_id: JobId) -> None:
    granted_claim(store, job_id, "a.1", worker="host:1")
    finish(granted_claim(store, job_id, "b.1"))

    load = store.fleet_load.now()

    (handoff,) = load.at_work
    assert (handoff.job_id, handoff.handoff_id, handoff.agent, handoff.worker) == (
        job_id,
        "a.1",
        "researcher",
        "host:1",
    )
    assert (
        load.open_jobs,
        load.count_busy_slots("researcher"),
        load.count_deferred("researcher"),
    ) == (1, 1, 0)


def test_an_ended_job_is_not_open_while_its_webhook_is_pending(store: Store, job_id: JobId) -> None:
    """A webhook without a listener is retried for hours."""
    ended = a_job(store)
    store.connection.redis.hset(keys.job(ended), "status", "ok")
    make_due(store, ended)

    assert store.fleet_load.now().open_jobs == 1


def test_a_handoff_that_waits_for_its_provider_is_deferred_without_a_slot(
    store: Store, job_id: JobId
) -> None:
    claimed = granted_claim(store, job_id, "a.1")
    assert claimed.defer(60, "rate limit")

    load = store.fleet_load.now()

    assert (load.count_busy_slots("researcher"), load.count_deferred("researcher")) == (0, 1)
    assert [handoff.doing for handoff in load.at_work] == ["rate limit"]


def test_an_activity_is_stored_up_to_its_limit(store: Store, job_id: JobId) -> None:
    assert granted_claim(store, job_id, "a.1").defer(60, "x" * 2_000)

    (handoff,) = store.fleet_load.now().at_work

    assert handoff.doing == "x" * MAX_LINE_BYTES


def test_an_expired_claim_keeps_its_slot_until_a_sweep_finds_it(
    store: Store, job_id: JobId
) -> None:
    expire_lease(store, granted_claim(store, job_id, "a.1"))
    before = store.fleet_load.now().count_busy_slots("researcher")
    store.due_work.sweep()

    assert (before, store.fleet_load.now().count_busy_slots("researcher")) == (1, 0)


def test_the_load_has_the_number_of_waiting_handoffs_and_their_age(
    store: Store, job_id: JobId
) -> None:
    since = store.connection.now() - 3_600
    age_issued(store, job_id, 3_600, "a.1")
    granted_claim(store, job_id, "c.1")

    load = store.fleet_load.now()

    backlog = load.waiting["researcher"]
    assert backlog.handoffs == 2
    assert backlog.since is not None
    assert abs(backlog.since - since) < MAX_OFFSET_S
    assert abs(load.at - store.connection.now()) < MAX_OFFSET_S


def test_handoffs_of_a_paused_role_count_as_waiting(store: Store, job_id: JobId) -> None:
    store.connection.redis.zadd(keys.PAUSED_HANDOFFS + "researcher", {f"{job_id}/held.1": 1})

    assert store.fleet_load.now().waiting["researcher"].handoffs == 4


def test_a_job_with_an_untaken_wake_up_counts_as_open(store: Store, job_id: JobId) -> None:
    make_due(store, job_id)
    make_due(store, a_job(store))
    store.due_work.sweep()

    assert store.fleet_load.now().open_jobs == 2


def test_open_jobs_that_wait_for_a_person_are_counted(store: Store, job_id: JobId) -> None:
    for waiting in (job_id, a_job(store)):
        store.connection.redis.hset(
            keys.progress(waiting), mapping={"asked_last": "7", "approval:7": "plan"}
        )
        make_due(store, waiting)
    make_due(store, a_job(store))

    load = store.fleet_load.now()

    assert (load.open_jobs, load.waiting_jobs) == (3, 2)


def test_a_waiting_job_that_is_due_for_several_roles_counts_once(
    store: Store, job_id: JobId
) -> None:
    redis = store.connection.redis
    redis.hset(keys.progress(job_id), mapping={"asked_last": "7", "approval:7": "plan"})
    make_due(store, job_id)
    redis.zadd(keys.due("researcher"), {job_id: 1})

    load = store.fleet_load.now()

    assert (load.open_jobs, load.waiting_jobs) == (1, 1)


def test_supervisors_are_counted(store: Store) -> None:
    store.presence.announce_supervisor("s1")
    store.presence.announce_supervisor("s2")

    assert store.fleet_load.now().supervisors == 2


def test_half_of_the_slots_of_each_supervisor_are_for_roles(store: Store) -> None:
    store.presence.announce_supervisor("s1", Node(slots=16))
    store.presence.announce_supervisor("s2", Node(slots=1))

    assert store.fleet_load.now().role_slots == 8 + 1


def test_a_bucket_reports_its_providers_remaining_limits(store: Store, job_id: JobId) -> None:
    claimed = granted_claim(store, job_id, "a.1")
    claimed.reserve(WORST, EXPECTED)
    claimed.report_limits(
        RateLimits(requests=Allowance(600, 100), output_tokens=Allowance(10_000, 9_000))
    )

    (bucket,) = store.fleet_load.now().buckets

    assert (bucket.account, bucket.model, bucket.refused_until) == ("account", "some-model", None)
    assert bucket.limits["requests"].limit == 600
    assert 99 <= bucket.limits["requests"].remaining < 600, "the limit"
    assert "input" not in bucket.limits


def test_a_refused_bucket_reports_the_end_of_the_wait_and_its_reason(
    store: Store, job_id: JobId
) -> None:
    claimed = granted_claim(store, job_id, "a.1")
    claimed.reserve(WORST, EXPECTED)
    before = redis_time_s(store)
    claimed.report_refusal("rate limit", 30)
    after = redis_time_s(store)

    load = store.fleet_load.now()

    (bucket,) = load.buckets
    assert bucket.refused_until is not None
    assert before <= bucket.refused_until - 30 < after + 30, "with a random addition"
    assert bucket.why == "rate limit"


def dumps(store: Store) -> dict[bytes, bytes]:
    redis = store.connection.redis
    return {key: redis.dump(key) for key in redis.scan_iter()}


def test_reading_the_load_changes_no_key(store: Store, job_id: JobId) -> None:
    granted_claim(store, job_id, "a.1")
    before = dumps(store)

    store.fleet_load.now()

    assert dumps(store) == before


def test_the_number_of_read_handoffs_is_bounded(
    store: Store, job_id: JobId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "MAX_DUE_HANDOFFS", 2)
    granted_claim(store, job_id, "a.1")
    redis = store.connection.redis
    redis.zadd(keys.DUE, {f"{job_id}/lost.{n}": n for n in range(1, 20)})
    before = redis.info("commandstats").get("cmdstat_hmget", {}).get("calls", 0)

    assert store.fleet_load.now().at_work == ()

    calls = redis.info("commandstats")["cmdstat_hmget"]["calls"] - before
    assert calls == 3, "two handoffs, and the job"
