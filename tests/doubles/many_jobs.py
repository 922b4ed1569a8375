"""Thousands of jobs in a store, for tests of the list of jobs."""

from __future__ import annotations

from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.ids import JobId, create_job_id
from tests.doubles.jobs import submission


def many_jobs(store: Store, count: int) -> list[JobId]:
    """Store queued jobs in a few round trips. Each tenth job belongs to the tenant `tenth`."""
    due_at = store.connection.now() + 3_600
    commits: list[Commit] = []
    for number in range(count):
        tenant = "default" if number % 10 else "tenth"
        fields: dict[str, str | int] = {
            "status": "queued",
            "title": f"Compare database {number}",
            "tenant": tenant,
        }
        commits.append(
            Commit(create_job_id(), 0, [submission()], fields=fields, due_at=due_at, creates=True)
        )
    for start in range(0, count, 1_000):
        store.journal.commit_each(commits[start : start + 1_000])
    return [commit.job_id for commit in commits]
