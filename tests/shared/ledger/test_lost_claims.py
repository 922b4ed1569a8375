"""What stays known of processes that were lost with a claim, when the handoff has long gone on."""

from __future__ import annotations

import pytest

from shared.ledger.claims import MAX_CLAIMS
from shared.ledger.ledger import Ledger
from shared.wire.ids import JobId
from tests.doubles.jobs import granted, let_lease_run_out, replied
from tests.shared.ledger.conftest import ONE


@pytest.mark.parametrize("is_swept", [True, False])
def test_a_lost_process_stays_counted_when_the_handoff_gets_further(ledger: Ledger, job_id: JobId, is_swept: bool) -> None:
    let_lease_run_out(ledger, granted(ledger, job_id, "find.1"))
    if is_swept:
        ledger.jobs.sweep()
    second = granted(ledger, job_id, "find.1", "w2")
    second.checkpoint(replied())
    second.release()
    granted(ledger, job_id, "find.1", "w3")

    found = ledger.jobs.handoffs(job_id, [ONE])[ONE]
    assert (found.claims, found.lost_claims, found.lost_worker, found.worker) == (1, 1, "w1", "w3")
    assert found.started_at is not None
    assert found.lost_at is not None
    assert found.again_at is not None
    assert found.started_at <= found.lost_at <= found.again_at


def test_each_lost_process_counts_and_none_that_handed_back(ledger: Ledger, job_id: JobId) -> None:
    granted(ledger, job_id, "find.1").release()
    for _ in range(MAX_CLAIMS):
        let_lease_run_out(ledger, granted(ledger, job_id, "find.1"))
        ledger.jobs.sweep()
        ledger.jobs.sweep()

    found = ledger.jobs.handoffs(job_id, [ONE])[ONE]
    assert (found.lost_claims, found.again_at) == (MAX_CLAIMS, None)
