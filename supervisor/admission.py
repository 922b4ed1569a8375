"""What can be said of a request only with Redis: whether the fleet can do it, whether there is budget for it
today, and whether Redis has room for one more job.
"""

from __future__ import annotations

from shared.config import OFFLINE_MODEL
from shared.ledger.ledger import Ledger
from shared.wire.errors import BudgetSpent, LedgerUnavailable, UserError
from shared.wire.ids import JobId
from supervisor.request import Request


def check_admission(ledger: Ledger, job_id: JobId, request: Request, memory_mark: float) -> None:
    """Before the request becomes this job.

    Raises:
        UserError: a real model cannot be had from workers without a key. (With no worker there, it may come with one.)
        BudgetSpent: the tenant, or the installation, has spent what it may in a day.
        LedgerUnavailable: Redis is filled above the mark, a part of its maxmemory. A job that is there already, by its key, is let in.
    """
    models = {model for served in ledger.roles.served().values() for model in served.models}
    if request.model not in (None, OFFLINE_MODEL) and models == {OFFLINE_MODEL}:
        raise UserError(
            f"no live worker has a key for {request.model}: set ANTHROPIC_API_KEY where the workers run, or leave the model out"
        )
    spent = ledger.days.spent_up(request.tenant)
    no_room = ledger.health.no_room(memory_mark)
    if not (spent or no_room) or ledger.jobs.standings([job_id]):
        return
    if spent:
        raise BudgetSpent(spent)
    raise LedgerUnavailable(no_room)
