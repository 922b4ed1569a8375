"""All failpoint cases: windows of microseconds that random kills do not hit. Pure, except for
the folder of the scripts.

A case is a point in a kind of process, and an action. A run fails if no process reaches a
point, because such a point proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files

from handoff_queue.chaos.fleet import SUPERVISOR, WORKER
from handoff_queue.shared.observability.failpoints import AFTER, BEFORE, MIDDLE
from handoff_queue.shared.types.names import ROLES_QUEUE, SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE

CLIENT = "client"
"""A client's process that submits or cancels a job: `handoff submit` and `handoff cancel`."""


class Blow(StrEnum):
    """Action at a point."""

    KILL = "kill"
    DROP = "drop"
    REDIS = "kill Redis"
    STOP = "stop"
    """Stop the process until its lease has expired, and then let it continue."""


class Need(StrEnum):
    """Action that makes a process reach the point, in addition to running jobs."""

    NOTHING = ""
    END = "tell processes to end"
    CROWD = "more jobs at once than role slots"
    REFUSED = "a provider that turns away many calls"
    LOSE = "lose the first wake-up of new jobs"
    SUBMIT = "handoff submit"
    CANCEL = "handoff cancel"
    UNPAUSE = "handoff unpause"
    UNREAD = "a message of a version that nobody here knows"
    REQUEUE = "handoff dead requeue"
    STUMBLE = "an internal error where a job is carried on"

    @property
    def is_met_by_jobs(self) -> bool:
        """Return whether running jobs reach the point any number of times."""
        return self in (Need.NOTHING, Need.CROWD, Need.REFUSED)

    @property
    def is_met_often(self) -> bool:
        """Return whether processes reach the point often, so that a case may also kill Redis there."""
        return self.is_met_by_jobs or self in (Need.UNREAD, Need.STUMBLE)

    @property
    def is_a_command(self) -> bool:
        """Return whether a user's command reaches the point."""
        return self in (Need.SUBMIT, Need.CANCEL, Need.UNPAUSE, Need.REQUEUE)


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """A failpoint case."""

    kind: str
    point: str
    blow: Blow
    need: Need = Need.NOTHING

    def __str__(self) -> str:
        return f"{self.blow} at {self.point} of a {self.kind}"


SCRIPTS: dict[str, dict[str, Need]] = {
    "claim": {WORKER: Need.NOTHING, SUPERVISOR: Need.NOTHING},
    "turn": {WORKER: Need.NOTHING, SUPERVISOR: Need.NOTHING},
    "renew": {WORKER: Need.NOTHING, SUPERVISOR: Need.NOTHING},
    "finish": {WORKER: Need.NOTHING, SUPERVISOR: Need.NOTHING},
    "release": {WORKER: Need.END, SUPERVISOR: Need.END},
    "commit": {SUPERVISOR: Need.NOTHING, CLIENT: Need.SUBMIT},
    "set_due": {SUPERVISOR: Need.NOTHING},
    "evaluate": {SUPERVISOR: Need.NOTHING},
    "queue_role": {SUPERVISOR: Need.CROWD},
    "mark_sent": {SUPERVISOR: Need.CROWD},
    "sweep": {SUPERVISOR: Need.NOTHING},
    "append": {CLIENT: Need.CANCEL},
    "extend_ttl": {CLIENT: Need.SUBMIT},
    "report_limits": {WORKER: Need.NOTHING, SUPERVISOR: Need.NOTHING},
    "defer": {WORKER: Need.REFUSED, SUPERVISOR: Need.REFUSED},
    "unpause": {CLIENT: Need.UNPAUSE},
    "set_caps": {SUPERVISOR: Need.END},
    "keep_unread": {WORKER: Need.UNREAD, SUPERVISOR: Need.UNREAD},
    "requeue_letter": {CLIENT: Need.REQUEUE},
    "record_failure": {SUPERVISOR: Need.STUMBLE},
}
"""Scripts of the store by kind of process, with the needed action."""
UNTRIED = {
    "presence": "reads only",
    "running_handoffs": "reads only",
    "daily_budget": "reads only",
    "job_summary": "reads only",
    "find_jobs": "reads only",
    "list_jobs": "reads only",
    "drop_orphans": "it only drops messages of deleted jobs, and finds the rest again",
    "enqueue": "the points of the publisher are around it",
    "dequeue": "the points `take` are around it",
    "take": "the same",
    "purge": "an operator drops messages on purpose",
}
"""Scripts without failpoints, and why."""
PUBLISHES: dict[str, dict[str, Need]] = {
    "group": {SUPERVISOR: Need.NOTHING},
    SUPERVISOR_QUEUE: {WORKER: Need.NOTHING, SUPERVISOR: Need.NOTHING, CLIENT: Need.CANCEL},
    SUBMISSIONS_QUEUE: {SUPERVISOR: Need.LOSE, CLIENT: Need.SUBMIT},
    ROLES_QUEUE: {SUPERVISOR: Need.CROWD},
}
"""Published messages by kind of process: to a queue, or a group of handoffs to the
specialists' queues. A worker's wake-ups are the bodies of chords.
"""
OTHERS: dict[str, dict[str, Need]] = {
    "ack": {WORKER: Need.NOTHING, SUPERVISOR: Need.NOTHING},
    "requeue": {WORKER: Need.END},
    "take": {WORKER: Need.CROWD, SUPERVISOR: Need.CROWD},
    "chord.part": {WORKER: Need.NOTHING},
}


STOPPED_BEFORE = ("turn", "finish", "commit")
"""Scripts that the store must refuse after the lease has expired."""


def scripts() -> set[str]:
    """Return the names of the store's scripts, from the files of its folder."""
    names: set[str] = set()
    for path in (files("handoff_queue.shared.store") / "lua").iterdir():
        if path.name.endswith(".lua"):
            names.add(path.name.removesuffix(".lua"))
    return names


def cases() -> list[Case]:
    """Return all cases. Cases with rare needs come first, so that all other cases run next to them."""
    return sorted(
        _cases(),
        key=lambda case: (
            case.need.is_met_by_jobs,
            case.need,
            case.blow is Blow.REDIS,
            case.point,
            case.kind,
            case.blow,
        ),
    )


def _cases() -> Iterator[Case]:
    for script in STOPPED_BEFORE:
        for kind in (WORKER, SUPERVISOR):
            if kind in SCRIPTS[script]:
                yield Case(kind, f"script.{script}.{BEFORE}", Blow.STOP)
    for prefix, table in (("script.", SCRIPTS), ("publish.", PUBLISHES), ("", OTHERS)):
        for name, kinds in table.items():
            for kind, need in kinds.items():
                yield from _of(f"{prefix}{name}", kind, need)


def _of(name: str, kind: str, need: Need) -> Iterator[Case]:
    yield Case(kind, f"{name}.{BEFORE}", Blow.KILL, need)
    yield Case(kind, f"{name}.{AFTER}", Blow.KILL, need)
    if name == "publish.group":  # a lost answer is the same as a group that is published in part
        yield Case(kind, f"{name}.{MIDDLE}", Blow.KILL, need)
    elif name != "chord.part":  # several requests, so no single answer can be lost
        yield Case(kind, f"{name}.{AFTER}", Blow.DROP, need)
    if kind != CLIENT and need.is_met_often and name != "chord.part":
        yield Case(kind, f"{name}.{AFTER}", Blow.REDIS, need)
        if name.startswith("script."):
            yield Case(kind, f"{name}.{BEFORE}", Blow.REDIS, need)
