"""The sweeper: wakes jobs after a time limit, a lost message or a dead process. Every
supervisor runs a sweeper, and the sweepers share the work.

The sweeper also announces its supervisor. A supervisor that stops sweeping is treated as down.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from handoff_queue.shared.broker.transport import list_library_scripts
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.store.daily_budgets import DailyCaps
from handoff_queue.shared.store.due_work import SweepResult
from handoff_queue.shared.store.presence import ANNOUNCED_FOR_S, FOUND_WITHIN_S, WITHDRAWN_WITHIN_S
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import StoreError, StoreUnavailable
from handoff_queue.shared.types.presence import Node
from handoff_queue.supervisor.client.handoff_publishing import Dispatcher

SWEEPS_PER_LEASE = 8
"""Least number of sweeps in the time of a lease. A quarter of a lease without a sweep counts
as an outage of Redis (`parts/outage_grace.lua`).
"""
FORGET_EVERY = 600
"""Sweeps between two clean-ups of deleted jobs: their entries in the list of jobs, and their
messages in unserved queues.
"""
MAX_REFUSED = 1_000
"""Refused announcements that one process records."""
MAX_WORKER_CHARS = 200
"""Most characters of the name of a worker in a dead letter."""

log = get_log(__name__)


class Sweeper:
    """A thread that sweeps at an interval. While no job and no schedule is due, a sweep is three
    round trips to Redis. One checks that Redis has all scripts, because workers cannot load them.
    """

    def __init__(
        self,
        store: Store,
        dispatcher: Dispatcher,
        name: str,
        *,
        interval_s: float,
        keep_s: int,
        caps: DailyCaps | None = None,
        start_schedules: Callable[[], None] = lambda: None,
        cancel_batches: Callable[[], None] = lambda: None,
    ) -> None:
        """Set up a sweeper.

        Args:
            name: name of this process.
            interval_s: seconds between two sweeps.
            keep_s: seconds for which ended jobs are kept (HANDOFF_RETENTION_S).
            caps: the daily caps; None: this supervisor sets none.
            start_schedules: starts the jobs of due schedules.
            cancel_batches: cancels batches that no job needs.
        """
        self._store = store
        self._name = name
        self._dispatcher = dispatcher
        self._interval_s = interval_s
        self._keep_s = keep_s
        self._caps = caps
        self._start_schedules = start_schedules
        self._cancel_batches = cancel_batches
        self._caps_since_ms: int | None = None
        """Time at which this supervisor set the caps; None before that."""
        self._node: Callable[[], Node | None] = lambda: None
        self._announced_at = float("-inf")
        self._refused_announcements: set[tuple[str, str]] = set()
        """Refused announcements that are recorded: worker and reason."""
        self._rounds = 0
        self._tried = threading.Event()
        """Set after the first try to announce the supervisor."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def start(self, node: Callable[[], Node | None] = lambda: None) -> None:
        """Start the thread, and wait at most `FOUND_WITHIN_S` for its first try to announce
        the supervisor.

        Args:
            node: returns the facts that the supervisor announces about itself.
        """
        self._node = node
        self._thread.start()
        self._tried.wait(FOUND_WITHIN_S)

    def stop(self) -> None:
        """Stop after the current sweep, and withdraw the announcement. Return at once."""
        self._stop.set()

    def wait_until_withdrawn(self) -> None:
        """Wait until the announcement is withdrawn, after `stop` and before the process ends."""
        if self._thread.is_alive():
            self._thread.join(WITHDRAWN_WITHIN_S)

    def sweep(self) -> int:
        """Wake each job that is due, and each job that no supervisor has begun. Return their
        number.
        """
        swept = self._sweep()
        return len(swept.due) + len(swept.fresh)

    def refuse_announcements(self) -> None:
        """Record the announcements of workers that do not count, each worker's once in the life of
        this process.
        """
        for refused in self._store.presence.read_refused_announcements():
            worker, why = refused.worker, refused.reason
            is_recorded = (worker, why) in self._refused_announcements
            if is_recorded or len(self._refused_announcements) >= MAX_REFUSED:
                continue
            self._refused_announcements.add((worker, why))
            log.warning("the announcement of a worker was refused", worker=worker, why=why)
            subject = worker[:MAX_WORKER_CHARS]
            reason = f"the announcement of {subject} does not count: {why}"
            self._store.refuse(subject, "announcements", reason, refused.text)

    def announce(self) -> None:
        """Announce this supervisor, and set its daily caps, unless a supervisor that started
        later has set other caps. Caps that Redis has lost are set again.
        """
        stored_since_ms = self._store.presence.announce_supervisor(self._name, self._node())
        if self._caps is None:
            return
        own_since_ms = self._caps_since_ms
        if own_since_ms is not None and stored_since_ms >= own_since_ms:
            return
        self._caps_since_ms = self._store.daily_budgets.set_caps(self._caps, own_since_ms)

    def _sweep(self) -> SweepResult:
        """Wake the jobs as `sweep`, and return them."""
        swept = self._store.due_work.sweep()
        for job_id, suspects in swept.due.items():
            self._dispatcher.wake(job_id, suspects)
        for job_id in swept.fresh:
            self._dispatcher.announce(job_id)
        return swept

    def _announce_in_time(self) -> None:
        """Announce the supervisor, and do the other regular work, before the announcement ends."""
        if time.monotonic() - self._announced_at < ANNOUNCED_FOR_S / 3:
            return
        self.announce()
        self._announced_at = time.monotonic()
        self._store.refusals.copy_commands()
        self._store.refusals.move_reports()
        self._store.dead_letters.forget_old()
        self.refuse_announcements()
        self._cancel_batches()

    def _run_round(self) -> None:
        """Wake all jobs that are due, and clean up in every `FORGET_EVERY`th round."""
        has_more = True
        while has_more:  # thousands of jobs may be due after an outage
            has_more = self._sweep().more
        cleans_up = self._rounds % FORGET_EVERY == 0
        if cleans_up:
            self._store.jobs.forget_older_than(self._store.connection.now() - self._keep_s)
        if cleans_up or self._store.queue_repair.has_more:
            self._store.queue_repair.drop_orphans()
        self._rounds += 1

    def _load_scripts(self) -> None:
        self._store.connection.load_scripts(list_library_scripts())

    def _run(self) -> None:
        while not self._stop.is_set():
            _run_or_log("scripts not loaded", self._load_scripts)
            is_there = _run_or_log("not announced", self._announce_in_time)
            self._tried.set()
            if is_there:
                _run_or_log("not swept", self._run_round)
                _run_or_log("schedules not started", self._start_schedules)
            self._stop.wait(min(self._interval_s, ANNOUNCED_FOR_S / 3))
        with suppress(StoreError):
            self._store.presence.withdraw_supervisor(self._name)


def _run_or_log(otherwise: str, call: Callable[[], None]) -> bool:
    """Run a call. Return whether it raised no exception; otherwise log the message `otherwise`."""
    try:
        call()
    except StoreUnavailable as error:
        log.warning(otherwise, why=str(error))
        return False
    except BaseException:  # the sweeper must survive the restart of a broker
        log.exception(otherwise)
        return False
    return True
