"""What tests of the store share: a job with a handoff out."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.ids import HandoffId, JobId
from tests.doubles.jobs import a_job, issue

ONE = HandoffId("find.1")


@pytest.fixture
def job_id(store: Store) -> JobId:
    """A job with the handoff `ONE` out."""
    job_id = a_job(store)
    issue(store, job_id, ONE)
    return job_id
