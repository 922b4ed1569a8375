"""A job leaves the ledger with everything of it, and with what is below it."""

from __future__ import annotations

from handoff_queue.shared.store.store import Ledger
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import HandoffIssued
from handoff_queue.shared.types.ids import JobId


def delete_job(ledger: Ledger, job_id: JobId) -> None:
    """From below, so that what is left after a crash is still found from above.

    Raises:
        UserError: it, or a job below it, has not ended; nothing of that is removed.
    """
    standing = next(iter(ledger.jobs.standings([job_id])), None)
    if standing is None:
        return
    if not standing.status.ended:
        raise UserError(
            f"{job_id} has not ended yet: "
            + (
                f"it stops with {standing.parent}, try again"
                if standing.parent
                else "cancel it first"
            )
        )
    for child in standing.children:
        delete_job(ledger, child)
    issued = [
        one.event.handoff_id
        for one in ledger.journal.read(job_id)
        if isinstance(one.event, HandoffIssued)
    ]
    ledger.jobs.delete(job_id, issued)
