"""Plain Celery in a chaos run: the chords of `tasks.py`, in processes of the same names on the
same queues.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError

from benchmarks.celery_control import tasks as control
from handoff_queue.chaos.expected_handoffs import OK
from handoff_queue.chaos.expected_outcomes import StoredJob
from handoff_queue.chaos.fleet import SUPERVISOR, WORKER, Fleet, Member, Size
from handoff_queue.chaos.job_generator import ONLY_CHORDS
from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.leaks import UNACKED
from handoff_queue.chaos.planned_jobs import SPECIALISTS, CallKey, PlannedJob
from handoff_queue.chaos.system import OVERRUNS, Kind, WithoutApi
from handoff_queue.shared.observability.failpoints import AFTER, BEFORE
from handoff_queue.shared.store.redis.connection import translate_errors
from handoff_queue.shared.types.errors import ModelError, StoreUnavailable
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE

ROOT = Path(__file__).parents[2]
"""Root of the repository. `PYTHONPATH` must name it in the process that runs the control: the
fork server reads that variable only once.
"""
STUCK_AFTER_S = 16.0
"""Seconds without a queued or unacknowledged message of a job. A frozen process may hold a
message in its socket for fifteen.
"""
PASSED = {
    (f"publish.{SUPERVISOR_QUEUE}", WORKER),
    ("ack", WORKER),
    ("ack", SUPERVISOR),
    ("chord.part", WORKER),
}
"""Failpoints that plain Celery has, too, each with the kind of its process. In addition it has
`publish.QUEUE` for `publish.part`, because its messages name no job.
"""
ABSENT = {
    OVERRUNS: "a chord has no budget: jobs that are tight here are without one there",
    "replies that are seen in the store": (
        "what a task has paid for is stored when it ends, not before"
    ),
    "a frozen process that ends itself": "it goes on when it can",
}


@dataclass(slots=True)
class Plain(WithoutApi):
    """See `System`."""

    fleet: Fleet
    app: Celery
    frozen_at: str = "chord.part.before"
    counted_at: str = "chord.count.after"
    stuck_after_s: float = STUCK_AFTER_S
    _submitted: set[str] = field(default_factory=set)
    _moved_at: dict[str, float] = field(default_factory=dict)
    """Time at which a message of each job was last seen in Redis, by the job's name. Seconds
    of a monotonic clock.
    """

    @property
    def absent(self) -> Mapping[str, str]:
        return ABSENT

    def adapt_job(self, job: PlannedJob) -> PlannedJob:
        if job.is_tight:
            return replace(job, shape=Shape.PARALLEL)
        return job

    def act_as_users(self, _jobs: Collection[PlannedJob], _call_keys: Collection[CallKey]) -> None:
        """Do nothing: plain Celery asks no person."""

    def submit(self, job: PlannedJob) -> None:
        if job.name in self._submitted:
            return
        with _translate_errors():
            self.app.send_task(
                control.PLAN,
                args=(job.name,),
                queue=SUBMISSIONS_QUEUE,
                retry=False,
                ignore_result=True,
            )
        self._submitted.add(job.name)
        self._moved_at[job.name] = time.monotonic()

    def find_ended_jobs(self, names: Collection[str]) -> set[str]:
        return {name for name in names if self._read_end_times(name)[""]}

    def find_stuck(self, names: Collection[str]) -> set[str]:
        client, now = self.fleet.connection.redis, time.monotonic()
        with translate_errors():
            messages: list[bytes] = []
            for key in client.scan_iter(_type="list"):
                if not key.decode().startswith(control.ENDS):
                    messages += client.lrange(key, 0, -1)
            messages += client.hvals(UNACKED)
        all_arguments = "\n".join(map(_get_arguments, messages))
        for name in names:
            if f"'{name}'" in all_arguments:
                self._moved_at[name] = now
        return {name for name in names if now - self._moved_at[name] > self.stuck_after_s}

    def find_stored_calls(
        self, _names: Collection[str], _call_keys: Collection[CallKey]
    ) -> set[CallKey]:
        return set()

    def find_holders(
        self, _jobs: Collection[PlannedJob]
    ) -> Mapping[tuple[str, str], tuple[int, int]]:
        return {}

    def read_job_record(self, name: str) -> StoredJob:
        end_times = self._read_end_times(name)
        ended_at = end_times.pop("", ())
        status = "ok" if ended_at else "running"
        return StoredJob(status, ended_at, end_times, dict.fromkeys(end_times, OK))

    def get_point_name(self, point: str, kind: str, to: str = SPECIALISTS[0]) -> str | None:
        name, _, moment = point.rpartition(".")
        if (name, kind) == ("publish.part", SUPERVISOR):
            return f"publish.{to}.{BEFORE if moment == BEFORE else AFTER}"
        if (name, kind) in PASSED:
            return point
        return None

    def close(self) -> None:
        self.app.close()

    def _read_end_times(self, name: str) -> defaultdict[str, tuple[float, ...]]:
        """Return the times at which each handoff of a job finished, and at which the job
        ended, with the key ''. Unix seconds.
        """
        with translate_errors():
            entries = self.fleet.connection.redis.lrange(control.build_key_of_ends(name), 0, -1)
        times = defaultdict[str, tuple[float, ...]](tuple)
        for handoff_id, at in map(json.loads, entries):
            times[handoff_id] = (*times[handoff_id], at)
        return times


def _get_arguments(message: bytes) -> str:
    """Return the arguments that Celery shows for a queued or unacknowledged message."""
    value: Any = json.loads(message)
    headers = (value[0] if isinstance(value, list) else value)["headers"]
    return str(headers.get("argsrepr", ""))


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except OperationalError as error:
        raise StoreUnavailable("Redis cannot be reached") from error


def list_members(size: Size) -> list[Member]:
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
                    "benchmarks.celery_control.app",
                    ("-Q", ",".join(queues), *pool),
                )
            )
    return members


def _make_project(fleet: Fleet) -> Plain:
    return Plain(fleet, control.make_control_app(fleet.url, _get_no_model))


def _get_no_model() -> Any:
    raise ModelError("a process that only submits jobs has no model")


PLAIN = Kind(list_members, _make_project, ONLY_CHORDS)
