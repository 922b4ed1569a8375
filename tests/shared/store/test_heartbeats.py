"""A waiting handoff sends heartbeats."""

from __future__ import annotations

import time

from handoff_queue.shared.store.claim import HEARTBEAT_EVERY_S
from handoff_queue.shared.store.store import Store
from tests.doubles.jobs import a_job, granted_claim, issue


def test_a_countdown_does_not_cause_one_heartbeat_per_second(store: Store) -> None:
    job_id = a_job(store)
    issue(store, job_id, "find.1")
    running = granted_claim(store, job_id, "find.1")

    def activity_after(doing: str, since_s: float) -> str:
        """Return the activity in the store after a heartbeat, `since_s` seconds after the last
        one.
        """
        running._heartbeat_at = time.monotonic() - since_s
        running.heartbeat(doing)
        return store.jobs.read_handoffs(job_id, [running.handoff_id])[running.handoff_id].doing

    assert activity_after("waiting 12 s: rate limit", 1.0) == "waiting 12 s: rate limit"
    assert activity_after("waiting 11 s: rate limit", 1.0) == "waiting 12 s: rate limit"
    assert (
        activity_after("waiting 10 s: rate limit", HEARTBEAT_EVERY_S) == "waiting 10 s: rate limit"
    )
    assert activity_after("waiting 9 s: overloaded", 1.0) == "waiting 9 s: overloaded"
