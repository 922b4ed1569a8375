"""Every failpoint, one after the other: the windows of microseconds that random kills do not
hit. Pure, but for where the scripts are.

A case is a point, on a kind of process, and what happens there. Its point has to be reached:
one that never fires proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files

from handoff_queue.chaos.fleet import SUPERVISOR, WORKER
from handoff_queue.shared.observability.failpoints import AFTER, BEFORE, MIDDLE
from handoff_queue.shared.store.redis.script import PARTS
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE, THINK_QUEUE

CLIENT = "client"
"""A process of whoever submits or cancels a job: `handoff submit` and `handoff cancel`."""


class Blow(StrEnum):
    """What happens at a point."""

    KILL = "kill"
    DROP = "drop"
    REDIS = "kill Redis"
    STOP = "stop"
    """Past its lease; then it goes on to say what it was about to say."""


class Need(StrEnum):
    """What has to be done, beside running jobs, for the point to be reached."""

    NOTHING = ""
    END = "tell processes to end"
    CROWD = "more jobs at once than supervisors can think about"
    REFUSED = "a provider that turns away many calls"
    LOSE = "lose the first wake-up of new jobs"
    SUBMIT = "handoff submit"
    CANCEL = "handoff cancel"
    RESUME = "handoff resume"
    UNREAD = "a message of a version that nobody here knows"
    RETRY = "handoff dead retry"
    STUMBLE = "a defect of ours where a job is carried on"

    @property
    def is_met_by_jobs(self) -> bool:
        """By running them, and as often as one likes."""
        return self in (Need.NOTHING, Need.CROWD, Need.REFUSED)

    @property
    def is_met_often(self) -> bool:
        """As long as it takes, so that Redis may be killed there, too."""
        return self.is_met_by_jobs or self in (Need.UNREAD, Need.STUMBLE)

    @property
    def is_a_command(self) -> bool:
        """That somebody types."""
        return self in (Need.SUBMIT, Need.CANCEL, Need.RESUME, Need.RETRY)


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """One failpoint to be tried."""

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
    "due": {SUPERVISOR: Need.NOTHING},
    "look": {SUPERVISOR: Need.NOTHING},
    "queue": {SUPERVISOR: Need.CROWD},
    "sent": {SUPERVISOR: Need.CROWD},
    "sweep": {SUPERVISOR: Need.NOTHING},
    "append": {CLIENT: Need.CANCEL},
    "keep": {CLIENT: Need.SUBMIT},
    "pace": {WORKER: Need.NOTHING, SUPERVISOR: Need.NOTHING},
    "park": {WORKER: Need.REFUSED, SUPERVISOR: Need.REFUSED},
    "resume": {CLIENT: Need.RESUME},
    "caps": {SUPERVISOR: Need.END},
    "unread": {WORKER: Need.UNREAD, SUPERVISOR: Need.UNREAD},
    "retry": {CLIENT: Need.RETRY},
    "stumble": {SUPERVISOR: Need.STUMBLE},
}
"""Who runs which script of the store, and what it takes."""
UNTRIED = {
    "presence": "reads only",
    "at_work": "reads only",
    "day": "reads only",
    "glance": "reads only",
    "find": "reads only",
    "list": "reads only",
    "orphans": "no job has what it drops; what is left is found again",
    "enqueue": "the points of what publishes are around it",
    "dequeue": "the points `take` are around it",
    "take": "the same",
    "purge": "a person's, who loses messages by it on purpose",
}
"""Scripts without failpoints, and why."""
PUBLISHES: dict[str, dict[str, Need]] = {
    "group": {SUPERVISOR: Need.NOTHING},
    SUPERVISOR_QUEUE: {WORKER: Need.NOTHING, SUPERVISOR: Need.NOTHING, CLIENT: Need.CANCEL},
    SUBMISSIONS_QUEUE: {SUPERVISOR: Need.LOSE, CLIENT: Need.SUBMIT},
    THINK_QUEUE: {SUPERVISOR: Need.CROWD},
}
"""Who publishes what: to a queue, or a group of handoffs to the specialists'. A worker's
wake-ups are the bodies of chords.
"""
OTHERS: dict[str, dict[str, Need]] = {
    "ack": {WORKER: Need.NOTHING, SUPERVISOR: Need.NOTHING},
    "requeue": {WORKER: Need.END},
    "take": {WORKER: Need.CROWD, SUPERVISOR: Need.CROWD},
    "chord.part": {WORKER: Need.NOTHING},
}


STOPPED_BEFORE = ("turn", "finish", "commit")
"""What must be refused when it is said too late."""


def scripts() -> set[str]:
    """The store's scripts, by what is in its folder."""
    names = {
        path.name.removesuffix(".lua")
        for path in (files("handoff_queue.shared.store") / "lua").iterdir()
        if path.name.endswith(".lua")
    }
    return names - set(PARTS)


def cases() -> list[Case]:
    """All of them. First those with needs that are met one by one, so that all the others are
    tried beside them.
    """
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
    if (
        name == "publish.group"
    ):  # sent as one, and never again by the client: there is no answer to lose that is not a torn group
        yield Case(kind, f"{name}.{MIDDLE}", Blow.KILL, need)
    elif name != "chord.part":  # more than one thing that is asked of the server
        yield Case(kind, f"{name}.{AFTER}", Blow.DROP, need)
    if kind != CLIENT and need.is_met_often and name != "chord.part":
        yield Case(kind, f"{name}.{AFTER}", Blow.REDIS, need)
        if name.startswith("script."):
            yield Case(kind, f"{name}.{BEFORE}", Blow.REDIS, need)
