"""Faults of a chaos run. Strikes are faults at a time on a process. Pauses of processes are by
SIGSTOP and SIGCONT, with their real durations.

On a busy machine a pause lasts longer than planned. Some faults take, delete and copy messages in
the queues of the broker.
"""

from __future__ import annotations

import json
import os
import signal
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from typing import Any

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.fair_queue import (
    ALONE_SUFFIX,
    DEQUEUE,
    MEMBER_HEADER,
    build_dequeue_arguments,
    get_member,
)
from handoff_queue.shared.store.redis.connection import RETRY_EVERY_S

ARRIVES_WITHIN_S = 0.5
"""Seconds between the death of a caller and the record of its last call: the server may read
the call after the death. A replacement process needs longer to start.
"""
DIES_WITHIN_S = 0.05
"""Seconds after its kill in which an answer of Redis may still arrive. Redis needs longer to
restart.
"""
EVERYBODY = "*"
"""Target of a strike that hits all processes: Redis is killed, or connections are cut."""


class Fault(StrEnum):
    """A kind of fault."""

    KILL_WORKER = "worker killed"
    KILL_SUPERVISOR = "supervisor killed"
    KILL_REDIS = "Redis killed"
    KILL_CONSOLE = "HTTP server killed"
    STOP = "stopped past its lease"
    FREEZE = "frozen"
    CUT = "connections cut"
    DROP = "answer lost"
    TWICE = "messages delivered twice"
    END = "told to end"

    @property
    def is_kill(self) -> bool:
        """True if the fault is a SIGKILL."""
        return self in (
            Fault.KILL_WORKER,
            Fault.KILL_SUPERVISOR,
            Fault.KILL_REDIS,
            Fault.KILL_CONSOLE,
        )


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault on one process."""

    fault: Fault
    target: str
    """Name of the process, or EVERYBODY."""
    at: float
    """Unix seconds."""
    point: str = ""
    """Name of the failpoint. Empty if the fault was at none."""
    lasts_s: float = 0.0
    """Seconds for which the target was stopped or frozen."""
    outage_s: float = 0.0
    """Seconds for which Redis was unreachable, including the next try."""

    @property
    def until(self) -> float:
        """Time until which calls may arrive that the target sent before the strike."""
        return self.at + self.lasts_s + ARRIVES_WITHIN_S

    def hits(self, process: str) -> bool:
        """Return whether the strike can make this process repeat a call in flight."""
        return self.fault is not Fault.TWICE and self.target in (process, EVERYBODY)


def with_outages(strikes: Iterable[Strike], answered_at: Iterable[float]) -> list[Strike]:
    """Return the strikes, each with the seconds for which it made Redis unreachable.

    Args:
        answered_at: times at which Redis answered.
    """
    answer_times = sorted(answered_at)
    return [replace(strike, outage_s=_compute_outage(strike, answer_times)) for strike in strikes]


def _compute_outage(strike: Strike, answer_times: Sequence[float]) -> float:
    """Return the seconds until Redis answered again, and a process tried again.

    Args:
        answer_times: times at which Redis answered, in order.
    """
    match strike.fault:
        case Fault.KILL_REDIS:
            next_answer = bisect_right(answer_times, strike.at + DIES_WITHIN_S)
            if next_answer == len(answer_times):
                return inf
            return answer_times[next_answer] - strike.at + RETRY_EVERY_S
        case Fault.CUT:
            return RETRY_EVERY_S
        case _:
            return 0.0


@dataclass(slots=True)
class Stops:
    """The current pauses. `strikes` holds each pause with its planned duration until it ends,
    and then with its real duration.
    """

    strikes: list[Strike]
    _by_pid: dict[int, Strike] = field(default_factory=dict)

    @property
    def targets(self) -> set[str]:
        """Names of the paused processes."""
        return {strike.target for strike in self._by_pid.values()}

    def add(self, pid: int, strike: Strike) -> None:
        """Record that this strike stopped a process."""
        self._by_pid[pid] = strike
        self.strikes.append(strike)

    def wake(self, *, only_due: bool = False) -> None:
        """Continue paused processes with SIGCONT.

        Args:
            only_due: True to continue only processes whose planned pause is over.
        """
        for pid, strike in list(self._by_pid.items()):
            if not only_due or time.time() >= strike.at + strike.lasts_s:
                del self._by_pid[pid]
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
                self.strikes[self.strikes.index(strike)] = replace(
                    strike, lasts_s=time.time() - strike.at
                )


def take_message(client: Any, queue: str, element: bytes) -> bytes:
    """Take the message that a worker would receive for this element of the queue. The message
    is lost, as if the worker had died with it.
    """
    popped_message = json.loads(element)
    if element.endswith(ALONE_SUFFIX) or get_member(popped_message) is None:
        return element
    # One script: a fault may kill Redis between two commands.
    message: bytes | None = DEQUEUE.run(client, build_dequeue_arguments(queue, popped_message))
    return message or element


def delete_queue(client: Any, queue: str) -> None:
    """Delete all messages of a queue."""
    fair = keys.FAIR + queue
    client.delete(queue, fair, f"{fair}:messages", f"{fair}:next")


def without_fair_order(message: Mapping[str, Any]) -> str:
    """Return a copy of a message that a worker receives without the fair order."""
    headers = {}
    for name, value in message["headers"].items():
        if name != MEMBER_HEADER:
            headers[name] = value
    return json.dumps({**message, "headers": headers})
