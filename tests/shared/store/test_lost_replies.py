"""A reply of Redis may be lost. A claim repeats its request with its fence, and the effect happens
once.
"""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import ClaimVerdict, HandoffClaim
from handoff_queue.shared.store.claim_requests import ClaimRequest
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import StoreUnavailable
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.message import compute_digest
from tests.doubles.jobs import (
    a_job,
    finish,
    granted_claim,
    handoff_key,
    issue,
    model_reply,
    result_of,
    text_of,
    turns_key,
)

HANDOFF_ID = HandoffId("find.1")


class ConnectionLosingReplies(Connection):
    """A connection that loses the next reply. Redis still runs the command."""

    loses = 1

    def run_script(self, name: str, keys: list[str], args: list[Any]) -> Any:
        answer = super().run_script(name, keys, args)
        if self.loses:
            self.loses -= 1
            raise StoreUnavailable("the answer was lost")
        return answer


@pytest.fixture
def job_id(store: Store) -> JobId:
    job_id = a_job(store, max_turns=10)
    issue(store, job_id, HANDOFF_ID)
    return job_id


def counts_of(store: Store, job_id: JobId) -> list[int]:
    """Return the job's used and reserved turns, its claims, its checkpoints and its events."""
    redis = store.connection.redis
    job = redis.hmget(keys.progress(job_id), "turns", "reserved_turns")
    claims = redis.hget(handoff_key(store, job_id, HANDOFF_ID), "claims")
    return [
        int(value or 0)
        for value in (
            *job,
            claims,
            redis.llen(turns_key(store, job_id, HANDOFF_ID)),
            redis.llen(keys.log(job_id)),
        )
    ]


def with_lost_reply(store: Store, claim: HandoffClaim) -> HandoffClaim:
    """Let the connection lose the next reply to this claim."""
    claim.connection = ConnectionLosingReplies(store.connection.url)
    return claim


def test_a_repeated_claim_counts_once(store: Store, job_id: JobId) -> None:
    request = ClaimRequest(
        job_id, HANDOFF_ID, compute_digest(text_of(HANDOFF_ID)), "w1", WorstCase(10, 10, 0)
    )
    first = store.claims.claim(request)
    again = store.claims.claim(request)

    assert (again.verdict, again.reserved, again.fence) == (ClaimVerdict.GRANTED, True, first.fence)
    assert counts_of(store, job_id) == [0, 1, 1, 0, 2]


def test_a_repeated_checkpoint_is_stored_and_paid_once(store: Store, job_id: JobId) -> None:
    own_claim = granted_claim(store, job_id, HANDOFF_ID)
    own_claim.reserve(WorstCase(10, 10, 0))
    with_lost_reply(store, own_claim).checkpoint(model_reply())

    assert counts_of(store, job_id) == [1, 0, 1, 1, 2]


def test_a_repeated_reservation_is_made_once(store: Store, job_id: JobId) -> None:
    own_claim = with_lost_reply(store, granted_claim(store, job_id, HANDOFF_ID))
    own_claim.reserve(WorstCase(10, 10, 0))

    assert counts_of(store, job_id) == [0, 1, 1, 0, 2]


def test_a_repeated_end_counts_once(store: Store, job_id: JobId) -> None:
    own_claim = granted_claim(store, job_id, HANDOFF_ID)
    own_claim.reserve(WorstCase(10, 10, 0))
    own_claim.checkpoint(model_reply())
    parts_left = finish(with_lost_reply(store, own_claim))

    assert parts_left == 0
    assert counts_of(store, job_id) == [1, 0, 1, 0, 3]
    assert (
        result_of(own_claim).to_json()
        in store.payloads.get(job_id, [result_of(own_claim).content_digest]).values()
    )
