"""The killer, with a seed. Timing decides which process it hits; the seed decides its next action
and the delay.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from handoff_queue.chaos.fleet import REDIS, SUPERVISOR, WORKER, Fleet, arm
from handoff_queue.chaos.leaks import UNACKED
from handoff_queue.chaos.plan import SPECIALISTS
from handoff_queue.chaos.process_pauses import Stops
from handoff_queue.chaos.queue_messages import without_fair_order
from handoff_queue.chaos.strikes import EVERYBODY, Fault, Strike
from handoff_queue.shared.store.redis.connection import in_our_words
from handoff_queue.shared.types.errors import StoreError
from handoff_queue.shared.types.names import ROLES_QUEUE, SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE

SHARES = {
    Fault.KILL_WORKER: 40,
    Fault.KILL_SUPERVISOR: 25,
    Fault.KILL_REDIS: 8,
    Fault.STOP: 9,
    Fault.CUT: 7,
    Fault.TWICE: 6,
    Fault.FREEZE: 2,
    Fault.END: 3,
}
"""Relative frequency of each action. Only killing actions count."""
PAUSE_S = (0.2, 1.6)
"""Between two faults, as long as enough is left to strike at."""
FREEZE_LEASES = 5
"""Longer than the watchdog's patience."""

QUEUES = (*SPECIALISTS, SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, ROLES_QUEUE)


@dataclass(frozen=True, slots=True)
class Next:
    """The next action. It has its own `dice`, so that its target has no influence on later actions."""

    fault: Fault
    pause_s: float
    """Seconds until the next action."""
    dice: random.Random


def order_of(seed: int) -> Iterator[Next]:
    """Yield the actions of a seed, without end."""
    for number in count(1):
        dice = random.Random(f"{seed} fault {number}")  # noqa: S311 - a seed is the point
        yield Next(
            dice.choices(list(SHARES), list(SHARES.values()))[0], dice.uniform(*PAUSE_S), dice
        )


@dataclass(slots=True)
class Killer:
    """Call `go_on` repeatedly; `strikes` holds the actions so far."""

    fleet: Fleet
    order: Iterator[Next]
    frozen_at: str
    """Point at which a frozen worker freezes, while it runs a handoff."""
    strikes: list[Strike] = field(default_factory=list)
    not_happened: list[str] = field(default_factory=list)
    """Armed points that no process reached."""
    _next_at: float = 0.0
    _stops: Stops = field(init=False)

    def __post_init__(self) -> None:
        self._stops = Stops(self.strikes)

    @property
    def kills(self) -> int:
        return sum(strike.fault.is_kill for strike in self.strikes)

    def go_on(self) -> None:
        """Do one action, if it is time."""
        self._stops.wake(only_due=True)
        self._note_frozen()
        now = time.time()
        if now < self._next_at or not self._is_enough_there():
            return
        what = next(self.order)
        self._do(what.fault, what.dice)
        self._next_at = now + what.pause_s

    def rest(self) -> None:
        """Stop acting."""
        self._stops.wake()
        armed = self.fleet.points(WORKER) / self.frozen_at
        if armed.exists():
            with suppress(FileNotFoundError):  # a process has just reached the point
                armed.unlink()
                self.not_happened.append(f"{Fault.FREEZE} at {self.frozen_at} of a {WORKER}")
        self._note_frozen()

    def kill(self, name: str) -> bool:
        """Kill this process now."""
        return self._signal(
            Fault.KILL_SUPERVISOR if name.startswith(SUPERVISOR) else Fault.KILL_WORKER,
            name,
            signal.SIGKILL,
        )

    def _is_enough_there(self) -> bool:
        """Return whether enough processes run to prove anything: half of the workers, and one
        supervisor.
        """
        size = self.fleet.size
        workers, supervisors = self.fleet.ready(WORKER), self.fleet.ready(SUPERVISOR)
        up: list[int] = []
        for names in (workers, supervisors):
            up.append(len([name for name in names if name not in self._stops.targets]))
        return up[0] >= max(1, size.workers // 2) and up[1] >= 1 and self.fleet.is_ready(REDIS)

    def _do(self, fault: Fault, dice: random.Random) -> None:
        match fault:
            case Fault.KILL_WORKER:
                self._signal(fault, self._any_of(dice, WORKER), signal.SIGKILL)
            case Fault.KILL_SUPERVISOR:
                self._signal(fault, self._any_of(dice, SUPERVISOR), signal.SIGKILL)
            case Fault.KILL_REDIS:
                if self.fleet.signal(REDIS, signal.SIGKILL):
                    self._note(fault, EVERYBODY)
            case Fault.END:
                self._signal(fault, self._any_of(dice, WORKER, SUPERVISOR), signal.SIGTERM)
            case Fault.STOP:
                name = self._any_of(dice, WORKER, SUPERVISOR)
                pid, lasts_s = (
                    self.fleet.look().get(name),
                    self.fleet.size.lease_s * dice.uniform(1.2, 2.5),
                )
                if pid is not None and self.fleet.signal(name, signal.SIGSTOP):
                    self._stops.add(pid, Strike(fault, name, time.time(), lasts_s=lasts_s))
            case Fault.FREEZE:
                arm(
                    self.fleet.points(WORKER),
                    self.frozen_at,
                    f"freeze {self.fleet.size.lease_s * FREEZE_LEASES}",
                )
            case Fault.CUT:
                self._with_redis(fault, lambda client: cut_connections(client, dice))
            case Fault.TWICE:
                self._with_redis(fault, lambda client: deliver_twice(client, dice))
            case Fault.DROP:
                raise AssertionError("an answer is lost at a failpoint")

    def _any_of(self, dice: random.Random, *kinds: str) -> str:
        there = sorted(
            name
            for kind in kinds
            for name in self.fleet.look()
            if name.startswith(kind) and name not in self._stops.targets
        )
        if there:
            return dice.choice(there)
        return ""

    def _signal(self, fault: Fault, name: str, number: signal.Signals) -> bool:
        done = self.fleet.signal(name, number)
        if done:
            self._note(fault, name)
        return done

    def _note(self, fault: Fault, target: str) -> None:
        self.strikes.append(Strike(fault, target, time.time()))

    def _note_frozen(self) -> None:
        """Note that a worker has reached its freeze point."""
        for taken in self.fleet.points(WORKER).glob(f"{self.frozen_at}@*"):
            name = self.fleet.name_of(int(taken.name.partition("@")[2]))
            self.strikes.append(Strike(Fault.FREEZE, name, taken.stat().st_ctime, self.frozen_at))
            taken.unlink()

    def _with_redis(self, fault: Fault, do: Callable[[Any], None]) -> None:
        with suppress(StoreError), in_our_words():
            do(self.fleet.connection.redis)
            self._note(fault, EVERYBODY)


def cut_connections(client: Any, dice: random.Random) -> None:
    """Cut half of all connections."""
    for connection in client.client_list():
        if dice.random() < 0.5:
            client.client_kill_filter(_id=connection["id"])


def deliver_twice(client: Any, dice: random.Random) -> None:
    """Copy the messages of a queue, and half of the unacknowledged messages."""
    for queue in QUEUES:
        for message in client.lrange(queue, 0, 2):
            client.rpush(queue, without_fair_order(json.loads(message)))
    for entry in client.hvals(UNACKED):
        if dice.random() < 0.5:
            message, _, queue = json.loads(entry)
            client.rpush(queue, without_fair_order(message))
