"""A user who sends messages to the agents of running jobs through the HTTP API.

The jobs run one after the other. Each has one agent and several slow turns, so that most
messages come while a call is in flight.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from handoff_queue.chaos.api_user import ApiUser, MessageRecord
from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.model_server import UncountedCall
from handoff_queue.chaos.planned_jobs import SPECIALISTS, PlannedJob, PlannedStep
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import StoreError
from handoff_queue.shared.types.events import (
    HandoffFinished,
    RecordedEvent,
    UserMessageSent,
    UserMessageTaken,
)
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.request import Request

MAX_JOBS = 200
"""Jobs that a run may start, at most."""
USUAL_JOBS = 6
"""Jobs that a run with random kills starts, at most."""
TURNS = 5
TAKES_S = (0.3, 0.6)
"""Durations of the calls in seconds."""
MESSAGES = 3
"""Messages to a job while it runs. One more comes after its end, and must be refused."""
PAUSES_S = (0.2, 0.5, 0.9)
"""Seconds between two messages."""


@dataclass(slots=True)
class MessagedJob:
    """A job that gets messages."""

    planned: PlannedJob
    is_sent: bool = False
    """True if the user has submitted the job at least once. It may run without an answer."""
    job_id: JobId | None = None
    next_at: float = 0.0
    """Time of the next message. Seconds of a monotonic clock."""
    answers: list[str] = field(default_factory=list)
    """Answer to each message so far: the id of the message, or '' if it was refused."""

    def build_text(self, number: int) -> str:
        """Return the text of a message."""
        return f"Remark {number} on {self.planned.name}."


@dataclass(slots=True)
class MessageUser:
    """Starts jobs and sends messages to them. Call `advance` repeatedly."""

    api: ApiUser
    store: Store
    seed: int
    job_count: int = USUAL_JOBS
    """Number of jobs to start."""
    _jobs: list[MessagedJob] = field(default_factory=list)
    _finished_jobs: int = 0

    def __post_init__(self) -> None:
        for number in range(MAX_JOBS):
            name = f"{self.seed}-told-{number}"
            dice = random.Random(name)  # noqa: S311 - a seed is the point
            step = PlannedStep("answer", dice.choice(SPECIALISTS), turns=TURNS)
            planned = PlannedJob(
                name,
                Shape.ALONE,
                (step,),
                self.seed,
                mode=Mode.SINGLE,
                takes_from=TAKES_S,
                is_uncounted=True,
            )
            self._jobs.append(MessagedJob(planned))

    @property
    def jobs(self) -> list[PlannedJob]:
        """All jobs that may start."""
        return [job.planned for job in self._jobs]

    @property
    def is_over(self) -> bool:
        """True if no job runs, and none is to start."""
        return self._finished_jobs >= min(self.job_count, MAX_JOBS)

    def request_job(self) -> None:
        """Start another job if none runs."""
        if self.is_over:
            self.job_count = self._finished_jobs + 1

    def finish(self) -> None:
        """Start no further job."""
        if not self.is_over:
            self.job_count = self._finished_jobs + self._jobs[self._finished_jobs].is_sent

    def advance(self) -> None:
        """Submit the next job, or send the next message to the running one.

        Raises:
            StoreError: Redis or the server cannot be reached.
        """
        if self.is_over:
            return
        target = self._jobs[self._finished_jobs]
        if target.job_id is None:
            target.is_sent = True
            with suppress(StoreError):  # the next call submits the same job
                request = Request(
                    target.planned.request,
                    mode=Mode.SINGLE,
                    idempotency_key=target.planned.name,
                )
                target.job_id = self.api.submit(request)
            return
        (info,) = self.store.jobs.read([target.job_id])
        number = len(target.answers)
        is_last = number == MESSAGES
        is_due = info.turns > 0 and time.monotonic() >= target.next_at
        if info.status.has_ended or (is_due and not is_last):
            self._send(target, number)
        if len(target.answers) > MESSAGES:
            self._finished_jobs += 1

    def _send(self, target: MessagedJob, number: int) -> None:
        path, text = f"/v1/jobs/{target.job_id}/messages", target.build_text(number)
        answer = self.api.send("POST", path, {"text": text}, key=text)
        if answer is None:
            return
        target.answers.append(str(answer.content.get("message_id", "")))
        dice = random.Random(text)  # noqa: S311 - a seed is the point
        target.next_at = time.monotonic() + dice.choice(PAUSES_S)

    def collect_records(self, calls: Sequence[UncountedCall]) -> list[MessageRecord]:
        """Return all messages, with the events of their jobs and the calls that had them."""
        records: list[MessageRecord] = []
        for target in self._jobs[: self._finished_jobs]:
            assert target.job_id is not None
            events = self.store.journal.read(target.job_id)
            texts = []
            for call in calls:
                if call.job == target.planned.name:
                    texts.append(call.text)
            for number, message_id in enumerate(target.answers):
                records.append(_build_record(target, number, message_id, events, texts))
        return records


def _build_record(
    target: MessagedJob,
    number: int,
    message_id: str,
    events: Sequence[RecordedEvent],
    texts: Sequence[str],
) -> MessageRecord:
    takers: list[str] = []
    sent_events = 0
    killed_handoffs: set[str] = set()
    for recorded in events:
        match recorded.event:
            case UserMessageSent(message_id=id_) if id_ == message_id:
                sent_events += 1
            case UserMessageTaken(message_id=id_, handoff_id=handoff_id) if id_ == message_id:
                takers.append(handoff_id)
            case HandoffFinished(stop_reason=StopReason.TOO_MANY_CLAIMS, handoff_id=handoff_id):
                killed_handoffs.add(handoff_id)
            case _:
                pass
    text = target.build_text(number)
    return MessageRecord(
        text=text,
        is_stored=bool(message_id),
        events=sent_events,
        takers=takers,
        calls=max((each.count(text) for each in texts), default=0),
        is_cut_off=bool(killed_handoffs & set(takers)) if takers else bool(killed_handoffs),
    )
