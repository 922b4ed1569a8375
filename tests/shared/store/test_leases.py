"""A thread renews all leases of its process. Redis may be unreachable for longer than a lease."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from structlog.types import EventDict

from handoff_queue.shared.local.child_process_restarts import Processes
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.claim import ClaimVerdict, HandoffClaim
from handoff_queue.shared.store.leases import RENEWALS_PER_LEASE, Leases, compute_renewal_interval_s
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.errors import LeaseLost
from tests.doubles.jobs import (
    a_job,
    claim,
    finish,
    granted_claim,
    handoff_key,
    issue,
    model_reply,
    stored_fence,
)
from tests.waiting import wait_until

LEASE_S = 0.4
RENEWALS_IN_TWO_LEASES = 2 * RENEWALS_PER_LEASE


def fence_of(store: Store, claimed: HandoffClaim) -> bytes:
    """Return the stored form of the fence that the store accepts for this handoff."""
    stored: bytes = store.connection.redis.hget(
        handoff_key(store, claimed.job_id, claimed.handoff_id), "fence"
    )
    return stored


def test_a_lease_that_ran_out_can_be_claimed_by_another(redis_url: str) -> None:
    store = open_store(redis_url, Settings(lease_s=LEASE_S))
    job_id = a_job(store)
    issue(store, job_id, "find.1")
    first = granted_claim(store, job_id, "find.1")

    def take_over() -> HandoffClaim | None:
        second = claim(store, job_id, "find.1", "w2")
        return second if second.verdict is ClaimVerdict.GRANTED else None

    second = wait_until(take_over, expected="the end of the lease")
    assert second is not None
    assert second.fence != first.fence
    assert fence_of(store, second) == stored_fence(second)
    with pytest.raises(LeaseLost):
        first.renew()
    second.renew()
    store.connection.close()


def test_a_renewed_lease_lasts(redis_url: str) -> None:
    store = open_store(redis_url, Settings(lease_s=LEASE_S))
    job_id = a_job(store)
    issue(store, job_id, "find.1", "look.1")
    first, other = granted_claim(store, job_id, "find.1"), granted_claim(store, job_id, "look.1")

    def is_over() -> bool:
        first.renew()
        return claim(store, job_id, "look.1", "w2").verdict is ClaimVerdict.GRANTED

    wait_until(is_over, expected="the end of the other lease")
    assert claim(store, job_id, "find.1", "w2").verdict is ClaimVerdict.BUSY
    assert fence_of(store, first) == stored_fence(first)
    assert fence_of(store, other) not in (stored_fence(first), stored_fence(other))
    first.renew()
    with pytest.raises(LeaseLost):
        other.renew()
    store.connection.close()


@pytest.mark.parametrize(
    ("lease_s", "every_s"), [(3.0, 1.0), (12.0, 4.0), (15.0, 4.0), (600.0, 4.0)]
)
def test_a_lease_is_renewed_three_times_and_a_long_lease_at_least_every_5_s(
    lease_s: float, every_s: float
) -> None:
    assert compute_renewal_interval_s(lease_s) == every_s


def test_held_claims_are_renewed_and_released_claims_are_not(redis_url: str) -> None:
    store = open_store(redis_url, Settings(lease_s=LEASE_S))
    leases = Leases(redis_url, LEASE_S, watchdog=False)
    leases.start()
    job_id = a_job(store)
    issue(store, job_id, "kept.1", "left.1")
    own_claim, left = granted_claim(store, job_id, "kept.1"), granted_claim(store, job_id, "left.1")

    with leases.keep_renewed(own_claim):
        with leases.keep_renewed(left):
            pass
        wait_until(
            lambda: claim(store, job_id, "left.1", "w2").verdict is ClaimVerdict.GRANTED,
            expected="the end of the lease",
        )
        assert claim(store, job_id, "kept.1", "w2").verdict is ClaimVerdict.BUSY
    wait_until(
        lambda: claim(store, job_id, "kept.1", "w2").verdict is ClaimVerdict.GRANTED,
        expected="the end of the lease",
    )
    leases.stop()
    store.connection.close()


def failed_renewals(logs: list[EventDict]) -> int:
    """Return the number of failed renewals."""
    return sum(each["event"] == "cannot renew the lease" for each in logs)


@pytest.mark.slow
def test_a_claim_survives_an_outage_of_redis_that_is_longer_than_its_lease(
    processes: Processes, tmp_path: Path
) -> None:
    server = PrivateRedis(processes, tmp_path, append_only=True)
    url = server.start()
    processes.wait_until_ready()
    store = open_store(url, Settings(lease_s=LEASE_S))
    leases = Leases(url, LEASE_S, watchdog=False)
    leases.start()
    job_id = a_job(store)
    issue(store, job_id, "kept.1")
    own_claim = granted_claim(store, job_id, "kept.1")

    with leases.keep_renewed(own_claim), ThreadPoolExecutor(1) as pool, capture_logs() as logs:
        os.kill(processes.get_pids()["redis"], signal.SIGSTOP)
        saved = pool.submit(own_claim.checkpoint, model_reply())
        wait_until(
            lambda: failed_renewals(logs) > RENEWALS_IN_TWO_LEASES,
            expected="two leases without a renewal",
        )
        assert not saved.done()
        os.kill(processes.get_pids()["redis"], signal.SIGKILL)
        saved.result(60)
        own_claim.heartbeat("thinking")

    assert finish(own_claim) is not None
    leases.stop()
    store.connection.close()
