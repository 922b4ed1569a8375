"""Schedules, which start a job at the times of a cron expression."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt, StringConstraints

from handoff_queue.shared.types.audit import Actor
from handoff_queue.shared.types.ids import JobIdField, NameField
from handoff_queue.shared.types.job_events import JobSubmitted
from handoff_queue.shared.types.message import Message

MAX_WAITING = 100
"""Most slots of one schedule that wait. Further slots stay due until there is room."""
MAX_CRON_CHARS = 200
"""Most characters of a cron expression."""
MAX_ZONE_CHARS = 64
"""Most characters of the name of a time zone."""


class Overlap(StrEnum):
    """The action at a slot if a job of the schedule has not ended."""

    SKIP = "skip"
    """Skip the slot."""
    QUEUE = "queue"
    """Start the job of the slot when the earlier job has ended."""
    CANCEL = "cancel"
    """Cancel the earlier job, and start the job of the slot when that job has ended."""


class Missed(StrEnum):
    """The slots to make up for after a time in which no supervisor ran."""

    NONE = "none"
    """No slot."""
    LAST = "last"
    """The last missed slot."""
    ALL = "all"
    """Every missed slot, one job after the other. It needs the overlap `queue`."""


class ScheduledJob(Message):
    """The job that a schedule starts, as `add` prepared it."""

    event: JobSubmitted
    payloads: tuple[str, ...]
    """Payloads that the event refers to, with the text of the request."""
    documents: dict[str, str]
    """Texts of the documents by digest."""


class SlotStart(Message):
    """The decision to start the job of a slot. A process that ends before the job is stored
    leaves the decision, and the next supervisor stores the same job.
    """

    slot: NonNegativeInt
    """Unix time in seconds."""
    month: str
    """Month of the decision in the zone of the schedule, such as `2026-11`."""
    after: JobIdField | None = None
    """The ended job that this job continues."""


class Schedule(Message):
    """A schedule and its state. Times are Unix seconds by Redis's clock."""

    id: str
    """Random. A schedule that is added again under its old name starts new jobs."""
    name: NameField
    tenant: str
    title: str
    """The first words of the request."""
    cron: Annotated[str, StringConstraints(min_length=1, max_length=MAX_CRON_CHARS)]
    timezone: Annotated[str, StringConstraints(min_length=1, max_length=MAX_ZONE_CHARS)] = "UTC"
    overlap: Overlap = Overlap.SKIP
    missed: Missed = Missed.LAST
    max_microusd_per_month: PositiveInt | None = None
    follows_last: bool = False
    """True: each job continues the last job of the schedule."""
    actor: Actor | None = None
    """The user who added the schedule. The jobs name the user, too."""
    created_at: float
    next_slot: NonNegativeInt
    """The first slot that no supervisor has taken."""
    is_paused: bool = False
    waiting: Annotated[tuple[NonNegativeInt, ...], Field(max_length=MAX_WAITING)] = ()
    """Slots that a supervisor has taken and not yet decided about, the oldest first."""
    starting: SlotStart | None = None
    running: tuple[JobIdField, ...] = ()
    """Jobs of the schedule that had not ended at the last decision."""
    last_slot: NonNegativeInt | None = None
    last_job: JobIdField | None = None
    started: NonNegativeInt = 0
    """Number of started jobs."""
    skipped: NonNegativeInt = 0
    """Number of slots that a supervisor skipped one by one. Missed slots do not count."""
    note: str = ""
    """Reason why the newest skipped or missed slot has no job."""

    @property
    def due_at(self) -> float | None:
        """Return the time at which a supervisor must check the schedule; None while it is
        paused.
        """
        if self.starting is not None:
            return 0
        if self.is_paused:
            return None
        return 0 if self.waiting else self.next_slot


class ScheduleStatus(Message):
    """A schedule for users: its definition, its state and its spending of this month."""

    name: str
    tenant: str
    title: str
    cron: str
    timezone: str
    overlap: Overlap
    missed: Missed
    max_microusd_per_month: int | None
    spent_microusd: int
    """Money that jobs of this calendar month have spent, in micro-dollars."""
    follows_last: bool
    is_paused: bool
    created_at: float
    next_slot: int | None
    """Unix time of the next slot. None: the schedule is paused."""
    waiting: tuple[int, ...]
    """Slots whose jobs have not started yet."""
    running: tuple[str, ...]
    """Jobs of the schedule that have not ended."""
    last_slot: int | None
    last_job: str | None
    started: int
    skipped: int
    note: str
