"""Heartbeats of a handoff that waits."""

from __future__ import annotations

import time

from handoff_queue.shared.store.claim import BEAT_EVERY_S
from handoff_queue.shared.store.store import Store
from tests.doubles.jobs import a_job, granted, issue


def test_seconds_that_are_left_do_not_leave_the_process_one_by_one(store: Store) -> None:
    job_id = a_job(store)
    issue(store, job_id, "find.1")
    running = granted(store, job_id, "find.1")

    def shown(doing: str, since_s: float) -> str:
        """Return the activity in the store after a heartbeat, `since_s` seconds after the last one."""
        running._beaten_at = time.monotonic() - since_s
        running.beat(doing)
        return store.jobs.handoffs(job_id, [running.handoff_id])[running.handoff_id].doing

    assert shown("waiting 12 s: rate limit", 1.0) == "waiting 12 s: rate limit"
    assert shown("waiting 11 s: rate limit", 1.0) == "waiting 12 s: rate limit"
    assert shown("waiting 10 s: rate limit", BEAT_EVERY_S) == "waiting 10 s: rate limit"
    assert shown("waiting 9 s: overloaded", 1.0) == "waiting 9 s: overloaded"
