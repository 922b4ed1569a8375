"""The announcements of workers and supervisors, and the activity of a running handoff."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints

from handoff_queue.shared.text.unicode_text import replace_unprintable
from handoff_queue.shared.types.limits import MAX_COUNT
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.specialist import SpecialistSpec

EQUAL_HANDOFF = "equal handoff "
"""Beginning of the activity of a handoff that waits for the run of an equal handoff.
`lua/parts/shared_runs.lua` writes it.
"""
WAITS_FOR = "waits for "
"""Beginning of the activity of a handoff that says itself why it is deferred: an approval, or a
batch. Otherwise the activity is the limit of the provider.
"""
_WAITING = re.compile(r"waiting (?:(?P<left_s>\d+) s: |for )(?P<resource>.+)", re.DOTALL)
MAX_MODELS = 8
"""Most models whose newest calls a process announces."""
MAX_ANNOUNCED_NAMES = 1_000
"""Most specialists and roles that a process announces."""
Line = Annotated[str, StringConstraints(max_length=1_000), AfterValidator(replace_unprintable)]
"""A line that a command may print. Other programs can write an announcement."""

AnnouncedCount = Annotated[int, Field(ge=0, le=MAX_COUNT)]
"""A number that a page or a metric shows. A worker that was taken over may announce any number, and
no float holds a number of 400 digits.
"""
Moment = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""Unix seconds."""


@dataclass(frozen=True, slots=True)
class HandoffWait:
    """Reason why a running handoff waits. It is stored as its activity, such as `waiting 12 s:
    rate limit`.
    """

    resource: str
    """The limit or the resource that the handoff waits for."""
    left_s: int | None = None
    """Seconds that are left; None: unknown."""

    def __str__(self) -> str:
        if self.left_s is None:
            return f"waiting for {self.resource}"
        return f"waiting {self.left_s} s: {self.resource}"


def parse_wait(doing: str) -> HandoffWait | None:
    """Return the reason in the activity of a handoff; None if it does not wait."""
    match = _WAITING.fullmatch(doing)
    if match is None:
        return None
    left_s = int(match["left_s"]) if match["left_s"] else None
    return HandoffWait(match["resource"], left_s)


def has_activity_changed(doing: str, before: str) -> bool:
    """Return whether the activity has changed. A countdown of seconds is not a change."""
    wait = parse_wait(doing)
    wait_before = parse_wait(before)
    if wait and wait_before:
        return wait.resource != wait_before.resource
    return doing != before


class ModelCalls(Message):
    """Outcomes of the newest calls of one process to one model."""

    model_config = ConfigDict(extra="ignore")

    model: Line
    failures: AnnouncedCount = 0
    """Failed calls since the last call that succeeded."""
    error: Line = ""
    """Reason of the newest failure, in the words of the model's server."""
    is_busy: bool = False
    """True if the newest failure was a rate limit or an overload, which passes."""
    failing_since: Moment | None = None
    failed_at: Moment | None = None
    succeeded_at: Moment | None = None

    @property
    def called_at(self) -> float:
        """Return the time of the newest call in Unix seconds; 0 if there was none."""
        return max(self.failed_at or 0.0, self.succeeded_at or 0.0)


class Node(Message):
    """A live worker or supervisor. Fields that this version does not know are ignored."""

    model_config = ConfigDict(extra="ignore")

    node: Line = ""
    """Name in Celery: `name@host`."""
    broker: Line = ""
    """URL of its Celery app's broker, without a password."""
    version: Line = ""
    """Version of this package that it runs."""
    slots: AnnouncedCount = 0
    """Handoffs that it runs at once."""
    model: Line = ""
    """The model behind it: `offline`, or the provider."""
    server: Line = ""
    """Address of the model's server, without user and password. Empty for the offline model,
    and for a provider whose SDK has the address.
    """
    models: dict[Line, Line] = Field(default_factory=dict, max_length=MAX_ANNOUNCED_NAMES)
    """Default model of each of its specialists or roles, by name."""
    calls: tuple[ModelCalls, ...] = Field(default=(), max_length=2 * MAX_MODELS)
    """A process of a later version may announce more than `MAX_MODELS`."""
    refused_queues: tuple[Line, ...] = Field(default=(), max_length=MAX_ANNOUNCED_NAMES)
    """Queues that it leaves out, because its Redis user may not use them."""


def count_role_slots(slots: int) -> int:
    """Return the slots of a supervisor that may run roles. The other slots are for decisions."""
    return max(1, slots // 2)


class Announcement(Node):
    """The announcement of one worker process."""

    worker: Line
    specialists: tuple[SpecialistSpec, ...]
    effects: tuple[str, ...] = ()
    """The worker's tools that are not safe to repeat."""
    not_served: dict[Line, Line] = Field(default_factory=dict, max_length=MAX_ANNOUNCED_NAMES)
    """Specialist that it cannot serve on its machine -> the reason."""
    lost_slots: AnnouncedCount = 0
    """Slots that take no more handoffs until the process starts again
    (`shared.broker.worker_slots`).
    """
