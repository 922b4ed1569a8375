"""A user who types commands during a failpoint run: `handoff submit`, `cancel`, `unpause` and
`dead requeue`, each in a separate process.

No function waits for a command. The run must continue stopped processes and watch for stored
replies in the meantime.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from handoff_queue.chaos.failpoint_cases import CLIENT, Case, Trigger
from handoff_queue.chaos.faults import take_message
from handoff_queue.chaos.handoff_system import HandoffProject
from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.planned_jobs import SPECIALISTS, PlannedJob
from handoff_queue.chaos.test_bed import TestBed
from handoff_queue.shared.local.fork_server import ForkedProcess
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.dead_letters import PATIENCE_S, parse_handoff
from handoff_queue.shared.store.fair_queue import ENQUEUE, enqueue_arguments
from handoff_queue.shared.store.handoff_info import read_agents
from handoff_queue.shared.store.redis.connection import translate_errors
from handoff_queue.shared.types.errors import StoreError
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_options import Mode

PAUSED = "planner"
"""Role that the user pauses and unpauses. Every job needs it."""
CAUGHT_WITHIN_S = 0.1
"""Seconds of a wait for a message to make unreadable."""

HandoffKey = tuple[JobId, HandoffId]


@dataclass(slots=True)
class CommandRun:
    """One command of the user, with its precondition. The user repeats it until it succeeds."""

    bed: TestBed[HandoffProject]
    case: Case
    jobs: Iterator[PlannedJob]
    job: PlannedJob | None = None
    """The job of the command."""
    _words: list[str] = field(default_factory=list)
    _command: subprocess.Popen[bytes] | ForkedProcess | None = None
    _unread: HandoffKey | None = None

    def advance(self, *, is_tried: bool) -> bool:
        """Prepare, start or check the command, without a wait. Return whether it is complete.

        Args:
            is_tried: True if its failpoint was reached or given up.
        """
        if self._command is None:
            if is_tried and self.job is None:
                return True
            with suppress(StoreError):
                self._words = self._prepare_command()
            if self._words:
                self._command = self._start_command(is_tried=is_tried)
            return False
        if (code := self._command.poll()) is None:
            return False
        assert self.job is not None
        is_over = code == 0 or self.job.name not in self.bed.open
        if is_over and not is_tried:
            self.job, self._command, self._words, self._unread = None, None, [], None
        elif not is_over:
            self._command = self._start_command(is_tried=is_tried)
        return is_over and is_tried

    def _prepare_command(self) -> list[str]:
        """Return the command line; empty if the precondition does not hold yet."""
        match self.case.trigger:
            case Trigger.SUBMIT:
                self.job = self.job or self._choose_next_job()
                store = self.bed.system.client.store
                self.bed.system.ids[self.job.name] = store.job_ids.derive("default", self.job.name)
                self.bed.model.add([self.job])
                # a command that fails may have submitted the job
                self.bed.adopt(self.job)
                return [
                    "submit",
                    self.job.request,
                    "--idempotency-key",
                    self.job.name,
                    "--docs",
                    self._write_documents(),
                ]
            case Trigger.CANCEL:
                self.job = self.job or replace(self._choose_next_job(), shape=Shape.CANCELLED)
                if self.bed.submit(self.job):
                    return ["cancel", self.bed.system.ids[self.job.name]]
                return []
            case Trigger.UNPAUSE:
                self.bed.system.client.pause(PAUSED)
                self.job = self.job or self._choose_next_job()
                if self.bed.submit(self.job):
                    return ["unpause", PAUSED]
                return []
            case _:
                return self._find_dead_letter_command()

    def _find_dead_letter_command(self) -> list[str]:
        """Return the command for a dead letter: a handoff whose message was unreadable for a
        minute waits for a person.
        """
        if self._unread is None:
            make_unreadable(self.bed, before=self._backdate)
            return []
        letters = self.bed.system.client.store.dead_letters.list_newest()
        letter = None
        for candidate in letters:
            if (handoff := parse_handoff(candidate.body)) and handoff[:2] == self._unread:
                letter = candidate
                break
        if letter is None:
            if not self._is_unread(self._unread):
                self._unread = None
            return []
        self.job = self._find_job(self._unread[0])
        return ["dead", "requeue", letter.id]

    def _find_job(self, job_id: JobId) -> PlannedJob:
        """Return the job that a user submitted: this job or its ancestor."""
        ids = self.bed.system.ids
        for job in self.bed.jobs.values():
            for member in job.family:
                if ids[member.name] == job_id:
                    return job
        raise LookupError(f"no user submitted {job_id}")

    def _is_unread(self, handoff: HandoffKey) -> bool:
        """Return whether the handoff still waits with an unreadable message, or without one. It
        may have been published again and claimed.
        """
        with translate_errors():
            state, unread, waits = self.bed.fleet.connection.redis.hmget(
                self._build_state_key(handoff), "state", "unread", "waits"
            )
        return state == b"issued" and bool(unread or waits)

    def _backdate(self, handoff: HandoffKey) -> None:
        """Make the handoff's message look unreadable for more than `PATIENCE_S`. Remember the
        handoff first, because Redis may be killed before it confirms the change.
        """
        self._unread = handoff
        client = self.bed.fleet.connection.redis
        client.hset(
            self._build_state_key(handoff), "unread", int((time.time() - PATIENCE_S - 1) * 1000)
        )

    def _build_state_key(self, handoff: HandoffKey) -> str:
        job_id, handoff_id = handoff
        role = read_agents(self.bed.fleet.connection, job_id, [handoff_id])[handoff_id]
        return keys.handoff(job_id, role, handoff_id)

    def _choose_next_job(self) -> PlannedJob:
        """Return the next job, for `--mode team` without a workflow."""
        job = next(self.jobs)
        while job.shape is not Shape.PARALLEL:
            job = next(self.jobs)
        return replace(job, mode=Mode.TEAM)

    def _write_documents(self) -> str:
        documents = self.bed.fleet.folder / "documents"
        if not documents.exists():
            documents.mkdir()
            (documents / "note.md").write_text("# A note\n\nSo it is.\n")
        return str(documents)

    def _start_command(self, *, is_tried: bool) -> subprocess.Popen[bytes] | ForkedProcess:
        """Run `handoff WORDS`, with failpoints until the case is tried."""
        points = None
        if not is_tried:
            points = self.bed.fleet.get_points(CLIENT)
        return self.bed.fleet.start_user_command(self._words, points)


def make_unreadable(
    bed: TestBed[HandoffProject],
    *,
    to: str = "",
    before: Callable[[HandoffKey], None] = lambda _handoff: None,
) -> HandoffKey | None:
    """Replace the message of a handoff by a message for a task that no process knows. Return
    the handoff. Return None if there is no message, or if the handoff belongs to no job of the
    run.

    Args:
        to: queue for the new message, if it is not to be the same queue.
        before: called with the handoff before the new message is published.
    """
    client: Any = bed.fleet.connection.redis
    with suppress(StoreError), translate_errors():
        if (queue_and_element := client.brpop(SPECIALISTS, timeout=CAUGHT_WITHIN_S)) is None:
            return None
        queue = queue_and_element[0].decode()
        message = json.loads(take_message(client, queue, queue_and_element[1]))
        message["headers"]["task"] += "@2"
        job_id, _, handoff_id = message["headers"]["id"].partition(":")
        if job_id in bed.system.ids.values():
            before((JobId(job_id), HandoffId(handoff_id)))
        ENQUEUE.run(client, enqueue_arguments(to or queue, message, is_first=True))
        if job_id in bed.system.ids.values():
            return (JobId(job_id), HandoffId(handoff_id))
        return None
    return None
