"""The evaluation of a job: load its state, decide, commit the decision, then execute its
effects.

An evaluation that runs twice, late or in parallel does not change the outcome of the job.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import assert_never

from handoff_queue.shared.broker.attempt_outcome import AttemptEnd, AttemptOutcome
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.runtime.attempt import Attempts
from handoff_queue.shared.store.claim import FinishReply, FinishRequest, HandoffClaim
from handoff_queue.shared.store.job_evaluation_lease import EvaluationLease
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import (
    Interrupted,
    PoisonJob,
    StoreUnavailable,
    TooManyEvaluators,
    UnusableSubmission,
    VersionConflict,
)
from handoff_queue.shared.types.events import RecordedEvent
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import ROLES_QUEUE
from handoff_queue.supervisor.client.handoff_publishing import Dispatcher
from handoff_queue.supervisor.client.job_lookup import read_job_info
from handoff_queue.supervisor.engine.child_jobs import ChildJobs
from handoff_queue.supervisor.engine.decision_maker import (
    ClaimedRole,
    CommittedDecision,
    DecisionMaker,
)
from handoff_queue.supervisor.engine.decision_recorder import DecisionRecorder
from handoff_queue.supervisor.engine.deliveries import Deliveries
from handoff_queue.supervisor.engine.failure_guard import FailureGuard
from handoff_queue.supervisor.engine.journal_signature_guard import JournalGuard
from handoff_queue.supervisor.engine.role_runner import RoleRunner
from handoff_queue.supervisor.engine.state_cache import StateCache
from handoff_queue.supervisor.engine.unit_of_work import UnitOfWork
from handoff_queue.supervisor.engine.wake_up_coalescing import WakeUpCoalescer, WakeUpTicket
from handoff_queue.supervisor.lifecycle.commands import (
    AskApproval,
    DeliverWebhook,
    Effect,
    PublishAgain,
    RemindUser,
    RunRole,
    SendEndTask,
    StartChild,
    TellParent,
)
from handoff_queue.supervisor.lifecycle.decide import MAX_HANDOFFS_A_DECISION
from handoff_queue.supervisor.lifecycle.job_end import waits_for_specialist
from handoff_queue.supervisor.lifecycle.state import JobState

MAX_REVOKED = 1_000
"""Most dropped handoffs of one decision whose state is read. Flower shows the waiting
handoffs among these as revoked.
"""
MAX_CONFLICTS = 50
"""Most version conflicts of one evaluation. Each conflict means that another process has made
progress.
"""
TRIES_TO_END = 1
"""Commits that must contain all existing results. After that many conflicts, a job ends
without the newer results. With thousands of running steps, there is always a newer one.
"""
TRIES_BEFORE_WORKERS = 5
"""Commits that must contain all events of workers. After that many conflicts, a decision is
committed without the newer ones, and the next evaluation reads them. Otherwise a worker that was
taken over could hold up a job by events that do not count.
"""

NewEvents = Sequence[RecordedEvent] | None
"""Events that an effect wrote to the journal. None: it wrote none. Empty: it wrote events and does
not return them, so that the journal must be read.
"""

log = get_log(__name__)


class JobLoop:
    """Evaluates jobs. The threads of a supervisor process share one instance."""

    def __init__(
        self,
        store: Store,
        dispatcher: Dispatcher,
        attempts: Attempts,
        role_runner: RoleRunner,
        deliveries: Deliveries,
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._role_runner = role_runner
        self._deliveries = deliveries
        self._attempts = attempts
        self._recorder = DecisionRecorder(store, attempts.payload_cache)
        self._children = ChildJobs(store, attempts.payload_cache, dispatcher)
        guard = JournalGuard(store, attempts.settings.retention_s)
        self._states = StateCache(store.journal, guard)
        self._decision_maker = DecisionMaker(
            store, attempts, role_runner, self._states, self._recorder, dispatcher, deliveries
        )
        self._failure_guard = FailureGuard(store, self._states, dispatcher)
        self._wake_ups = WakeUpCoalescer()

    def __call__(self, job_id: JobId, suspects: Sequence[HandoffId] = ()) -> None:
        """Evaluate the job until no more decisions follow.

        Args:
            suspects: handoffs whose messages or workers may be lost.

        Raises:
            StoreUnavailable: Redis cannot be reached. The sweeper wakes the job again.
        """
        with self._wake_ups.turn(job_id, suspects) as ticket:
            if ticket is not None:  # otherwise another thread handles this wake-up
                self._evaluate(job_id, ticket)

    def _evaluate(self, job_id: JobId, ticket: WakeUpTicket) -> None:
        """Evaluate the job under its evaluation lease, and record a failure of the evaluation."""
        evaluation = self._store.evaluation_leases.open(job_id)
        try:
            with self._attempts.leases.evaluating(evaluation.heartbeat):
                self._advance(job_id, ticket, evaluation)
        except (StoreUnavailable, Interrupted):
            evaluation.remove_note()
            raise
        except TooManyEvaluators as why:
            log.warning("a job could not be evaluated", job_id=job_id, why=str(why))
        except PoisonJob:
            self._failure_guard.record_freeze(evaluation)
        except Exception as error:  # noqa: BLE001 - `record_failure` logs it and limits the number of tries
            self._failure_guard.record_failure(evaluation, error)
        finally:
            self._deliveries.release(job_id)

    def _advance(self, job_id: JobId, ticket: WakeUpTicket, evaluation: EvaluationLease) -> None:
        """Decide and commit until no more decisions follow.

        Raises:
            VersionConflict: other processes made progress more than `MAX_CONFLICTS` times.
            UnusableSubmission: the journal of an open job has no valid submission.
        """
        state = self._load_first_state(job_id, evaluation)
        suspects = ticket.suspects
        conflicts = 0
        while state is not None:
            known = state
            try:
                state = self._commit_step(known, suspects, evaluation, ticket, conflicts)
                suspects = ()
            except VersionConflict:
                conflicts += 1
                if conflicts > MAX_CONFLICTS:
                    raise
                time.sleep(0.002 * min(conflicts, 10))
                state = self._states.load(job_id)
                if state and state.handoffs - known.handoffs >= MAX_HANDOFFS_A_DECISION:
                    # Another process has published a whole batch and continues. Two processes
                    # would prepare the same next batch.
                    evaluation.remove_note()
                    return

    def _load_first_state(self, job_id: JobId, evaluation: EvaluationLease) -> JobState | None:
        """Return the state of the job. None: there is no such job, or it has ended without a valid
        submission. It is not evaluated again.

        Raises:
            UnusableSubmission: the journal of an open job has no valid submission.
        """
        state = None
        with suppress(UnusableSubmission):
            state = self._states.load(job_id, evaluation.begin)
        if state is not None:
            return state
        info = read_job_info(self._store, job_id)
        if info is not None and not info.status.has_ended:
            raise UnusableSubmission.for_job(job_id)
        log.warning("a message names a job that does not exist", job_id=job_id)
        self._store.journal.set_due(job_id, None, info.version if info else 0, evaluation.name)
        return None

    def run_queued_role(self, handoff: AgentHandoff, text: str) -> AttemptOutcome:
        """Run a role's handoff from the roles queue, then evaluate the job.

        The outcome is `UNWANTED` if the handoff is no longer open, and `HANDED_BACK` if no
        role slot is free.
        """
        state = self._states.load(handoff.job_id)
        if state is None or handoff.handoff_id not in state.open:
            return AttemptOutcome(AttemptEnd.UNWANTED, "duplicate")
        with self._role_runner.slot() as is_free:
            # This process fetched the message just before it stopped consuming the roles queue.
            if not is_free:
                return AttemptOutcome(AttemptEnd.HANDED_BACK, "no role slot is free")
            outcome = self._role_runner.claim_and_run(state, handoff, text)
        if outcome.end is AttemptEnd.FINISHED:
            self(handoff.job_id)
        return outcome

    def _commit_step(
        self,
        state: JobState,
        suspects: Sequence[HandoffId],
        evaluation: EvaluationLease,
        ticket: WakeUpTicket,
        conflicts: int,
    ) -> JobState | None:
        """Commit one decision, and the decisions on results of roles that run in this process.
        Execute their effects.

        Return the state for the next decision, or None if the journal has no new events.

        Args:
            conflicts: version conflicts of this evaluation so far.
        """
        decision = self._decision_maker.decide(state, suspects)
        prepared, later = decision.prepared, decision.state
        if not prepared.events:
            # The turn ends before the effects: a role may run for minutes, and other threads may
            # evaluate the job during that time.
            self._store.journal.set_due(
                state.job_id, decision.due_at, state.version, evaluation.name
            )
            ticket.end()
            if decision.due_at is not None and waits_for_specialist(later):
                names = later.submitted.specialists
                self._store.presence.announce_unplanned_job(state.job_id, names, decision.due_at)
            return self._next_state(later, self._execute(later, prepared.effects, evaluation))
        with self._role_runner.slot(is_wanted=prepared.role is not None) as is_free:
            committed = self._decision_maker.commit(
                decision,
                evaluation,
                runs_role_here=is_free,
                forces_end=conflicts >= TRIES_TO_END,
                ignores_workers=conflicts >= TRIES_BEFORE_WORKERS,
            )
            while committed.role is not None:
                new_events = self._publish_and_execute(committed, evaluation, ticket)
                following = self._run_role_here(committed, committed.role, evaluation)
                if not isinstance(following, CommittedDecision):
                    return self._next_state(committed.state, [*new_events, following])
                committed = following
        new_events = self._publish_and_execute(committed, evaluation, ticket)
        if role := committed.prepared.role:
            self._delegate_role(committed.state, role.handoff, role.text)
        return self._next_state(committed.state, new_events)

    def _publish_and_execute(
        self, committed: CommittedDecision, evaluation: EvaluationLease, ticket: WakeUpTicket
    ) -> list[NewEvents]:
        """Publish the messages of a committed decision, show its dropped handoffs that waited in
        Flower, and execute its effects. Return the new events of each effect.
        """
        self._publish(committed.state.job_id, committed.prepared)
        ticket.end()
        if committed.dropped_handoffs:
            handoff_infos = self._store.jobs.read_handoffs(
                committed.state.job_id, committed.dropped_handoffs[:MAX_REVOKED]
            )
            waiting: list[HandoffId] = []
            for handoff_id, info in handoff_infos.items():
                if info.waits:
                    waiting.append(handoff_id)
            self._dispatcher.tell_dropped(committed.state.job_id, waiting)
        return self._execute(committed.state, committed.prepared.effects, evaluation)

    def _execute(
        self, state: JobState, effects: Sequence[Effect], evaluation: EvaluationLease
    ) -> list[NewEvents]:
        """Execute the effects in order, and return the new events of each."""
        return [self._do(state, effect, evaluation) for effect in effects]

    def _run_role_here(
        self, committed: CommittedDecision, role: ClaimedRole, evaluation: EvaluationLease
    ) -> CommittedDecision | NewEvents:
        """Run the role of a committed decision in this process. Return the next decision, which is
        in the journal together with the result. If there is no next decision, return the events of
        the result.
        """
        following: CommittedDecision | None = None

        def finish(claim: HandoffClaim, end: FinishRequest) -> FinishReply:
            nonlocal following
            finished, following = self._decision_maker.commit_with_end(
                committed, claim, end, evaluation
            )
            return finished

        outcome = self._role_runner.run(role.ready, role.claim, finish)
        return following or self._collect_role_events(committed.state, outcome)

    def _publish(self, job_id: JobId, prepared: UnitOfWork) -> None:
        """Publish one batch. The next batch needs another wake-up, which waits after other
        jobs.
        """
        for group in prepared.groups:
            self._dispatcher.publish_group(job_id, group)
        if prepared.is_full:
            self._dispatcher.wake(job_id)

    def _next_state(self, state: JobState, new_events: Sequence[NewEvents]) -> JobState | None:
        """Return the state after the new events of each effect; None if there are none."""
        written = [events for events in new_events if events is not None]
        if not written:
            return None
        later = None
        if len(written) == 1:
            later = self._states.fold_on(state, written[0])
        return later or self._states.load(state.job_id)

    def _do(self, state: JobState, effect: Effect, evaluation: EvaluationLease) -> NewEvents:
        """Execute one effect, and return its new events."""
        match effect:
            case PublishAgain():
                log.warning(
                    "messages that were lost are published again",
                    handoffs=list(effect.handoffs),
                    job_id=state.job_id,
                )
                outgoing = self._recorder.build_outgoing(state, effect.handoffs)
                if self._dispatcher.publish_again(state.job_id, outgoing):
                    self._store.due_work.mark_sent(state.job_id, effect.handoffs)
                return None
            case RunRole():
                return self._run_role(state, effect.handoff_id, evaluation)
            case StartChild():
                self._children.start(state, effect.handoff_id)
                return None
            case TellParent():
                self._children.tell(state)
                return ()
            case SendEndTask() | DeliverWebhook() | AskApproval() | RemindUser():
                self._deliveries.start(state, effect)
                return None
            case _:
                assert_never(effect)

    def _run_role(
        self, state: JobState, handoff_id: HandoffId, evaluation: EvaluationLease
    ) -> NewEvents:
        """Run the role in this process, or send it to the roles queue if no role slot is free."""
        outgoing = self._recorder.build_outgoing(state, [handoff_id])
        if not outgoing:
            return None
        handoff, text = outgoing[0].handoff, outgoing[0].text
        with self._role_runner.slot() as is_free:
            if is_free:
                return self._collect_role_events(
                    state, self._role_runner.claim_and_run(state, handoff, text, evaluation.name)
                )
        self._delegate_role(state, handoff, text)
        return None

    def _collect_role_events(self, state: JobState, outcome: AttemptOutcome) -> NewEvents:
        """Return the events of a role's result. Wake the job if this process shuts down before the
        role ends, because no message goes back to a queue.
        """
        if outcome.end is AttemptEnd.HANDED_BACK:
            self._dispatcher.wake(state.job_id)
        if outcome.end is AttemptEnd.FINISHED:
            return outcome.recorded
        return None

    def _delegate_role(self, state: JobState, handoff: AgentHandoff, text: str) -> None:
        """Send a role's handoff to the roles queue, unless it is there or has been claimed."""
        due_work = self._store.due_work
        is_queued = due_work.queue_role_handoff(state.job_id, handoff.handoff_id, ROLES_QUEUE)
        if is_queued and self._dispatcher.send_role(handoff, text):
            due_work.mark_sent(state.job_id, [handoff.handoff_id])
