"""A call reserves its worst case in the job's budget, over all processes, and settles its real
cost.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from handoff_queue.shared.store.claim import HandoffClaim
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import ModelCallFailed, WorstCase
from handoff_queue.shared.types.errors import LimitReached
from handoff_queue.shared.types.events import CancelRequested
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.usage import Usage
from tests.doubles.jobs import (
    a_job,
    accounts,
    claim,
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

WORST = WorstCase(500, 100, 50)


def two_claims(store: Store, **limits: int) -> tuple[JobId, HandoffClaim, HandoffClaim]:
    job_id = a_job(store, **limits)
    issue(store, job_id, "find.1", "look.1")
    return job_id, granted_claim(store, job_id, "find.1"), granted_claim(store, job_id, "look.1")


def test_a_call_reserves_its_worst_case_and_settles_its_real_cost(store: Store) -> None:
    job_id, first, _ = two_claims(store, max_tokens=10_000)

    first.reserve(WORST)
    assert accounts(store, job_id)["reserved_tokens"] == 600
    assert accounts(store, job_id)["reserved_usd"] == 50
    first.checkpoint(model_reply(100, 20, 5))
    spent = accounts(store, job_id)
    assert (spent["turns"], spent["input_tokens"], spent["output_tokens"], spent["usd"]) == (
        1,
        100,
        20,
        5,
    )
    assert nothing_reserved(store, job_id)


@pytest.mark.parametrize(
    ("limit", "name", "needed"),
    [
        ({"max_turns": 1}, "max_turns", ""),
        ({"max_tokens": 700}, "max_tokens", ", which may take up to 600 tokens"),
        ({"max_usd": 54}, "max_usd", ", which may cost up to $0.0001"),
    ],
)
def test_each_limit_that_can_never_allow_the_call_is_named_with_the_needed_amount(
    store: Store, limit: dict[str, int], name: str, needed: str
) -> None:
    _, first, second = two_claims(store, **limit)
    first.reserve(WORST)
    first.checkpoint(model_reply(100, 20, 5))

    with pytest.raises(LimitReached) as reached:
        second.reserve(WORST)
    assert reached.value.limit == name
    assert str(reached.value).endswith(f"does not allow another model call{needed}")


def test_a_call_that_may_fit_after_refunds_waits(store: Store) -> None:
    _, first, second = two_claims(store, max_tokens=1_000)
    first.reserve(WORST)
    assert reservation_verdict(second, WORST) == b"wait"

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.reserve, WORST)
        first.checkpoint(model_reply(100, 20, 5))
        waiting.result(10)


def test_a_call_waits_for_other_reservations_at_most_until_its_deadline(store: Store) -> None:
    _, first, second = two_claims(store, max_tokens=1_000)
    first.reserve(WORST)
    second.ends_at = store.connection.now()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.reserve, WORST)
        try:
            with pytest.raises(LimitReached, match="deadline"):
                waiting.result(10)
        finally:
            first.checkpoint(model_reply(100, 20, 5))


def test_a_waiting_call_is_refused_once_others_have_used_the_budget(store: Store) -> None:
    _, first, second = two_claims(store, max_tokens=1_000)
    first.reserve(WORST)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.reserve, WORST)
        first.checkpoint(model_reply(500, 100, 50))
        with pytest.raises(LimitReached):
            waiting.result(10)


def test_a_call_that_was_in_flight_when_its_worker_died_is_paid_at_its_worst(
    store: Store,
) -> None:
    job_id, first, _ = two_claims(store, max_tokens=10_000)
    first.reserve(WORST)
    expire_lease(store, first)
    granted_claim(store, job_id, "find.1", "w2")

    spent = accounts(store, job_id)
    assert (spent["turns"], spent["input_tokens"], spent["output_tokens"], spent["usd"]) == (
        1,
        500,
        100,
        50,
    )
    assert nothing_reserved(store, job_id)


def test_a_call_that_was_in_flight_when_its_handoff_was_dropped_is_paid_at_its_worst(
    store: Store,
) -> None:
    job_id, first, _ = two_claims(store)
    first.reserve(WORST)
    dropped = [HandoffId("find.1")]
    store.journal.commit(
        Commit(
            job_id=job_id,
            expected=version_of(store, job_id),
            events=[CancelRequested()],
            drop=dropped,
        )
    )

    assert accounts(store, job_id)["input_tokens"] == 500
    assert nothing_reserved(store, job_id)


@pytest.mark.parametrize("end", ["killed", "dropped", "released", "cut"])
def test_worst_case_costs_are_separate_from_measured_costs(store: Store, end: str) -> None:
    job_id, first, _ = two_claims(store)
    first.reserve(WORST)
    first.checkpoint(model_reply(100, 20, 5))
    first.reserve(WORST)

    if end == "killed":
        expire_lease(store, first)
        store.due_work.sweep()
    elif end == "dropped":
        commit = Commit(
            job_id=job_id,
            expected=version_of(store, job_id),
            events=[CancelRequested()],
            drop=[first.handoff_id],
        )
        store.journal.commit(commit)
    elif end == "released":
        first.release()
    else:
        most = Usage(
            input_tokens=WORST.input_tokens,
            output_tokens=WORST.output_tokens,
            cost_microusd=WORST.microusd,
        )
        first.checkpoint(ModelCallFailed(error="the connection broke", usage=most.as_cut_call()))

    job, handoff = (
        store.jobs.read([job_id])[0],
        store.jobs.read_handoffs(job_id, [first.handoff_id])[first.handoff_id],
    )
    for account in (job, handoff):
        assert (
            account.turns,
            account.input_tokens,
            account.output_tokens,
            account.cost_microusd,
        ) == (
            2,
            600,
            120,
            55,
        )
        assert (account.cut_calls, account.cut_tokens, account.cut_microusd) == (1, 600, 50)


def test_a_measured_cost_is_not_an_upper_bound(store: Store) -> None:
    job_id, first, _ = two_claims(store)
    first.reserve(WORST)
    first.checkpoint(ModelCallFailed(error="turned away", usage=Usage()))
    first.reserve(WORST)
    first.checkpoint(model_reply(100, 20, 5))
    finish(first)

    assert store.jobs.read([job_id])[0].cut_calls == 0


def test_a_call_that_was_cut_off_by_a_kill_counts_at_the_price_of_its_own_model(
    store: Store,
) -> None:
    job_id, first, _ = two_claims(store)
    first.reserve(replace(WORST, own_microusd=20))
    first.release()

    job = store.jobs.read([job_id])[0]
    handoff = store.jobs.read_handoffs(job_id, [first.handoff_id])[first.handoff_id]
    assert [(account.cost_microusd, account.cut_microusd) for account in (job, handoff)] == [
        (20, 20),
        (20, 20),
    ]
    assert nothing_reserved(store, job_id)


def test_a_call_that_was_cut_at_a_deploy_is_paid_at_its_worst(store: Store) -> None:
    job_id, first, _ = two_claims(store)
    first.reserve(WORST)
    first.release()

    assert accounts(store, job_id)["input_tokens"] == 500
    assert nothing_reserved(store, job_id)


@pytest.mark.parametrize("end", ["release", "finish"])
def test_a_call_reserved_with_the_claim_and_never_made_costs_nothing(
    store: Store, end: str
) -> None:
    job_id = a_job(store, max_tokens=10_000)
    issue(store, job_id, "find.1")
    first = claim(store, job_id, "find.1", first=WORST)
    assert accounts(store, job_id)["reserved_tokens"] == 600

    finish(first) if end == "finish" else first.release()

    assert not any(accounts(store, job_id).values())


def test_the_first_call_is_reserved_once(store: Store) -> None:
    job_id = a_job(store, max_tokens=10_000)
    issue(store, job_id, "find.1")
    first = claim(store, job_id, "find.1", first=WORST)
    first.reserve(WORST)

    assert accounts(store, job_id)["reserved_tokens"] == 600


def test_a_first_call_that_does_not_fit_does_not_keep_the_claim_from_being_granted(
    store: Store,
) -> None:
    job_id = a_job(store, max_tokens=100)
    issue(store, job_id, "find.1")
    first = claim(store, job_id, "find.1", first=WORST)

    assert not first.reserved
    with pytest.raises(LimitReached):
        first.reserve(WORST)


def test_a_call_of_unknown_price_is_flagged_and_never_counts_as_free(store: Store) -> None:
    job_id, first, _ = two_claims(store)
    first.reserve(WorstCase(500, 100, None))
    first.checkpoint(model_reply(100, 20, None))

    assert store.jobs.read([job_id])[0].cost_microusd is None
    assert nothing_reserved(store, job_id)


def test_a_killed_call_of_unknown_price_is_flagged(store: Store) -> None:
    job_id, first, _ = two_claims(store)
    first.reserve(WorstCase(500, 100, None))
    expire_lease(store, first)
    granted_claim(store, job_id, "find.1", "w2")

    assert store.jobs.read([job_id])[0].cost_microusd is None
    assert nothing_reserved(store, job_id)


def test_a_call_of_unknown_price_never_fits_a_limit_in_money(store: Store) -> None:
    _, first, _ = two_claims(store, max_usd=1_000_000)

    with pytest.raises(LimitReached, match="max_usd") as reached:
        first.reserve(WorstCase(500, 100, None, "my-alias"))
    assert str(reached.value).endswith(
        "has a limit in money, and the price of my-alias is not known: set HANDOFF_PRICE_AS of the"
        " worker to a model with a known price"
    )


@pytest.mark.parametrize("missing", ["r_in", "r_out", "r_usd"])
def test_a_reservation_without_an_amount_that_its_version_did_not_know_is_released(
    store: Store, missing: str
) -> None:
    job_id, first, _ = two_claims(store)
    first.reserve(WORST)
    store.connection.redis.hdel(handoff_key(store, job_id, first.handoff_id), missing)

    first.checkpoint(model_reply(100, 20, 5))
    first.reserve(WORST)
    store.connection.redis.hdel(handoff_key(store, job_id, first.handoff_id), missing)
    expire_lease(store, first)
    granted_claim(store, job_id, "find.1", "w2")

    assert accounts(store, job_id)["turns"] == 2
    assert accounts(store, job_id)["reserved_turns"] == 0


def test_large_sums_stay_whole_numbers_in_lua(store: Store) -> None:
    job_id, first, _ = two_claims(store)
    first.reserve(WorstCase(10**15, 10**15, 10**15))
    expire_lease(store, first)
    granted_claim(store, job_id, "find.1", "w2")

    assert accounts(store, job_id)["usd"] == 10**15
    assert nothing_reserved(store, job_id)


def test_fifty_threads_on_a_budget_of_ten_turns_make_exactly_ten_calls(store: Store) -> None:
    job_id = a_job(store, max_turns=10)
    names = [f"s{n}.1" for n in range(50)]
    issue(store, job_id, *names)
    claims = [granted_claim(store, job_id, name) for name in names]
    start, calls = threading.Barrier(50), []

    def spend(claimed: HandoffClaim) -> None:
        start.wait()
        try:
            while True:
                claimed.reserve(WorstCase(10, 10, 1))
                calls.append(claimed.handoff_id)
                claimed.checkpoint(ModelCallFailed(error="no", usage=model_reply(1, 1, 1).usage))
        except LimitReached:
            finish(claimed)

    with ThreadPoolExecutor(50) as pool:
        list(pool.map(spend, claims))

    assert len(calls) == 10
    assert accounts(store, job_id)["turns"] == 10
    assert nothing_reserved(store, job_id)


def test_a_handoff_knows_its_own_share(store: Store) -> None:
    job_id, first, second = two_claims(store)
    for claimed in (first, first, second):
        claimed.reserve(WORST)
        claimed.checkpoint(model_reply(100, 20, 5))

    handoff_infos = store.jobs.read_handoffs(job_id, [HandoffId("find.1"), HandoffId("look.1")])
    assert [(info.turns, info.input_tokens) for info in handoff_infos.values()] == [
        (2, 200),
        (1, 100),
    ]
