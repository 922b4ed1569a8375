"""A client that waits for a job's end survives outages of Redis."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.errors import StoreUnavailable
from handoff_queue.shared.types.events import JobEnded, JobStatus
from handoff_queue.supervisor.client.journal_follower import ReconnectLimit, wait_for_end
from tests.doubles.jobs import a_job
from tests.doubles.redis_faults import OwnRedis
from tests.waiting import wait_until

RECONNECT_S = 30.0


class CountingReconnectLimit(ReconnectLimit):
    """A limit with the test's own clock. It counts the survived outages."""

    def __init__(self) -> None:
        super().__init__(RECONNECT_S, lambda: self.clock)
        self.clock = 0.0
        self.borne = 0

    def record_failure(self, error: StoreUnavailable) -> None:
        super().record_failure(error)
        self.borne += 1

    def bears_on(self) -> None:
        """Wait until the client survives one more outage."""
        so_far = self.borne
        wait_until(lambda: self.borne > so_far, expected="another try")


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[OwnRedis]:
    server = OwnRedis(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def live_store(own_redis: OwnRedis) -> Iterator[Store]:
    opened = open_store(own_redis.url, Settings(lease_s=3_600))
    yield opened
    opened.connection.close()


def has_blocked_client(store: Store) -> bool:
    return any("b" in connection["flags"] for connection in store.connection.redis.client_list())


@pytest.mark.slow
def test_an_outage_ends_with_an_answer_of_redis_and_the_next_outage_has_the_full_time(
    own_redis: OwnRedis, live_store: Store
) -> None:
    job_id, patience = a_job(live_store), CountingReconnectLimit()
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(wait_for_end, live_store, job_id, 60.0, patience)
        for _ in range(2):
            wait_until(lambda: has_blocked_client(live_store), expected="a look that blocks")
            own_redis.kill()
            patience.bears_on()
            patience.clock += RECONNECT_S - 1
            patience.bears_on()
            own_redis.start()
        live_store.journal.commit(
            Commit(
                job_id=job_id,
                expected=1,
                events=[JobEnded(status=JobStatus.OK)],
                fields={"status": "ok"},
            )
        )
        assert waits.result(30) is JobStatus.OK


@pytest.mark.slow
def test_a_caller_that_runs_out_of_time_during_an_outage_gets_an_error_and_no_old_status(
    own_redis: OwnRedis, live_store: Store
) -> None:
    job_id, patience = a_job(live_store), CountingReconnectLimit()
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(wait_for_end, live_store, job_id, 3.0, patience)
        wait_until(lambda: has_blocked_client(live_store), expected="a look that blocks")
        own_redis.kill()
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            waits.result(30)


@pytest.mark.slow
def test_a_caller_that_has_waited_enough_gets_an_error(
    own_redis: OwnRedis, live_store: Store
) -> None:
    job_id, patience = a_job(live_store), CountingReconnectLimit()
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(wait_for_end, live_store, job_id, 60.0, patience)
        wait_until(lambda: has_blocked_client(live_store), expected="a look that blocks")
        own_redis.kill()
        patience.bears_on()
        patience.clock += RECONNECT_S + 1
        with pytest.raises(StoreUnavailable):
            waits.result(30)
