"""One thread renews every lease of its process; Redis may be away for longer than that."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shared.config import Settings
from shared.ledger.claim import ClaimVerdict
from shared.ledger.leases import Leases
from shared.ledger.ledger import open_ledger
from shared.local.processes import Processes
from shared.local.redis_server import PrivateRedis
from tests.doubles.jobs import a_job, claim, finish, granted, issue, replied
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


def test_a_claim_outlives_a_redis_that_is_away_for_longer_than_its_lease(processes: Processes, tmp_path: Path) -> None:
    server = PrivateRedis(processes, tmp_path, append_only=True)
    url = server.start()
    processes.wait_until_ready()
    ledger = open_ledger(url, Settings(lease_s=LEASE_S))
    leases = Leases(url, LEASE_S, watchdog=False)
    leases.start()
    job_id = a_job(ledger)
    issue(ledger, job_id, "held.1")
    held = granted(ledger, job_id, "held.1")

    with leases.held(held), ThreadPoolExecutor(1) as pool:
        os.kill(processes.pids()["redis"], signal.SIGSTOP)
        away_since = time.monotonic()
        saved = pool.submit(held.checkpoint, replied())
        wait_until(lambda: time.monotonic() > away_since + 2 * LEASE_S, what="two leases")
        assert not saved.done()
        os.kill(processes.pids()["redis"], signal.SIGKILL)
        saved.result(60)
        held.beat("thinking")

    assert finish(held) is not None
    leases.stop()
    ledger.connection.close()
