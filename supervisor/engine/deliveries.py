"""Threads that send webhooks and end tasks, so that a slow receiver holds no slot of the
supervisor.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import assert_never
from urllib.parse import urlsplit

from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.types.errors import HandoffError
from handoff_queue.shared.types.events import DEFAULT_TENANT
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.engine.end_tasks import EndTasks
from handoff_queue.supervisor.engine.webhooks import TIMEOUT_S, Webhooks
from handoff_queue.supervisor.lifecycle.commands import (
    AskApproval,
    DeliverWebhook,
    RemindUser,
    SendEndTask,
)
from handoff_queue.supervisor.lifecycle.job_end import WEBHOOK_GIVEN_UP_AFTER_S
from handoff_queue.supervisor.lifecycle.state import JobState

MAX_THREADS = 32
MAX_FOR_ONE = 8
"""Most threads that send to one receiver at a time. The slow receivers of a tenant leave the other
threads to the other tenants.
"""
MAX_WAIT_S = WEBHOOK_GIVEN_UP_AFTER_S - TIMEOUT_S - 5.0
"""Seconds after which a delivery that waits for a thread is dropped. Together with its timeout,
this is less than the time after which the journal counts the try as lost and repeats it.
"""
LATEST_OUTCOME_S = WEBHOOK_GIVEN_UP_AFTER_S - 2.0
"""Seconds after which a dropped delivery gets no outcome, because the next try may have begun."""
NO_THREAD = "no thread was free: the receivers are slow"
WAIT_AT_THE_END_S = 3.0
"""Most seconds for which a supervisor that shuts down waits for running deliveries. It is less
than the time that `handoff up` gives to a process after its drain.
"""

log = get_log(__name__)


@dataclass(frozen=True, slots=True)
class _Delivery:
    """A delivery that waits for a thread."""

    job_id: JobId
    receiver: str
    """Name under which deliveries share threads."""
    send: Callable[[], None]
    drop: Callable[[], None] | None
    """Records that the delivery was not sent. None: nothing is recorded."""
    since: float
    """Monotonic time in seconds."""


class Deliveries:
    """Sends webhooks and end tasks in threads.

    A try to report an end first reserves a thread. Then the journal says that the try has begun,
    and its thread appends the outcome. So the journal counts no try that waits for a thread. The
    end of an evaluation releases reservations whose commit has failed. A question reserves no
    thread: its report waits for one.

    A try without its reservation can wait too long, for example after a stop of the process. It
    has failed then, so that the next try comes as late as after each other failure. A try that ends
    with its process has no outcome, so the sweeper repeats it after `WEBHOOK_GIVEN_UP_AFTER_S`. An
    outcome wakes the job, because `append` sets the time of its next evaluation.
    """

    def __init__(
        self,
        webhooks: Webhooks,
        end_tasks: EndTasks,
        *,
        max_for_one: int = MAX_FOR_ONE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up the deliveries. Without a delivery there is no thread.

        Args:
            max_for_one: most threads for one receiver.
            clock: returns a monotonic time in seconds.
        """
        self._webhooks = webhooks
        self._end_tasks = end_tasks
        self._max_for_one = max_for_one
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[_Delivery]] = {}
        """Receiver -> its deliveries that wait, the oldest first. The receiver that had its turn
        last is at the end.
        """
        self._busy: Counter[str] = Counter()
        """Receiver -> its threads that send."""
        self._threads: set[threading.Thread] = set()
        self._reserved: dict[tuple[JobId, type], str] = {}
        """Job and type of the command -> the receiver of its try, for which a thread is kept."""

    def reserve(self, state: JobState, command: DeliverWebhook | SendEndTask) -> bool:
        """Keep a thread free for a try, until `start` or `release`. Return False if none is
        free.
        """
        receiver, key = _get_receiver(state, command), (state.job_id, type(command))
        with self._lock:
            if key not in self._reserved and not self._is_free(receiver):
                return False
            self._reserved[key] = receiver
            return True

    def release(self, job_id: JobId) -> None:
        """End the reservations of a job that no `start` has used. A delivery that waits may get
        the thread.
        """
        with self._lock:
            unused_keys = [key for key in self._reserved if key[0] == job_id]
            for key in unused_keys:
                del self._reserved[key]
            if unused_keys and any(map(self._is_free, self._waiting)):
                self._start_thread(job_id, None)

    def start(
        self, state: JobState, effect: DeliverWebhook | SendEndTask | AskApproval | RemindUser
    ) -> None:
        """Send the webhook or the end task of a job in a thread. Return at once."""
        send: Callable[[], None]
        drop: Callable[[], None] | None = None
        match effect:
            case DeliverWebhook(attempt):
                send = partial(self._webhooks.deliver, state, attempt)
                drop = partial(self._webhooks.record_failed_try, state, attempt, NO_THREAD)
            case SendEndTask(attempt):
                send = partial(self._end_tasks.send, state, attempt)
                drop = partial(self._end_tasks.send, state, attempt, not_sent=NO_THREAD)
            case AskApproval() | RemindUser():
                if state.submitted.webhook_url is None:
                    return
                send = partial(self._webhooks.ask, state)
            case _:
                assert_never(effect)
        receiver = _get_receiver(state, effect)
        self._add(_Delivery(state.job_id, receiver, send, drop, self._clock()), type(effect))

    def finish(self) -> None:
        """Drop the deliveries that wait, and wait for the running ones at the end of the process.
        Another supervisor repeats the tries without an outcome.
        """
        with self._lock:
            self._waiting.clear()
            threads = list(self._threads)
        until = time.monotonic() + WAIT_AT_THE_END_S
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _add(self, delivery: _Delivery, command_type: type) -> None:
        """Give a delivery with a reservation to a new thread. Another delivery waits for a thread,
        which is new if one is free.
        """
        job_id, receiver = delivery.job_id, delivery.receiver
        with self._lock:
            is_reserved = self._reserved.pop((job_id, command_type), None) is not None
            if is_reserved and self._start_thread(job_id, delivery):
                self._busy[receiver] += 1
                return
            self._waiting.setdefault(receiver, deque()).append(delivery)
            if self._is_free(receiver):
                self._start_thread(job_id, None)

    def _is_free(self, receiver: str) -> bool:
        """Return whether one more thread may start for the receiver. Reserved threads count."""
        of_receiver = self._busy[receiver] + list(self._reserved.values()).count(receiver)
        is_room = len(self._threads) + len(self._reserved) < MAX_THREADS
        return is_room and of_receiver < self._max_for_one

    def _start_thread(self, job_id: JobId, first: _Delivery | None) -> bool:
        """Start a thread for a delivery and then for the waiting ones. Return whether the system
        allows the thread.
        """
        thread = threading.Thread(target=self._run, args=(first,), name="deliveries", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            log.warning("no thread could start for a delivery", job_id=job_id, why=str(error))
            return False
        self._threads.add(thread)
        return True

    def _run(self, first: _Delivery | None) -> None:
        delivery = first or self._take()
        while delivery is not None:
            try:
                self._send(delivery)
            finally:
                with self._lock:
                    self._busy[delivery.receiver] -= 1
            delivery = self._take()

    def _take(self) -> _Delivery | None:
        """Take the next delivery of a receiver with a free thread. If there is none, remove this
        thread from the threads, and return None.
        """
        with self._lock:
            for receiver, waiting in self._waiting.items():
                if self._busy[receiver] < self._max_for_one:
                    delivery = waiting.popleft()
                    del self._waiting[receiver]
                    if waiting:
                        self._waiting[receiver] = waiting
                    self._busy[receiver] += 1
                    return delivery
            self._threads.remove(threading.current_thread())
            self._busy += Counter()  # forgets the receivers without a thread
            return None

    def _send(self, delivery: _Delivery) -> None:
        waited_s = self._clock() - delivery.since
        try:
            if waited_s <= MAX_WAIT_S:
                delivery.send()
                return
            log.warning("a delivery was dropped", job_id=delivery.job_id, why=NO_THREAD)
            if delivery.drop is not None and waited_s < LATEST_OUTCOME_S:
                delivery.drop()
        except HandoffError as error:  # for example, Redis cannot be reached
            log.warning(
                "the outcome of a delivery is not known", job_id=delivery.job_id, why=str(error)
            )
        except Exception:  # no fault of a delivery may end the thread
            log.exception("the outcome of a delivery is not known", job_id=delivery.job_id)


def _get_receiver(
    state: JobState, effect: DeliverWebhook | SendEndTask | AskApproval | RemindUser
) -> str:
    """Return the name under which deliveries share threads: of a webhook the tenant of the job, or
    else the host of the webhook. All end tasks share the threads of their broker.
    """
    if isinstance(effect, SendEndTask):
        return "on_end"
    if state.submitted.tenant != DEFAULT_TENANT:
        return f"tenant {state.submitted.tenant}"
    try:
        return f"host {urlsplit(state.submitted.webhook_url or '').hostname}"
    except ValueError:
        return "host"
