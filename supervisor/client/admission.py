"""What can be said of a request only with Redis: whether the fleet can do it, whether there is budget for it
today, and whether Redis has room for one more job.
"""

from __future__ import annotations

from functools import cached_property

from handoff_queue.shared.settings.settings import OFFLINE_MODEL
from handoff_queue.shared.store.store import Ledger
from handoff_queue.shared.text.suggestions import suggestion
from handoff_queue.shared.types.errors import BudgetSpent, LedgerUnavailable, UserError
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.client.submission import Submission


class Admission:
    """What requests that come together are held against: asked of Redis once for all of them."""

    def __init__(self, ledger: Ledger, memory_mark: float) -> None:
        """`memory_mark`: the part of Redis's maxmemory above which no new job is taken."""
        self._ledger = ledger
        self._mark = memory_mark
        self._spent: dict[str, str | None] = {}

    def check(self, made: Submission, request: Request) -> None:
        """Before the request becomes this job.

        Raises:
            UserError: a real model cannot be had from workers without a key, or nobody has ever served its fact-checker. (With no worker
                there, they may come.)
            BudgetSpent: the tenant, or the installation, has spent what it may in a day.
            LedgerUnavailable: Redis is filled above the mark. A job that is there already, by its key, is let in.
        """
        check_fact_checker(self._ledger, made.event.fact_checker)
        if request.model not in (None, OFFLINE_MODEL) and self._models == {OFFLINE_MODEL}:
            raise UserError(
                f"no live worker has a key for {request.model}: set ANTHROPIC_API_KEY where the workers run, or leave the model out"
            )
        spent = self._spent_up(request.tenant)
        if not (spent or self._no_room) or self._ledger.jobs.standings([made.job_id]):
            return
        if spent:
            raise BudgetSpent(spent)
        raise LedgerUnavailable(self._no_room)

    @cached_property
    def _models(self) -> set[str]:
        return {model for served in self._ledger.roles.served().values() for model in served.models}

    @cached_property
    def _no_room(self) -> str | None:
        return self._ledger.health.no_room(self._mark)

    def _spent_up(self, tenant: str) -> str | None:
        if tenant not in self._spent:
            self._spent[tenant] = self._ledger.days.spent_up(tenant)
        return self._spent[tenant]


def check_fact_checker(ledger: Ledger, name: str | None) -> None:
    """One whose workers are away has done something here before: then the answer leaves with a note that it was not checked. A queue tells
    nothing, for whatever a workflow names has one.

    Raises:
        UserError: nobody serves or has served it, and somebody is there.
    """
    served = ledger.roles.served() if name else {}
    if name and served and name not in served and not ledger.history.read([name])[0][name]:
        raise UserError(
            f"fact_checker: no worker serves or has served {name!r}: {suggestion(name, sorted(served))}"
        )
