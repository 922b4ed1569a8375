"""Fixtures of the store's tests."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.ids import HandoffId, JobId
from tests.doubles.jobs import a_job, issue

HANDOFF_ID = HandoffId("find.1")


@pytest.fixture
def job_id(store: Store) -> JobId:
    """Return a job whose handoff `HANDOFF_ID` is issued."""
    job_id = a_job(store)
    issue(store, job_id, HANDOFF_ID)
    return job_id
