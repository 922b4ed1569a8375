"""Admission control: checks of new jobs against the fleet, the budgets, and the memory of Redis."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from handoff_queue.shared.settings.settings import OFFLINE_MODEL, Settings
from handoff_queue.shared.store.presence import ServedSpecialist
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.text.word_forms import suggest_name
from handoff_queue.shared.types.errors import StoreUnavailable, UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.supervisor.client.request import (
    Request,
    check_prices_of_specialists,
    find_bound_in_money,
)


class Admission:
    """Checks of requests against the fleet. The models, the memory and the budget of each
    tenant are read once for all requests.
    """

    def __init__(self, store: Store, settings: Settings) -> None:
        """Store the arguments. Nothing is read before the first check."""
        self._store = store
        self._settings = settings
        self._refusals: dict[str, UserError | None] = {}

    def check(self, job_id: JobId, fact_checker: str | None, request: Request) -> None:
        """Check a request before it becomes this job.

        The checks of the budgets and of the memory accept a job that is stored already. If no
        worker runs, the checks of the fact-checker and the model pass: workers may start
        later.

        Raises:
            UserError: the request names a real model and no live worker has a key. Or no worker
                serves or has served the fact-checker. Or the request names a specialist that no
                worker can ever serve. Or the request has a limit in money and needs a specialist
                whose models have no known price.
            BudgetSpent: the tenant or the installation has spent its budget for the day.
            TooManyOpenJobs: the tenant may have no more open jobs.
            StoreUnavailable: Redis is filled above the mark.
        """
        check_fact_checker(self._store, fact_checker)
        self._check_queues(request)
        if request.model not in (None, OFFLINE_MODEL) and self._models == {OFFLINE_MODEL}:
            raise UserError(
                f"no live worker has a key for the model {request.model!r}: set ANTHROPIC_API_KEY"
                " where the workers run, or leave the model out"
            )
        if find_bound_in_money(request):
            check_prices_of_specialists(request, self._served, self._settings)
        refusal = self._find_refusal(request.tenant)
        if not (refusal or self._no_room) or self._store.jobs.read([job_id]):
            return
        if refusal:
            raise refusal
        raise StoreUnavailable(self._no_room)

    def _check_queues(self, request: Request) -> None:
        """Check that the Redis users of the installation may use the queues of the specialists
        that a request names. Without Redis users, each queue can be used.

        Raises:
            UserError: a queue cannot be used.
        """
        places: dict[str, str] = {}
        for name in request.specialists:
            places.setdefault(name, "specialists")
        steps = request.workflow.steps if request.workflow else ()
        for step in steps:
            if step.specialist != CHILD_JOB_SPECIALIST:
                places.setdefault(step.specialist, step.where)
        refused = self._store.connection.queue_access.find_refused(places)
        for name, place in places.items():
            if name in refused:
                raise UserError(
                    f"{place}: no worker serves {name!r}, and the Redis users of this installation"
                    f" may not use its queue: {suggest_name(name, sorted(self._served))}"
                )

    @cached_property
    def _served(self) -> Mapping[str, ServedSpecialist]:
        return self._store.presence.load_served_specialists()

    @cached_property
    def _models(self) -> set[str]:
        models: set[str] = set()
        for served in self._served.values():
            models.update(served.models)
        return models

    @cached_property
    def _no_room(self) -> str | None:
        return self._store.health.find_lack_of_memory(self._settings.memory_mark)

    def _find_refusal(self, tenant: str) -> UserError | None:
        if tenant not in self._refusals:
            self._refusals[tenant] = self._store.daily_budgets.find_refusal(tenant)
        return self._refusals[tenant]


def check_room(store: Store, memory_mark: float) -> None:
    """Check that Redis has room for new data.

    Raises:
        StoreUnavailable: Redis is filled above the mark.
    """
    no_room = store.health.find_lack_of_memory(memory_mark)
    if no_room:
        raise StoreUnavailable(no_room)


def check_fact_checker(store: Store, name: str | None) -> None:
    """Check that the fact-checker of a job is served, or was served before.

    If its workers are away, the answer is delivered with a note that it was not checked. The queue
    does not count, because a workflow makes a queue for any name.

    Raises:
        UserError: no worker serves or has served the fact-checker, and other workers are running.
    """
    if name is None:
        return
    served = store.presence.load_served_specialists()
    if served and name not in served and not store.history.read([name])[0][name]:
        raise UserError(
            f"fact_checker: no worker serves or has served {name!r}:"
            f" {suggest_name(name, sorted(served))}"
        )
