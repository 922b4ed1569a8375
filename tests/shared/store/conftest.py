"""What tests of the ledger share: a job with a handoff out."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store.store import Ledger
from handoff_queue.shared.types.ids import HandoffId, JobId
from tests.doubles.jobs import a_job, issue

ONE = HandoffId("find.1")


@pytest.fixture
def job_id(ledger: Ledger) -> JobId:
    """A job with the handoff `ONE` out."""
    job_id = a_job(ledger)
    issue(ledger, job_id, ONE)
    return job_id
