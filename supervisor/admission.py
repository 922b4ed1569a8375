"""What can be said of a request only with Redis: whether the fleet can do it, and whether there is budget for it today."""

from __future__ import annotations

from shared.config import OFFLINE_MODEL
from shared.ledger.ledger import Ledger
from shared.wire.errors import BudgetSpent, UserError
from shared.wire.ids import JobId
from supervisor.request import Request


def check_admission(ledger: Ledger, job_id: JobId, request: Request) -> None:
    """Before the request becomes this job.

    Raises:
        UserError: a real model cannot be had from workers without a key. (With no worker there, it may come with one.)
        BudgetSpent: the tenant, or the installation, has spent what it may in a day. A job that is there already, by its key, is let in.
    """
    models = {model for served in ledger.roles.served().values() for model in served.models}
    if request.model not in (None, OFFLINE_MODEL) and models == {OFFLINE_MODEL}:
        raise UserError(
            f"no live worker has a key for {request.model}: set ANTHROPIC_API_KEY where the workers run, or leave the model out"
        )
    spent = ledger.days.spent_up(request.tenant)
    if spent and not ledger.jobs.standings([job_id]):
        raise BudgetSpent(spent)
