"""A request whose fact checker no worker has ever served is refused before it becomes a job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.store import keys
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.names import ROLES_QUEUE, SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from handoff_queue.supervisor.cli.request_options import RequestOptions, request_of
from handoff_queue.supervisor.client.client import Request
from handoff_queue.supervisor.gates.gates_file import GateSet
from tests.supervisor.shell import SETTINGS, Shell

REQUEST = Request("How high is it?", gates=Gates(fact_checker="legal"))


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    supervisor = Shell(
        redis_url,
        make_app("test", redis_url, SETTINGS, (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, ROLES_QUEUE)),
    )
    yield supervisor
    supervisor.close()


def test_a_fact_checker_that_was_never_served_is_refused(shell: Shell) -> None:
    shell.serve("researcher", "writer")

    with pytest.raises(
        UserError,
        match=(
            r"^fact_checker: no worker serves or has served 'legal': use one of researcher, writer$"
        ),
    ):
        shell.jobs.submit(REQUEST)


def test_an_unserved_fact_checker_is_refused_before_any_line_of_a_file_is_submitted(
    shell: Shell,
) -> None:
    shell.serve("researcher")

    with pytest.raises(UserError, match="no worker serves or has served 'legal'"):
        request_of(
            RequestOptions("How high is it?", gates=GateSet(Gates(fact_checker="legal"))),
            shell.jobs,
        )


def test_a_fact_checker_that_was_served_once_is_accepted(shell: Shell) -> None:
    shell.serve("researcher")
    sample = '{"at": 1, "usd": 1, "ms": 1, "waited_ms": 0, "turns": 1, "bucket": null}'
    shell.store.connection.redis.lpush(keys.history("legal"), sample)
    shell.store.connection.redis.expire(keys.history("legal"), 60)

    assert shell.jobs.info(shell.jobs.submit(REQUEST)).status is JobStatus.QUEUED


def test_a_fact_checker_that_was_only_requested_is_refused(shell: Shell) -> None:
    shell.serve("researcher")
    shell.store.connection.redis.hset(keys.QUEUES, "legal", 0)

    with pytest.raises(UserError, match="no worker serves or has served 'legal'"):
        shell.jobs.submit(REQUEST)


def test_without_any_worker_every_fact_checker_is_accepted(shell: Shell) -> None:
    assert shell.jobs.info(shell.jobs.submit(REQUEST)).status is JobStatus.QUEUED
