"""A view of a job survives an outage of Redis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.presence import Presence, PresenceStore
from handoff_queue.shared.types.errors import StoreUnavailable, UnknownJob
from handoff_queue.shared.types.events import JobSubmitted
from handoff_queue.supervisor.cli.display.job_view import follow
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.request import Request


class PresenceStoreLosesConnectionOnce(PresenceStore):
    """A presence store that loses its connection once, between two reads of an update."""

    asked = 0

    def read_presence(self, *args: Any, **kwargs: Any) -> Presence:
        self.asked += 1
        if self.asked == 2:  # the first read checks that the job exists
            raise StoreUnavailable("Redis is away.")
        return super().read_presence(*args, **kwargs)


def test_events_read_before_an_outage_are_shown_after_it(redis_url: str) -> None:
    jobs = client.connect(redis_url, Settings(offline=True))
    job_id = jobs.submit(Request("What is HNSW?"))
    jobs.store = replace(
        jobs.store, presence=PresenceStoreLosesConnectionOnce(jobs.store.connection)
    )

    moments = follow(jobs, job_id)
    away, back = next(moments), next(moments)

    assert (away.error, list(away.events)) == ("Redis is away.", [])
    assert [type(recorded.event) for recorded in back.events] == [JobSubmitted]
    jobs.store.connection.close()


def test_a_deleted_job_is_reported_and_not_shown_in_its_last_state(redis_url: str) -> None:
    jobs = client.connect(redis_url, Settings(offline=True))
    job_id = jobs.submit(Request("What is HNSW?"))
    moments = follow(jobs, job_id)
    next(moments)
    jobs.store.connection.redis.flushall()

    with pytest.raises(UnknownJob, match=job_id):
        next(moments)
    jobs.store.connection.close()
