"""Plain Celery under the same run: the chords of `chaos.celery_control`, in processes of the
same names, on the same queues.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError

from handoff_queue.chaos import celery_control as control
from handoff_queue.chaos.expected_handoffs import OK
from handoff_queue.chaos.expected_outcomes import Story
from handoff_queue.chaos.fleet import SUPERVISOR, WORKER, Fleet, Member, Size
from handoff_queue.chaos.job_generator import ONLY_CHORDS
from handoff_queue.chaos.leaks import UNACKED
from handoff_queue.chaos.plan import SPECIALISTS, CallKey, PlannedJob
from handoff_queue.chaos.shapes import Shape
from handoff_queue.chaos.system import OVERRUNS, Kind
from handoff_queue.shared.observability.failpoints import AFTER, BEFORE
from handoff_queue.shared.store.redis.connection import in_our_words
from handoff_queue.shared.types.errors import ModelError, StoreUnavailable
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE

STUCK_AFTER_S = 16.0
"""Seconds without a queued or unacknowledged message of a job. A frozen process may hold a message
in its socket for fifteen.
"""
PASSED = {
    (f"publish.{SUPERVISOR_QUEUE}", WORKER),
    ("ack", WORKER),
    ("ack", SUPERVISOR),
    ("chord.part", WORKER),
}
"""Celery's counterparts of our failpoints. The messages of a chord leave one by one, each to its
queue.
"""
ABSENT = {
    OVERRUNS: "a chord has no budget: jobs that are tight here are without one there",
    "replies that are seen in the store": "what a task has paid for is stored when it ends, not before",
    "a frozen process that ends itself": "it goes on when it can",
}


@dataclass(slots=True)
class Plain:
    """See `System`."""

    fleet: Fleet
    app: Celery
    frozen_at: str = "chord.part.before"
    counted_at: str = "chord.count.after"
    stuck_after_s: float = STUCK_AFTER_S
    _submitted: set[str] = field(default_factory=set)
    _moved_at: dict[str, float] = field(default_factory=dict)
    """Time of the last message of each job, by its name; monotonic."""

    @property
    def absent(self) -> Mapping[str, str]:
        return ABSENT

    def planned(self, job: PlannedJob) -> PlannedJob:
        if job.is_tight:
            return replace(job, shape=Shape.PARALLEL)
        return job

    def attend(self, _jobs: Collection[PlannedJob], _called: Collection[CallKey]) -> None:
        """Do nothing: plain Celery asks no person."""

    def submit(self, job: PlannedJob) -> None:
        if job.name in self._submitted:
            return
        with _in_our_words():
            self.app.send_task(
                control.PLAN,
                args=(job.name,),
                queue=SUBMISSIONS_QUEUE,
                retry=False,
                ignore_result=True,
            )
        self._submitted.add(job.name)
        self._moved_at[job.name] = time.monotonic()

    def ended(self, names: Collection[str]) -> set[str]:
        items: set[str] = set()
        for name in names:
            if any(what == "" for what, _ in self._notes(name)):
                items.add(name)
        return items

    def stuck(self, names: Collection[str]) -> set[str]:
        client, now = self.fleet.connection.redis, time.monotonic()
        with in_our_words():
            queues: list[Any] = []
            for key in client.scan_iter(_type="list"):
                queues.append(key.decode())
            messages = [
                message
                for queue in queues
                if not queue.startswith(control.NOTES)
                for message in client.lrange(queue, 0, -1)
            ]
            shown = [_arguments(message) for message in [*messages, *client.hvals(UNACKED)]]
        self._moved_at |= {
            name: now for name in names if any(f"'{name}'" in arguments for arguments in shown)
        }
        return {name for name in names if now - self._moved_at[name] > self.stuck_after_s}

    def stored(self, _names: Collection[str], _called: Collection[CallKey]) -> set[CallKey]:
        return set()

    def holders(self, _jobs: Collection[PlannedJob]) -> Mapping[tuple[str, str], tuple[int, int]]:
        return {}

    def story(self, name: str) -> Story:
        notes = self._notes(name)
        ended_at = tuple(at for what, at in notes if what == "")
        finished = {
            what: tuple(at for other, at in notes if other == what) for what, _ in notes if what
        }
        return Story(
            "ok" if ended_at else "running", ended_at, finished, dict.fromkeys(finished, OK)
        )

    def point(self, point: str, kind: str, to: str = SPECIALISTS[0]) -> str | None:
        what, _, when = point.rpartition(".")
        if (what, kind) == ("publish.group", SUPERVISOR):
            return f"publish.{to}.{BEFORE if when == BEFORE else AFTER}"
        if (what, kind) in PASSED:
            return point
        return None

    def close(self) -> None:
        self.app.close()

    def _notes(self, name: str) -> list[tuple[str, float]]:
        with in_our_words():
            notes: list[tuple[str, float]] = []
            for what, at in map(
                json.loads, self.fleet.connection.redis.lrange(control.notes_of(name), 0, -1)
            ):
                notes.append((what, at))
            return notes


def _arguments(message: bytes) -> str:
    """Return the arguments that Celery shows for a queued or unacknowledged message."""
    value: Any = json.loads(message)
    headers = (value[0] if isinstance(value, list) else value)["headers"]
    return str(headers.get("argsrepr", ""))


@contextmanager
def _in_our_words() -> Iterator[None]:
    try:
        yield
    except OperationalError as error:
        raise StoreUnavailable("Redis cannot be reached") from error


def members_of(size: Size) -> list[Member]:
    """Return the members: planners, and workers that each serve every specialist."""
    pool = ("-P", "threads", "-c", str(size.slots))
    kinds = (
        (SUPERVISOR, (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE), size.supervisors),
        (WORKER, SPECIALISTS, size.workers),
    )
    members: list[Member] = []
    for kind, queues, count in kinds:
        for number in range(1, count + 1):
            members.append(
                Member(
                    f"{kind}{number}",
                    kind,
                    "handoff_queue.chaos.app",
                    ("-Q", ",".join(queues), *pool),
                )
            )
    return members


def _on(fleet: Fleet) -> Plain:
    return Plain(fleet, control.make_control_app(fleet.url, _no_model))


def _no_model() -> Any:
    raise ModelError("who only submits has none")


PLAIN = Kind(members_of, _on, ONLY_CHORDS)
