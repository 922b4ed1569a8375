"""Evaluation leases: how often supervisors began to evaluate a job and did not finish.

A supervisor evaluates a job outside any claim. If the evaluation freezes the process, no claim
counts the failure. So the script that reads the journal (`lease_job_evaluation.lua`) notes the
evaluation in the job's hash. The script that ends the evaluation (`commit.lua`,
`set_next_evaluation.lua` or `record_failed_evaluation.lua`) removes the note. Wake-ups, messages,
webhooks and reports to a parent job happen later and are not part of the evaluation.

A role's handoff that runs in the supervisor's own process has a claim. The next decision is
normally part of that claim. If it cannot be stored with the result, the script that ends the
handoff notes the evaluation again.

Several evaluations of one job may overlap. Each note has a random id and the time of its last
heartbeat by Redis's clock. This time usually is the beginning of the evaluation.

- An evaluation that ends removes its own note and all earlier notes. The rest is an unbroken series
  without an end.
- An evaluation is given up after `FROZEN_AFTER_LEASES` leases without a heartbeat. The watchdog
  ends a frozen process just after that. A frozen process and a killed process look the same. Time
  in which Redis was unreachable does not count (`parts/outage_grace.lua`). The thread that renews
  leases sends a heartbeat for an evaluation that takes longer than a third of a lease.
- All evaluations that began before the first one was given up count as one failure. Otherwise a
  machine that is switched off would end its jobs. After `MAX_FAILED_EVALUATIONS` failures the
  job ends.
- Before an evaluation is given up, its wake-up counts as lost, and other evaluations begin. At most
  `MAX_FAILED_EVALUATIONS` run at once, and evaluations within `COALESCING_S` count as one.
- After a failure, one evaluation at a time tests whether the job still freezes its process. After
  `MAX_FAILED_EVALUATIONS` failures, one evaluation at a time tries to end the job. Further
  evaluations do not begin.

A supervisor that gets SIGTERM finishes its evaluation first. An evaluation that was
interrupted removes its own note if Redis answers. Otherwise the next evaluation that ends
removes the note.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim_requests import MAX_FAILED_EVALUATIONS
from handoff_queue.shared.store.journal import MAX_EVENTS_A_READ, MAX_PAGE_BYTES, Journal
from handoff_queue.shared.store.journal_signature_check import parse_end
from handoff_queue.shared.store.positional_arguments import BeginEvaluationArguments
from handoff_queue.shared.store.redis.connection import Connection, ScriptCall
from handoff_queue.shared.types.errors import PoisonJob, StoreUnavailable, TooManyEvaluators
from handoff_queue.shared.types.events import RecordedEvent
from handoff_queue.shared.types.ids import JobId, create_word

FROZEN_AFTER_LEASES = 3
"""Leases after which a process counts as frozen. Its threads could not run for that time, so
its interpreter lock is held. It has lost its claims, and the watchdog ends it.

The watchdog counts from the last heartbeat, which may be one renewal before the freeze. So it
waits longer than the store does: the work starts again elsewhere before the process ends.
"""


COALESCING_S = 0.5
"""Seconds within which evaluations count as one, because several wake-ups of one moment cause
them. While too many evaluations may be frozen, the next one is tried after this time.
"""


@dataclass(frozen=True, slots=True)
class EvaluationLease:
    """An evaluation of a job, from its beginning to its end."""

    connection: Connection
    journal: Journal
    lease_s: float
    job_id: JobId
    name: str = field(default_factory=create_word)
    """Random id of the evaluation."""

    def begin(self, after: int = 0) -> Iterator[list[RecordedEvent]]:
        """Record that the evaluation has begun. Return the pages of the events after a version, as
        `Journal.iterate_pages`. A repeated call is the same evaluation.

        Raises:
            PoisonJob: evaluations of the job failed to end `MAX_FAILED_EVALUATIONS` times in a
                row. This one is recorded.
            TooManyEvaluators: as many evaluations as may run have not ended. This one is not
                recorded, and the job is due again soon.
        """
        frozen_s = self.lease_s * FROZEN_AFTER_LEASES
        arguments = BeginEvaluationArguments(
            name=self.name,
            action="begin",
            version=after,
            most_events=MAX_EVENTS_A_READ,
            most_evaluations=MAX_FAILED_EVALUATIONS,
            frozen_ms=int(frozen_s * 1000),
            together_ms=int(COALESCING_S * 1000),
            lease_ms=int(self.lease_s * 1000),
            wants_ends=int(self.journal.checks_signatures),
            most_bytes=MAX_PAGE_BYTES,
        )
        answer = self._evaluate(*arguments)
        verdict = answer[0]
        if verdict == b"frozen":
            raise PoisonJob(
                f"the evaluations of {self.job_id} never ended, {MAX_FAILED_EVALUATIONS} times in"
                " a row"
            )
        if verdict == b"crowded":
            raise TooManyEvaluators(f"the processes that evaluate {self.job_id} now may be frozen")
        _, entries, stored_ends, last_version = answer
        page = self.journal.parse(after, entries)
        for place, fence, version in stored_ends:
            page[place - 1] = replace(page[place - 1], end=parse_end(fence, version))
        read = after + len(page)
        return chain([page], self.journal.iterate_pages(self.job_id, read, last_version - read))

    @property
    def heartbeat(self) -> ScriptCall:
        """Return the keys and arguments of the script for a heartbeat of `Leases`."""
        return self._keys, [self.name, "heartbeat"]

    def remove_note(self) -> None:
        """Remove the note, because the evaluation was interrupted through no fault of the job.
        If Redis is unreachable, the note stays.
        """
        with suppress(StoreUnavailable):
            self._evaluate(self.name, "end")

    def _evaluate(self, *arguments: Any) -> Sequence[Any]:
        """Run `lease_job_evaluation.lua` for this evaluation, and return its answer."""
        answer: Sequence[Any] = self.connection.run_script(
            "lease_job_evaluation", self._keys, list(arguments)
        )
        return answer

    @property
    def _keys(self) -> list[str]:
        return [keys.job(self.job_id), keys.DUE]


class EvaluationLeases:
    """The evaluation leases of all jobs."""

    def __init__(self, connection: Connection, journal: Journal, lease_s: float) -> None:
        self._connection = connection
        self._journal = journal
        self._lease_s = lease_s

    def open(self, job_id: JobId) -> EvaluationLease:
        """Return an evaluation that has not begun yet."""
        return EvaluationLease(self._connection, self._journal, self._lease_s, job_id)
