"""One thread renews every lease of its process; a process that cannot reach Redis for a lease presumes its claims lost."""

from __future__ import annotations

from pathlib import Path

import redis

from shared.config import Settings
from shared.ledger.claim import ClaimVerdict
from shared.ledger.leases import Leases
from shared.ledger.ledger import open_ledger
from shared.local.processes import Processes
from shared.local.redis_server import PrivateRedis
from shared.wire.errors import LeaseLost
from tests.doubles.jobs import a_job, claim, granted, issue
from tests.waiting import wait_until

LEASE_S = 0.4


def test_held_claims_are_renewed_and_released_ones_are_not(redis_url: str) -> None:
    ledger = open_ledger(redis_url, Settings(lease_s=LEASE_S))
    leases = Leases(redis_url, LEASE_S, watchdog=False)
    leases.start()
    job_id = a_job(ledger)
    issue(ledger, job_id, "held.1", "left.1")
    held, left = granted(ledger, job_id, "held.1"), granted(ledger, job_id, "left.1")

    with leases.held(held):
        with leases.held(left):
            pass
        wait_until(lambda: claim(ledger, job_id, "left.1", "w2").verdict is ClaimVerdict.GRANTED, what="the end of the lease")
        assert claim(ledger, job_id, "held.1", "w2").verdict is ClaimVerdict.BUSY
    wait_until(lambda: claim(ledger, job_id, "held.1", "w2").verdict is ClaimVerdict.GRANTED, what="the end of the lease")
    leases.stop()
    ledger.connection.close()


def test_a_claim_that_cannot_be_renewed_for_a_lease_is_presumed_lost(processes: Processes, tmp_path: Path) -> None:
    server = PrivateRedis(processes, tmp_path, append_only=False)
    url = server.start()
    ledger = open_ledger(url, Settings(lease_s=LEASE_S))
    leases = Leases(url, LEASE_S, watchdog=False)
    leases.start()
    job_id = a_job(ledger)
    issue(ledger, job_id, "held.1")
    held = granted(ledger, job_id, "held.1")

    with leases.held(held):
        redis.Redis.from_url(url).shutdown(nosave=True)

        def is_lost() -> bool:
            try:
                held.check()
            except LeaseLost:
                return True
            return False

        wait_until(is_lost, what="the loss of the claim")
    leases.stop()
    ledger.connection.close()
