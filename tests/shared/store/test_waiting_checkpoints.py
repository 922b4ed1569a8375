"""The last reply of a handoff may wait for the result, so that one round trip stores both. Every
other write of the handoff stores it, too.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import ClaimVerdict, HandoffClaim
from handoff_queue.shared.store.claim_requests import MAX_CLAIMS
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.checkpoints import AgentPrompted, PromptReason, WorstCase
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.rate_limits import Allowance, ExpectedUsage, RateLimits
from tests.doubles.jobs import (
    a_job,
    claim,
    expire_lease,
    finish,
    granted_claim,
    handoff_key,
    issue,
    model_reply,
    turns_key,
)

HANDOFF_ID = HandoffId("find.1")
BUCKET = "account:some-model"


@pytest.fixture
def job_id(store: Store) -> JobId:
    job_id = a_job(store, max_turns=10)
    issue(store, job_id, HANDOFF_ID)
    return job_id


def claim_with_waiting_reply(claimed: HandoffClaim) -> HandoffClaim:
    claimed.reserve(WorstCase(10, 10, 0))
    claimed.checkpoint(model_reply(), deferrable=True)
    return claimed


def input_level(store: Store) -> float:
    return float(store.connection.redis.hget(keys.bucket(BUCKET), "input_level"))


def turns_of(store: Store, job_id: JobId) -> list[int]:
    """Return the used and the reserved turns."""
    return [
        int(value or 0)
        for value in store.connection.redis.hmget(keys.progress(job_id), "turns", "reserved_turns")
    ]


def test_a_waiting_checkpoint_costs_no_extra_round_trip(store: Store, job_id: JobId) -> None:
    claim_with_waiting_reply(granted_claim(store, job_id, HANDOFF_ID))

    assert turns_of(store, job_id) == [0, 1]


def test_the_result_stores_the_waiting_reply(store: Store, job_id: JobId) -> None:
    finish(claim_with_waiting_reply(granted_claim(store, job_id, HANDOFF_ID)))

    assert turns_of(store, job_id) == [1, 0]
    assert int(store.connection.redis.hget(handoff_key(store, job_id, HANDOFF_ID), "turns")) == 1


def test_the_next_checkpoint_stores_the_waiting_reply_first(store: Store, job_id: JobId) -> None:
    claimed = claim_with_waiting_reply(granted_claim(store, job_id, HANDOFF_ID))
    claimed.checkpoint(AgentPrompted(reason=PromptReason.INVALID_ANSWER, text="once more"))
    expire_lease(store, claimed)

    assert granted_claim(store, job_id, HANDOFF_ID).load_earlier_checkpoints() == (
        model_reply(),
        AgentPrompted(reason=PromptReason.INVALID_ANSWER, text="once more"),
    )
    assert turns_of(store, job_id) == [1, 0]


def test_the_next_reservation_stores_the_waiting_reply(store: Store, job_id: JobId) -> None:
    claim_with_waiting_reply(claimed := granted_claim(store, job_id, HANDOFF_ID)).reserve(
        WorstCase(10, 10, 0)
    )

    assert turns_of(store, job_id) == [1, 1]
    expire_lease(store, claimed)
    assert granted_claim(store, job_id, HANDOFF_ID).load_earlier_checkpoints() == (model_reply(),)


def test_a_release_stores_the_waiting_reply_for_the_next_claim(store: Store, job_id: JobId) -> None:
    claim_with_waiting_reply(granted_claim(store, job_id, HANDOFF_ID)).release()

    assert granted_claim(store, job_id, HANDOFF_ID).load_earlier_checkpoints() == (model_reply(),)
    assert turns_of(store, job_id) == [1, 0]


def test_after_a_lost_claim_no_reply_waits(store: Store, job_id: JobId) -> None:
    """The reply may have crashed the process. The next claim must find it in the store and not pay
    again.
    """
    expire_lease(store, granted_claim(store, job_id, HANDOFF_ID))
    claim_with_waiting_reply(granted_claim(store, job_id, HANDOFF_ID))

    assert store.connection.redis.llen(turns_key(store, job_id, HANDOFF_ID)) == 1


def test_a_last_reply_that_does_not_wait_is_not_a_sign_that_its_handoff_got_further(
    store: Store, job_id: JobId
) -> None:
    """Reading the reply may crash the process, so every claim counts."""
    for _ in range(MAX_CLAIMS):
        claimed = granted_claim(store, job_id, HANDOFF_ID)
        if not claimed.load_earlier_checkpoints():
            claim_with_waiting_reply(claimed)
        expire_lease(store, claimed)

    assert claim(store, job_id, HANDOFF_ID).verdict is ClaimVerdict.EXHAUSTED


def test_the_unused_pace_of_its_call_flows_back_with_the_result(
    store: Store, job_id: JobId
) -> None:
    claimed = granted_claim(store, job_id, HANDOFF_ID)
    assert claimed.reserve(WorstCase(10, 10, 0), ExpectedUsage(BUCKET, 1_000, 0)) is None
    claimed.report_limits(RateLimits(input_tokens=Allowance(10_000, 9_000)))
    before = input_level(store)
    claimed.checkpoint(model_reply(), deferrable=True)
    finish(claimed)

    assert input_level(store) >= before + 1_000 - model_reply().usage.input_tokens


def test_a_waiting_reply_expires_with_its_job(redis_url: str) -> None:
    store = open_store(redis_url, Settings(lease_s=3_600, keep_turns=True))
    job_id = a_job(store)
    issue(store, job_id, HANDOFF_ID)
    finish(claim_with_waiting_reply(granted_claim(store, job_id, HANDOFF_ID)))

    assert store.claims.read_checkpoints(job_id, [HANDOFF_ID]) == {HANDOFF_ID: (model_reply(),)}
    assert store.connection.redis.ttl(turns_key(store, job_id, HANDOFF_ID)) > 0
    store.connection.close()


@pytest.mark.parametrize("keep_turns", [False, True])
def test_a_waiting_checkpoint_is_kept_with_the_other_turns_if_they_are_kept(
    redis_url: str, *, keep_turns: bool
) -> None:
    store = open_store(redis_url, Settings(lease_s=3_600, keep_turns=keep_turns))
    job_id = a_job(store)
    issue(store, job_id, HANDOFF_ID)
    claimed = granted_claim(store, job_id, HANDOFF_ID)
    claimed.checkpoint(first := AgentPrompted(reason=PromptReason.INVALID_ANSWER, text="at first"))
    finish(claim_with_waiting_reply(claimed))

    assert store.claims.read_checkpoints(job_id, [HANDOFF_ID]) == (
        {HANDOFF_ID: (first, model_reply())} if keep_turns else {}
    )
    store.connection.close()
