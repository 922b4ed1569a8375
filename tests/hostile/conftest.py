"""Fixtures of the attacks: a system of real processes that sign their messages, and a Redis with
users. Attacks on the console, the API and the terminal need fixtures of other rooms.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import JobId
from tests.hostile.redis_with_users import Server, redis_with_users
from tests.hostile.signed_system import (
    FORGED,
    GENERALIST,
    SignedSystem,
    issued_in,
    signed_system,
)
from tests.supervisor.cli.conftest import broker
from tests.supervisor.conftest import jobs
from tests.supervisor.serve.conftest import app, client_with, http, routes, settings
from tests.supervisor.serve.console.conftest import local
from tests.waiting import wait_until

__all__ = ["app", "broker", "client_with", "http", "jobs", "local", "routes", "settings"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a Redis with a user for each kind of process."""
    with redis_with_users(tmp_path_factory.mktemp("redis")) as started:
        yield started


@pytest.fixture(scope="package")
def signing_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SignedSystem]:
    with signed_system(tmp_path_factory.mktemp("signed")) as system:
        yield system


@pytest.fixture
def signed(signing_processes: SignedSystem) -> Iterator[SignedSystem]:
    """Yield the system without dead letters."""
    signing_processes.store.dead_letters.drop_all()
    yield signing_processes
    signing_processes.store.dead_letters.drop_all()


@pytest.fixture
def held(signed: SignedSystem) -> Iterator[JobId]:
    """Yield a job whose handoff waits for its paused specialist. It ends well after the pause."""
    signed.jobs.pause(GENERALIST)
    job_id = signed.submit()
    wait_until(lambda: issued_in(signed.store, job_id), expected="the handoff")
    yield job_id
    signed.jobs.unpause(GENERALIST)
    assert signed.jobs.wait(job_id, 60) is JobStatus.OK
    assert FORGED not in str(signed.jobs.result(job_id))
