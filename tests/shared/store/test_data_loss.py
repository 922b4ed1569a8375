"""Redis may restart with data that is a second old. Writes that build on a lost claim, checkpoint
or decision are refused.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import LeaseLost, VersionConflict
from handoff_queue.shared.types.events import CancelRequested, RetryRequested
from handoff_queue.shared.types.ids import JobId
from tests.doubles.jobs import finish, granted_claim, model_reply, turns_key
from tests.doubles.redis_faults import snapshot
from tests.shared.store.conftest import HANDOFF_ID
from tests.waiting import wait_until


def test_two_claims_of_one_handoff_never_have_the_same_fence(store: Store, job_id: JobId) -> None:
    go_back = snapshot(store.connection.redis)
    lost = granted_claim(store, job_id, HANDOFF_ID)
    go_back()
    holder = granted_claim(store, job_id, HANDOFF_ID, "w2")

    with pytest.raises(LeaseLost):
        lost.reserve(WorstCase(1, 1, 1))
    assert finish(lost) is None
    holder.reserve(WorstCase(1, 1, 1))


def test_a_claim_with_lost_checkpoints_adds_none_after_the_gap(store: Store, job_id: JobId) -> None:
    own_claim = granted_claim(store, job_id, HANDOFF_ID)
    own_claim.checkpoint(model_reply())
    go_back = snapshot(store.connection.redis)
    own_claim.checkpoint(model_reply())
    go_back()

    with pytest.raises(LeaseLost):
        own_claim.checkpoint(model_reply())
    assert store.connection.redis.llen(turns_key(store, job_id, HANDOFF_ID)) == 1


def redis_time(store: Store) -> float:
    """Return the time of Redis. `Connection.now` differs by up to half a round trip."""
    seconds, micros = store.connection.redis.time()
    return float(seconds) + float(micros) / 1e6


def test_a_decision_on_a_lost_history_is_refused_even_if_another_history_is_as_long(
    store: Store, job_id: JobId
) -> None:
    go_back = snapshot(store.connection.redis)
    store.journal.append(job_id, CancelRequested())
    read = store.journal.read(job_id)[-1]
    go_back()
    wait_until(lambda: redis_time(store) > read.at + 0.005, expected="another millisecond")
    store.journal.append(job_id, RetryRequested())
    assert store.journal.read(job_id)[-1].version == read.version

    with pytest.raises(VersionConflict):
        store.journal.commit(
            Commit(job_id=job_id, expected=read.version, tip=read.at, events=[RetryRequested()])
        )
