"""The five holes of plain chords on Redis, each by its own failpoint: in plain Celery a chord is stuck for ever, here a job ends."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from chaos import control
from chaos.app import DEDUPLICATES
from chaos.fleet import SUPERVISOR, Member, Size
from chaos.leaks import UNACKED
from chaos.plan import PlannedJob, PlannedStep, Shape
from chaos.stage import LOOK_EVERY_S, Stage, Tell, stage
from shared.ledger.connection import in_our_words
from shared.wire.errors import LedgerError
from shared.wire.events import JobStatus

STUCK_AFTER_S = 4.0
"""Nothing is queued, nothing is unacknowledged, nothing has happened: for longer than the broker takes to deliver again."""
GIVEN_UP_AFTER_S = 60.0
PUBLISHED = "publish.group.after"
"""Where it is seen that a group was published: who comes by freezes for no time at all."""


class Hole(StrEnum):
    """As docs/reliability.md numbers them."""

    H1 = "H1: a pool's child is killed after it has stored its result, before the part is counted"
    H2 = "H2: the same to a whole worker that drops tasks which have succeeded before"
    H3 = "H3: a pool's child is killed when all parts are counted, before the body is published"
    H4 = "H4: one answer of Redis is lost, to the count of the last part"
    H5 = "H5: a message is popped for a worker that is stopped, and then killed"

    @property
    def key(self) -> str:
        return self.name.lower()

    @property
    def orders(self) -> tuple[tuple[str, str], ...]:
        """What is armed for the worker: point, blow. A body goes to the supervisor's queue here, to its own there."""
        match self:
            case Hole.H1 | Hole.H2:
                return (("chord.part.before", "kill"),)
            case Hole.H3:
                return (("publish.supervisor.before", "kill"), (f"publish.{control.BODIES}.before", "kill"))
            case Hole.H4:
                return (("chord.count.after", "drop"),)
            case Hole.H5:
                return ()

    @property
    def pool(self) -> str:
        return "prefork" if self in (Hole.H1, Hole.H3) else "threads"


class System(Protocol):
    """A system with chords, and one worker for each hole."""

    on: Stage

    def begin(self, hole: Hole, name: str) -> None:
        """Start a chord whose one part goes to the hole's worker."""

    def begin_stopped(self, hole: Hole, name: str) -> None:
        """The same, with the worker stopped right before that part is published."""

    def is_published(self) -> bool:
        """Whether the part of the chord that was begun so has been."""

    def is_done(self, name: str) -> bool:
        """Whether its body has run."""

    def queue(self, hole: Hole) -> str:
        """Of the hole's worker."""


SPECIALISTS = {Hole.H1: "generalist", Hole.H2: "analyst", Hole.H3: "writer", Hole.H4: "researcher", Hole.H5: "coder"}


@dataclass(slots=True)
class Ours:
    """A job with one step for each hole."""

    on: Stage

    def begin(self, hole: Hole, name: str) -> None:
        self.on.submit(PlannedJob(name, Shape.PARALLEL, (PlannedStep("a", SPECIALISTS[hole]),), seed=1))

    def begin_stopped(self, hole: Hole, name: str) -> None:
        points, worker = self.on.fleet.points(SUPERVISOR), self.on.fleet.look()[hole.key]
        (points / "publish.group.before").write_text(f"stop {worker}")
        (points / PUBLISHED).write_text("freeze 0")
        self.begin(hole, name)

    def is_published(self) -> bool:
        return any(self.on.fleet.points(SUPERVISOR).glob(f"{PUBLISHED}@*"))

    def is_done(self, name: str) -> bool:
        standings = self.on.fleet.jobs.ledger.jobs.standings([self.on.ids[name]])
        return any(JobStatus(one.status) is JobStatus.OK for one in standings)

    def queue(self, hole: Hole) -> str:
        return SPECIALISTS[hole]


class Plain:
    """A chord with one part for each hole."""

    def __init__(self, on: Stage) -> None:
        self.on = on
        self._app = control.make_control_app(on.fleet.url)
        backend: Any = self._app.backend  # it asks for states; what subscribes to results needs its Redis when it is collected
        backend.on_task_call = backend.remove_pending_result = lambda *_, **__: None

    def begin(self, hole: Hole, name: str) -> None:
        control.begin(self._app, name, hole.key)

    def begin_stopped(self, hole: Hole, name: str) -> None:
        pid = self.on.fleet.look()[hole.key]
        os.kill(pid, signal.SIGSTOP)
        _wait_until(lambda: _is_stopped(pid))
        self.begin(hole, name)

    def is_published(self) -> bool:
        return True  # or `begin_stopped` would not have returned

    def is_done(self, name: str) -> bool:
        return control.is_done(self._app, name)

    def queue(self, hole: Hole) -> str:
        return hole.key


@contextmanager
def ours() -> Iterator[System]:
    with stage(Size(), [Member("supervisor", SUPERVISOR, "supervisor.app", ("-c", "8")), *_workers("workers.app", SPECIALISTS)]) as on:
        yield Ours(on)


@contextmanager
def plain() -> Iterator[System]:
    bodies = Member("bodies", "bodies", "chaos.app", ("-Q", control.BODIES, "-P", "threads", "-c", "2"))
    with stage(Size(), [bodies, *_workers("chaos.app", {hole: hole.key for hole in Hole})]) as on:
        yield Plain(on)


def _workers(app: str, queues: dict[Hole, str]) -> list[Member]:
    own = {Hole.H2: {DEDUPLICATES: "1"}}
    return [Member(hole.key, hole.key, app, ("-Q", queue, "-P", hole.pool, "-c", "1"), own.get(hole, {})) for hole, queue in queues.items()]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the two chords of one hole."""

    calm: bool
    """The one without a fault came to its end. If not, the other says nothing."""
    was_hit: bool
    """The fault has happened."""
    ended: bool
    """The one with it came to its end."""


def try_holes(system: System, tell: Tell) -> dict[Hole, Outcome]:
    """Each hole's chord twice: without the fault, then with it. H5 first, and alone: the others publish, too."""
    for hole in Hole:
        system.begin(hole, _calm(hole))
    calm = _ends(system, {hole: _calm(hole) for hole in Hole})
    was_lost = _lose_a_message(system)
    for hole in Hole:
        for point, blow in hole.orders:
            (system.on.fleet.points(hole.key) / point).write_text(blow)
        if hole is not Hole.H5:
            system.begin(hole, hole.key)
    ended = _ends(system, {hole: hole.key for hole in Hole})
    outcomes = {hole: Outcome(calm[hole], was_lost if hole is Hole.H5 else _was_hit(system, hole), ended[hole]) for hole in Hole}
    for hole, outcome in outcomes.items():
        tell(f"{hole}: {'goes on' if outcome.ended else 'stuck'}")
    return outcomes


def _calm(hole: Hole) -> str:
    return f"{hole.key}-calm"


def _was_hit(system: System, hole: Hole) -> bool:
    return any(system.on.fleet.points(hole.key).glob("*@*"))


def _ends(system: System, names: dict[Hole, str]) -> dict[Hole, bool]:
    """Whether these came to their ends. In plain Celery a chord of which no message is left anywhere is stuck."""
    found: dict[Hole, bool] = {}
    quiet_since = dict.fromkeys(Hole, time.monotonic())
    until = time.monotonic() + GIVEN_UP_AFTER_S
    while len(found) < len(names):
        for hole in names.keys() - found.keys():
            with suppress(LedgerError), in_our_words():
                if system.is_done(names[hole]):
                    found[hole] = True
                elif not _is_quiet(system, hole):
                    quiet_since[hole] = time.monotonic()
            is_stuck = isinstance(system, Plain) and time.monotonic() - quiet_since[hole] > STUCK_AFTER_S
            if hole not in found and (is_stuck or time.monotonic() > until):
                found[hole] = False
        time.sleep(LOOK_EVERY_S)
    return found


def _lose_a_message(system: System) -> bool:
    """Stop the worker, have a message published that Redis writes into its socket, and kill it.

    Returns whether it was so: when the worker was killed it was stopped, the message was published, and it was nowhere in Redis.
    """
    pid = system.on.fleet.look()[Hole.H5.key]
    system.begin_stopped(Hole.H5, Hole.H5.key)
    _wait_until(lambda: _is_stopped(pid) and system.is_published())
    was_lost = _is_stopped(pid) and system.is_published() and _is_quiet(system, Hole.H5)
    os.kill(pid, signal.SIGKILL)
    return was_lost


def _wait_until(is_so: Callable[[], bool]) -> None:
    """At most as long as anything is waited for here."""
    until = time.monotonic() + GIVEN_UP_AFTER_S
    while not is_so() and time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)


def _is_stopped(pid: int) -> bool:
    with suppress(OSError), Path(f"/proc/{pid}/stat").open() as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"
    return False


def _is_quiet(system: System, hole: Hole) -> bool:
    """No message of this hole is queued, or delivered and not acknowledged, and no body is."""
    client, queue = system.on.fleet.jobs.ledger.connection.redis, system.queue(hole)
    if client.llen(queue) or client.llen(control.BODIES):
        return False
    return all(json.loads(entry)[2] not in (queue, control.BODIES) for entry in client.hvals(UNACKED))
