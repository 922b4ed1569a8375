"""Failure guard: ends a job that the supervisor's own code cannot continue, because each
evaluation fails or freezes its process.
"""

from __future__ import annotations

from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.store.claim_requests import MAX_FAILED_EVALUATIONS
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.job_evaluation_lease import EvaluationLease
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import (
    HandoffError,
    MalformedMessage,
    NoTenantKey,
    StoreUnavailable,
    UnusableSubmission,
    VersionConflict,
)
from handoff_queue.shared.types.events import JobEnded, JobStatus, RecordedEvent
from handoff_queue.shared.types.names import SUPERVISOR_QUEUE
from handoff_queue.supervisor.client.handoff_publishing import Dispatcher
from handoff_queue.supervisor.client.job_lookup import read_job_info
from handoff_queue.supervisor.engine.child_jobs import list_children
from handoff_queue.supervisor.engine.decision_maker import tell_end
from handoff_queue.supervisor.engine.state_cache import StateCache
from handoff_queue.supervisor.lifecycle.approval_policy import build_waiting_fields
from handoff_queue.supervisor.lifecycle.reduce import fold_on
from handoff_queue.supervisor.lifecycle.state import JobState

MAX_FAILURES = 8
"""Failed evaluations in a row after which the job ends. With the delays of
`record_failed_evaluation.lua` they take about four minutes.
"""
MAX_CONFLICTS = 5
"""Version conflicts in a row at which an attempt to end a job is given up."""
NO_SUBMISSION = (
    "its submission is gone, or signed with a key that is not valid any more: look at the effects"
    " of its steps, then submit it again"
)
FROZE = f"every supervisor that evaluated it froze or died, {MAX_FAILED_EVALUATIONS} times in a row"

log = get_log(__name__)


class FailureGuard:
    """Ends jobs that cannot continue, with as little code as possible."""

    def __init__(self, store: Store, states: StateCache, dispatcher: Dispatcher) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._states = states

    def record_failure(self, evaluation: EvaluationLease, error: Exception) -> None:
        """Record a failed evaluation. The job is evaluated again, with a growing delay.

        After `MAX_FAILURES` failures in a row, an internal error ends the job. A job whose
        journal or payloads this version cannot read ends only after its deadline, because
        another version may be able to read them. A job without a valid submission has no known
        deadline, and ends after `MAX_FAILURES`. The keyring of this process may be older than the
        key of the submission, so the job does not end at once.

        Raises:
            StoreUnavailable: Redis cannot be reached. The sweeper wakes the job again.
        """
        job_id = evaluation.job_id
        is_foreseen = isinstance(error, HandoffError)
        why = str(error) if is_foreseen else type(error).__name__
        log.error("a job cannot continue", job_id=job_id, why=why, exc_info=not is_foreseen)
        times = self._store.journal.record_failure(job_id, evaluation.name)
        if times == 1:
            self._store.dead_letters.add(
                SUPERVISOR_QUEUE, f"{job_id} cannot continue: {why}", job_id
            )
        if times < MAX_FAILURES:
            return
        try:
            if isinstance(error, UnusableSubmission):
                self._end_without_submission(evaluation)
                return
            end_why = f"an internal error ({type(error).__name__})"
            if isinstance(error, NoTenantKey):
                end_why = str(error)
            is_readable = not isinstance(error, MalformedMessage)
            self._end(evaluation, end_why, before_deadline=is_readable)
        except StoreUnavailable:
            raise
        except Exception as second_error:  # noqa: BLE001 - this process cannot end the job; the sweeper wakes it again
            log.error("a job cannot be ended", job_id=job_id, why=type(second_error).__name__)

    def record_freeze(self, evaluation: EvaluationLease) -> None:
        """End a job whose evaluations never end. A job that had ended before is not evaluated
        again. A job that cannot be ended is evaluated again, with a growing delay.

        Raises:
            StoreUnavailable: Redis cannot be reached. The note of the evaluation stays, and another
                process may try once the evaluation is given up.
        """
        log.error("the evaluations of a job do not end", job_id=evaluation.job_id)
        try:
            state = self._end(evaluation, FROZE)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - logged there
            self.record_failure(evaluation, error)
            return
        if state is None or state.ended:
            version = state.version if state else 0
            self._store.journal.set_due(evaluation.job_id, None, version, evaluation.name)

    def _end_without_submission(self, evaluation: EvaluationLease) -> None:
        """End a job without a valid submission as failed. The handoffs of the job are not known,
        so the job also counts as cancelled: workers end its handoffs, and those of its child jobs.

        Raises:
            VersionConflict: a supervisor or a client made progress.
            StoreRefusesWrites: the job was deleted.
        """
        info = read_job_info(self._store, evaluation.job_id)
        if info is None or info.status.has_ended:
            return
        commit = Commit(
            job_id=info.job_id,
            expected=info.version,
            events=[JobEnded(status=JobStatus.FAILED, reason=NO_SUBMISSION)],
            fields={"status": JobStatus.FAILED.value, "cancelled": 1},
            after=info.job_id,
            evaluation_id=evaluation.name,
            ignores_workers=True,
        )
        self._store.journal.commit(commit)

    def _end(
        self, evaluation: EvaluationLease, why: str, *, before_deadline: bool = True
    ) -> JobState | None:
        """End the job as failed, unless it has ended. Return the state before that, or None if
        there is no such job.

        Args:
            before_deadline: True to end the job before its deadline, too.

        Raises:
            VersionConflict: other processes made progress, `MAX_CONFLICTS` times in a row.
            MalformedMessage: the journal cannot be read.
        """
        conflicts = 0
        while True:
            state = self._states.load(evaluation.job_id)
            if state is None or state.ended:
                return state
            if not before_deadline and self._store.connection.now() < state.deadline:
                return state
            try:
                self._commit_end(state, why, evaluation, ignores_workers=conflicts > 0)
            except VersionConflict:
                conflicts += 1
                if conflicts == MAX_CONFLICTS:
                    raise
            else:
                return state

    def _commit_end(
        self, state: JobState, why: str, evaluation: EvaluationLease, *, ignores_workers: bool
    ) -> None:
        """Commit the end of the job as failed. The job is due at once, so that another
        evaluation executes the effects of the end.
        """
        now = self._store.connection.now()
        advice = "see the supervisor's log. The job keeps the results of its steps"
        end = JobEnded(status=JobStatus.FAILED, reason=f"{why}: {advice}")
        later = fold_on(state, [RecordedEvent(state.version + 1, now, end)])
        commit = Commit(
            job_id=state.job_id,
            expected=state.version,
            tip=state.tip,
            events=[end],
            fields={"status": JobStatus.FAILED.value, **build_waiting_fields(state, later)},
            drop=sorted(state.open),
            dropped_children=list_children(state, state.open),
            due_at=now,
            evaluation_id=evaluation.name,
            ignores_workers=ignores_workers,
        )
        recorded = self._store.journal.commit(commit)
        if recorded[0].version == state.version + 1:
            ended_state = self._states.remember(later, recorded[-1])
        else:  # workers have appended in between
            ended_state = self._states.load(state.job_id) or later
        tell_end(ended_state, recorded, self._dispatcher)
