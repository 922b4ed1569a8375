"""The primary and one of three sentinels fail during a job. The replica becomes the primary, and
every process connects to it, also with TLS.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest
import redis

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.testing import MessagesServer
from tests.doubles.sentinels import WatchedRedis, watched_redis
from tests.e2e.commands import Handoff
from tests.e2e.fleet import SHORT_LEASES, Fleet, Script
from tests.running_system import model_environment, system_on
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow
PROCESSES = ("supervisor", "everyone")
WITH_TLS = pytest.param(
    True,
    id="tls",
    marks=pytest.mark.skipif(which("openssl") is None, reason="openssl makes the certificates"),
)


@pytest.fixture(params=[pytest.param(False, id="plain"), WITH_TLS])
def watched(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[WatchedRedis]:
    with watched_redis(tmp_path / "redis", tls=request.param) as redis_and_sentinels:
        yield redis_and_sentinels


@pytest.fixture
def fleet(tmp_path: Path, watched: WatchedRedis) -> Iterator[Fleet]:
    script = Script()
    with (
        MessagesServer(script) as server,
        system_on(
            watched.url,
            watched.processes,
            tmp_path,
            settings=model_environment(server, **SHORT_LEASES),
        ) as system,
    ):
        jobs = system.jobs()
        yield Fleet(system, server, script, jobs)
        jobs.store.connection.close()


def test_a_job_survives_a_failover_and_repeats_no_call(
    fleet: Fleet, watched: WatchedRedis, tmp_path: Path
) -> None:
    before = watched.processes.get_pids()
    held = fleet.model.hold("lost-master", "a")
    job_id = fleet.submit("lost-master", a="", b="a")
    assert held.arrived.wait(MAX_WAIT_S)
    watched.wait_for_copy()

    watched.kill("sentinel-1")
    watched.kill("redis-1")
    watched.wait_for_another_primary()
    held.release.set()

    assert fleet.wait_for_success(job_id)
    assert set(fleet.model.calls.values()) == {1}, fleet.model.calls
    after = watched.processes.get_pids()
    assert [after[name] for name in PROCESSES] == [before[name] for name in PROCESSES]
    completed = Handoff(tmp_path).run("watch", job_id, HANDOFF_REDIS_URL=watched.url)
    assert (completed.returncode, completed.stdout.strip()) == (
        0,
        fleet.jobs.result(job_id).answer,
    ), completed.stderr
    _check_no_password(watched)


def test_clients_leave_a_demoted_primary_even_if_their_connection_is_open(
    watched: WatchedRedis,
) -> None:
    connection = Connection(watched.url)
    assert connection.redis.set("test:key", "the first")
    watched.switch()

    with pytest.raises(redis.ConnectionError):
        connection.redis.set("test:key", "a replica")
    assert connection.redis.set("test:key", "the second")
    connection.close()


def _check_no_password(watched: WatchedRedis) -> None:
    """Check that no password is in a log, or in the statistics that processes send to Flower.

    A new connection asks for the statistics, because Celery does not repeat a question that the
    lost primary got.
    """
    app = make_app("asks", watched.url, Settings(), [])
    with app.connection_for_write() as connection:
        stats = wait_until(
            lambda: app.control.inspect(timeout=0.5, connection=connection).stats(),
            expected="the processes' answers",
        )
    output = json.dumps(stats) + "".join(
        watched.processes.get_log_path(name).read_text() for name in PROCESSES
    )
    app.close()
    assert watched.password not in output
    assert watched.sentinel_password not in output
