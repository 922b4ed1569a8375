"""Start the jobs of due schedules. The sweeper of every supervisor calls it, and the sweepers
share the work.
"""

from __future__ import annotations

import random
import time

from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.schedules import StoredSchedule
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import HandoffError, StoreUnavailable
from handoff_queue.supervisor.client.handoff_publishing import Dispatcher
from handoff_queue.supervisor.client.schedules import advance

STEPS_AT_ONCE = 20
"""Most steps of one schedule in one sweep, so that one schedule does not delay the others."""

MAX_S = 0.5
"""Seconds after which a sweep begins no further schedule, because the sweeper also wakes
jobs and announces its supervisor.
"""

log = get_log(__name__)


class ScheduleStarter:
    """Starts the jobs of due schedules with the settings of this supervisor."""

    def __init__(self, store: Store, dispatcher: Dispatcher, settings: Settings) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._settings = settings

    def start_due(self) -> None:
        """Take due slots, and start their jobs.

        The order is random. So two supervisors rarely take the same schedule, and every schedule
        gets its turn.

        Raises:
            StoreUnavailable: Redis cannot be reached.
        """
        due_schedules, until = self._store.schedules.list_due(), time.monotonic() + MAX_S
        for stored_schedule in random.sample(due_schedules, len(due_schedules)):
            try:
                self._advance(stored_schedule)
            except StoreUnavailable:
                raise
            except HandoffError as error:
                name = stored_schedule.schedule.name
                log.warning("a schedule could not start its job", schedule=name, why=str(error))
            if time.monotonic() > until:
                return

    def _advance(self, stored_schedule: StoredSchedule) -> None:
        for _ in range(STEPS_AT_ONCE):
            if not advance(self._store, self._dispatcher, self._settings, stored_schedule):
                return
            tenant, name = stored_schedule.schedule.tenant, stored_schedule.schedule.name
            newest_schedule = self._store.schedules.find(tenant, name)
            if newest_schedule is None:
                return
            stored_schedule = newest_schedule
