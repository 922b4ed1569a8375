"""The killer. Its seed decides the order of the actions and the delays between them. An action
can hit only processes that run at its time.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, product
from pathlib import Path
from typing import Any

from handoff_queue.chaos.faults import EVERYBODY, Fault, Stops, Strike, without_fair_order
from handoff_queue.chaos.fleet import CONSOLE, REDIS, SUPERVISOR, WORKER, Fleet, arm
from handoff_queue.chaos.leaks import UNACKED
from handoff_queue.chaos.planned_jobs import KEEPER, SHARING, SKIMMER, SPECIALISTS, SWITCHING
from handoff_queue.shared.observability.failpoints import AFTER, BEFORE
from handoff_queue.shared.store.redis.connection import translate_errors
from handoff_queue.shared.types.errors import StoreError
from handoff_queue.shared.types.names import ROLES_QUEUE, SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE

SHARES = {
    Fault.KILL_WORKER: 40,
    Fault.KILL_SUPERVISOR: 25,
    Fault.KILL_REDIS: 8,
    Fault.KILL_CONSOLE: 25,
    Fault.STOP: 9,
    Fault.CUT: 7,
    Fault.TWICE: 6,
    Fault.FREEZE: 2,
    Fault.END: 3,
}
"""Relative frequency of each action."""
KILLED = {
    Fault.KILL_WORKER: WORKER,
    Fault.KILL_SUPERVISOR: SUPERVISOR,
    Fault.KILL_CONSOLE: CONSOLE,
}
"""Kind of process that a fault kills."""
ARMED = {WORKER: Fault.FREEZE, CONSOLE: Fault.KILL_CONSOLE}
"""Fault of the points that the killer arms, by kind of process."""
CONSOLE_POINTS = tuple(
    f"script.{script}.{moment}"
    for script, moment in product(
        ("commit", "append_commuting", "send_user_message", "replace_schedule"),
        (BEFORE, AFTER, AFTER),
    )
)
"""Failpoints of an HTTP server: it is killed before or after it stores a job, an answer, a
message or a schedule. A kill afterwards loses the answer to the user.
"""
AT_A_POINT = 0.8
"""Share of the kills of an HTTP server that happen at a failpoint. A kill at another moment
rarely hits a request.
"""
PAUSE_S = (0.2, 1.6)
"""Shortest and longest pause after an action, in seconds. The killer waits longer while too
few processes run.
"""
FREEZE_LEASES = 5
"""Duration of a freeze in leases, longer than the watchdog's patience."""
QUEUES = (
    *SPECIALISTS,
    SWITCHING,
    KEEPER,
    SHARING,
    SKIMMER,
    SUPERVISOR_QUEUE,
    SUBMISSIONS_QUEUE,
    ROLES_QUEUE,
)


@dataclass(frozen=True, slots=True)
class KillerAction:
    """The next action. It has its own `dice`, so that the choice of its target does not change
    later actions.
    """

    fault: Fault
    pause_s: float
    """Seconds until the next action."""
    dice: random.Random


def draw_actions(seed: int, pause_s: tuple[float, float] = PAUSE_S) -> Iterator[KillerAction]:
    """Yield the actions of a seed, without end.

    Args:
        pause_s: see `PAUSE_S`.
    """
    for number in count(1):
        dice = random.Random(f"{seed} fault {number}")  # noqa: S311 - a seed is the point
        yield KillerAction(
            dice.choices(list(SHARES), list(SHARES.values()))[0], dice.uniform(*pause_s), dice
        )


@dataclass(slots=True)
class Killer:
    """Strikes at the processes of a fleet. Call `advance` repeatedly. `strikes` has its actions."""

    fleet: Fleet
    order: Iterator[KillerAction]
    frozen_at: str
    """Failpoint at which a worker freezes, while it runs a handoff."""
    strikes: list[Strike] = field(default_factory=list)
    not_happened: list[str] = field(default_factory=list)
    """Armed points that no process reached."""
    _next_at: float = 0.0
    _stops: Stops = field(init=False)

    def __post_init__(self) -> None:
        self._stops = Stops(self.strikes)

    @property
    def kills(self) -> int:
        """Number of processes that were killed, including Redis."""
        return sum(strike.fault.is_kill for strike in self.strikes)

    def advance(self) -> None:
        """Do the next action, if its time has come and enough processes run."""
        self._stops.wake(only_due=True)
        self._record_reached_points()
        now = time.time()
        if now < self._next_at or not self._enough_processes_run():
            return
        action = next(self.order)
        self._do(action.fault, action.dice)
        self._next_at = now + action.pause_s

    def undo_faults(self) -> None:
        """End: continue all stopped processes, and disarm all points."""
        self._stops.wake()
        for kind, fault in ARMED.items():
            for point_file in self.fleet.get_points(kind).glob("*"):
                if "@" not in point_file.name:
                    self._disarm(fault, point_file, kind)
        self._record_reached_points()

    def _disarm(self, fault: Fault, point_file: Path, kind: str) -> None:
        with suppress(FileNotFoundError):  # a process has just reached the point
            point_file.unlink()
            self.not_happened.append(f"{fault} at {point_file.name} of a {kind}")

    def kill(self, name: str) -> bool:
        """Kill this process now. Return False if it has ended."""
        (fault,) = [fault for fault, kind in KILLED.items() if name.startswith(kind)]
        return self._send_signal(fault, name, signal.SIGKILL)

    def kill_all(self, kind: str) -> None:
        """Kill every process of a kind now."""
        for name in sorted(self.fleet.list_processes()):
            if name.startswith(kind):
                self.kill(name)

    def _enough_processes_run(self) -> bool:
        """Return whether enough processes run to continue the jobs: half of the workers, one
        supervisor and Redis.
        """
        workers = self.fleet.find_ready(WORKER).keys() - self._stops.targets
        supervisors = self.fleet.find_ready(SUPERVISOR).keys() - self._stops.targets
        max_workers = self.fleet.size.workers
        is_enough = len(workers) >= max(1, max_workers // 2) and len(supervisors) >= 1
        return is_enough and self.fleet.is_ready(REDIS)

    def _do(self, fault: Fault, dice: random.Random) -> None:
        match fault:
            case Fault.KILL_CONSOLE if self.fleet.ports and dice.random() < AT_A_POINT:
                arm(self.fleet.get_points(CONSOLE), dice.choice(CONSOLE_POINTS), "kill")
            case Fault.KILL_WORKER | Fault.KILL_SUPERVISOR | Fault.KILL_CONSOLE:
                self._send_signal(fault, self._choose_process(dice, KILLED[fault]), signal.SIGKILL)
            case Fault.KILL_REDIS:
                if self.fleet.send_signal(REDIS, signal.SIGKILL):
                    self._record_strike(fault, EVERYBODY)
            case Fault.END:
                target = self._choose_process(dice, WORKER, SUPERVISOR, CONSOLE)
                self._send_signal(fault, target, signal.SIGTERM)
            case Fault.STOP:
                name = self._choose_process(dice, WORKER, SUPERVISOR)
                pid = self.fleet.list_processes().get(name)
                lasts_s = self.fleet.size.lease_s * dice.uniform(1.2, 2.5)
                if pid is not None and self.fleet.send_signal(name, signal.SIGSTOP):
                    self._stops.add(pid, Strike(fault, name, time.time(), lasts_s=lasts_s))
            case Fault.FREEZE:
                order = f"freeze {self.fleet.size.lease_s * FREEZE_LEASES}"
                arm(self.fleet.get_points(WORKER), self.frozen_at, order)
            case Fault.CUT:
                self._with_redis(fault, lambda client: cut_connections(client, dice))
            case Fault.TWICE:
                self._with_redis(fault, lambda client: deliver_twice(client, dice))
            case Fault.DROP:
                raise AssertionError("an answer is lost at a failpoint")

    def _choose_process(self, dice: random.Random, *kinds: str) -> str:
        """Return the name of a running process of these kinds that is not stopped, or ''."""
        names: list[str] = []
        for name in sorted(self.fleet.list_processes()):
            if name.startswith(kinds) and name not in self._stops.targets:
                names.append(name)
        if names:
            return dice.choice(names)
        return ""

    def _send_signal(self, fault: Fault, name: str, number: signal.Signals) -> bool:
        """Send a signal, and record the strike. Return False if the process has ended."""
        was_sent = self.fleet.send_signal(name, number)
        if was_sent:
            self._record_strike(fault, name)
        return was_sent

    def _record_strike(self, fault: Fault, target: str) -> None:
        self.strikes.append(Strike(fault, target, time.time()))

    def _record_reached_points(self) -> None:
        """Record each process that has reached an armed point."""
        for kind, fault in ARMED.items():
            for mark in self.fleet.get_points(kind).glob("*@*"):
                point, _, pid = mark.name.partition("@")
                name = self.fleet.get_name(int(pid))
                self.strikes.append(Strike(fault, name, mark.stat().st_ctime, point))
                mark.unlink()

    def _with_redis(self, fault: Fault, do: Callable[[Any], None]) -> None:
        with suppress(StoreError), translate_errors():
            do(self.fleet.connection.redis)
            self._record_strike(fault, EVERYBODY)


def cut_connections(client: Any, dice: random.Random) -> None:
    """Close each connection to Redis with a probability of one half."""
    for connection in client.client_list():
        if dice.random() < 0.5:
            client.client_kill_filter(_id=connection["id"])


def deliver_twice(client: Any, dice: random.Random) -> None:
    """Copy up to three messages of each queue, and about half of the unacknowledged messages."""
    for queue in QUEUES:
        for message in client.lrange(queue, 0, 2):
            client.rpush(queue, without_fair_order(json.loads(message)))
    for entry in client.hvals(UNACKED):
        if dice.random() < 0.5:
            message, _, queue = json.loads(entry)
            client.rpush(queue, without_fair_order(message))
