"""advance(job): load, fold, decide, commit, then do. Run twice, late or concurrently, the job
is the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from handoff_queue.shared.broker.attempt_outcome import AttemptEnd, AttemptOutcome
from handoff_queue.shared.observability.logs import log_of
from handoff_queue.shared.runtime.attempt import Attempts
from handoff_queue.shared.store.claim import Claim
from handoff_queue.shared.store.evaluation_lease import EvaluationLease
from handoff_queue.shared.store.finish_request import FinishReply, FinishRequest
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import (
    Interrupted,
    PoisonJob,
    StoreUnavailable,
    TooManyEvaluators,
    VersionConflict,
)
from handoff_queue.shared.types.events import Recorded
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import ROLES_QUEUE
from handoff_queue.supervisor.client.dispatch import Dispatcher
from handoff_queue.supervisor.engine.child_jobs import ChildJobs
from handoff_queue.supervisor.engine.decision_recorder import DecisionRecorder
from handoff_queue.supervisor.engine.decisions import ClaimedRole, CommittedDecision, DecisionMaker
from handoff_queue.supervisor.engine.failure_guard import FailureGuard
from handoff_queue.supervisor.engine.notifications import EndTasks, Webhooks
from handoff_queue.supervisor.engine.pending_writes import PendingWrites
from handoff_queue.supervisor.engine.role_runner import RoleRunner
from handoff_queue.supervisor.engine.state_cache import StateCache
from handoff_queue.supervisor.engine.wake_up_coalescing import WakeUpCoalescer, WakeUpTicket
from handoff_queue.supervisor.lifecycle.commands import (
    AskApproval,
    Command,
    DeliverWebhook,
    PublishAgain,
    RemindUser,
    RunRole,
    SendEndTask,
    StartChild,
    TellParent,
)
from handoff_queue.supervisor.lifecycle.decide import MOST_IN_A_SLICE
from handoff_queue.supervisor.lifecycle.state import JobState

MOST_TOLD = 1_000
"""Dropped handoffs of a decision that Flower is told about."""
MOST_CONFLICTS = 50
"""Conflicts in a row. Each conflict means that another process has made progress."""
TRIES_TO_END = 1
"""Tries to end a job with all existing results. After that a job ends without newer results: with
thousands of running steps there is always a newer one.
"""

log = log_of(__name__)


class JobLoop:
    """The shell. One in a supervisor process, called by its threads."""

    def __init__(
        self,
        store: Store,
        dispatcher: Dispatcher,
        attempts: Attempts,
        role_runner: RoleRunner,
        webhooks: Webhooks,
        end_tasks: EndTasks,
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._role_runner = role_runner
        self._webhooks = webhooks
        self._end_tasks = end_tasks
        self._attempts = attempts
        self._preparing = DecisionRecorder(store, attempts.library)
        self._children = ChildJobs(store, attempts.library, dispatcher)
        self._states = StateCache(store.journal)
        self._deciding = DecisionMaker(
            store, attempts, role_runner, self._states, self._preparing, dispatcher
        )
        self._giving_up = FailureGuard(store, self._states, dispatcher)
        self._together = WakeUpCoalescer()

    def __call__(self, job_id: JobId, suspects: Sequence[HandoffId] = ()) -> None:
        """Take the job as far as it can go now.

        Raises:
            StoreUnavailable: the sweeper tries again.
        """
        with self._together.place(job_id, suspects) as place:
            if place is not None:  # otherwise another thread evaluates this wake-up, too
                self._look_at(job_id, place)

    def _look_at(self, job_id: JobId, place: WakeUpTicket) -> None:
        look = self._store.evaluation_leases.at(job_id)
        try:
            with self._attempts.leases.shown(look.sign_of_life):
                self._advance(job_id, place, look)
        except (StoreUnavailable, Interrupted):
            look.interrupted()
            raise
        except TooManyEvaluators as why:
            log.warning("not looked at", job_id=job_id, why=str(why))
        except PoisonJob:
            self._giving_up.froze(look)
        except Exception as error:  # noqa: BLE001 - logged there; what raises here would be tried for ever
            self._giving_up.stumbled(look, error)

    def _advance(self, job_id: JobId, place: WakeUpTicket, look: EvaluationLease) -> None:
        state, suspects = self._states.load(job_id, look.begin), place.suspects
        if state is None:
            log.warning("no such job", job_id=job_id)
            self._store.journal.set_due(job_id, None, 0)
        conflicts = 0
        while (known := state) is not None:
            try:
                state = self._step(known, suspects, look, place, insists=conflicts >= TRIES_TO_END)
                suspects = ()
            except VersionConflict:
                conflicts += 1
                if conflicts > MOST_CONFLICTS:
                    raise
                time.sleep(0.002 * min(conflicts, 10))
                state = self._states.load(job_id)
                if state is not None and state.handoffs - known.handoffs >= MOST_IN_A_SLICE:
                    # the process that published a whole slice continues: two would prepare the same
                    # next slice
                    look.interrupted()
                    return

    def run_queued_role(self, handoff: AgentHandoff, text: str) -> AttemptOutcome:
        """Run a role's handoff that came from the roles queue, then go on with the job."""
        state = self._states.load(handoff.job_id)
        if state is None or handoff.handoff_id not in state.open:
            return AttemptOutcome(AttemptEnd.UNWANTED, "duplicate")
        with self._role_runner.slot() as is_free:
            if (
                not is_free
            ):  # it was fetched just before this process stopped to take from that queue
                return AttemptOutcome(AttemptEnd.HANDED_BACK, "no role slot is free")
            ended = self._role_runner.claim_and_run(state, handoff, text)
        if ended.how is AttemptEnd.FINISHED:
            self(handoff.job_id)
        return ended

    def _step(
        self,
        state: JobState,
        suspects: Sequence[HandoffId],
        look: EvaluationLease,
        place: WakeUpTicket,
        *,
        insists: bool,
    ) -> JobState | None:
        """Commit one decision, and the decisions on results of roles that run in this process.

        Return the state for the next decision, or None if nothing more can be done now.

        Args:
            insists: see `Commit`.
        """
        decision = self._deciding.decide(state, suspects)
        prepared, later = decision.prepared, decision.state
        if (
            not prepared.events
            # before the effects: a role may run for minutes, and the job can be woken during that time
        ):
            self._store.journal.set_due(state.job_id, decision.due_at, state.version, look.name)
            place.over()
            return self._grown(
                later, [self._do(later, effect, look) for effect in prepared.effects]
            )
        with self._role_runner.slot(wanted=prepared.role is not None) as is_free:
            made = self._deciding.commit(decision, look, thinks_here=is_free, insists=insists)
            while made.role is not None:
                grown = self._carried_out(made, look, place)
                following, recorded = self._run_role_here(made, made.role, look)
                if following is None:
                    return self._grown(made.state, [*grown, recorded])
                made = following
        grown = self._carried_out(made, look, place)
        if role := made.prepared.role:
            self._delegate_role(made.state, role.handoff, role.text)
        return self._grown(made.state, grown)

    def _carried_out(
        self, made: CommittedDecision, look: EvaluationLease, place: WakeUpTicket
    ) -> list[Sequence[Recorded] | None]:
        """Execute the effects of a committed decision, and return the new events of the journal."""
        self._publish(made.state.job_id, made.prepared)
        place.over()
        if made.dropped:
            standings = self._store.jobs.handoffs(made.state.job_id, made.dropped[:MOST_TOLD])
            self._dispatcher.tell_dropped(
                made.state.job_id,
                [handoff_id for handoff_id, standing in standings.items() if standing.held],
            )
        sequences: list[Sequence[Recorded] | None] = []
        for effect in made.prepared.effects:
            sequences.append(self._do(made.state, effect, look))
        return sequences

    def _run_role_here(
        self, made: CommittedDecision, role: ClaimedRole, look: EvaluationLease
    ) -> tuple[CommittedDecision | None, Sequence[Recorded] | None]:
        """Run its role in this process. Return the next decision, which is in the journal with the
        result, or the events of the result alone.
        """
        following: CommittedDecision | None = None

        def finish(claim: Claim, end: FinishRequest) -> FinishReply:
            nonlocal following
            finished, following = self._deciding.commit_with_end(made, claim, end, look)
            return finished

        ended = self._role_runner.run(role.ready, role.claim, finish)
        if following:
            return (following, None)
        return (None, self._after_role(made.state, ended))

    def _publish(self, job_id: JobId, prepared: PendingWrites) -> None:
        """Publish one slice. The next slice needs another wake-up, which waits behind other jobs."""
        for group in prepared.groups:
            self._dispatcher.publish_group(job_id, group)
        if prepared.is_full:
            self._dispatcher.wake(job_id)

    def _grown(
        self, state: JobState, parts: Sequence[Sequence[Recorded] | None]
    ) -> JobState | None:
        """Return the state after the new events of the journal; None if there are no new events."""
        new: list[Sequence[Recorded]] = []
        for recorded in parts:
            if recorded is not None:
                new.append(recorded)
        if not new:
            return None
        return (
            self._states.fold_on(state, new[0]) if len(new) == 1 else None
        ) or self._states.load(state.job_id)

    def _do(
        self, state: JobState, effect: Command, look: EvaluationLease
    ) -> Sequence[Recorded] | None:
        """Execute one effect. Return the new events of the journal, or None if there are none."""
        match effect:
            case PublishAgain():
                log.warning("published again", handoffs=list(effect.handoffs), job_id=state.job_id)
                if self._dispatcher.publish_again(
                    state.job_id, self._preparing.outgoing(state, effect.handoffs)
                ):
                    self._store.jobs.sent(state.job_id, effect.handoffs)
                return None
            case RunRole():
                item = next(iter(self._preparing.outgoing(state, [effect.handoff_id])), None)
                return self._run_role(state, item.handoff, item.text, look) if item else None
            case StartChild():
                self._children.start(state, effect.handoff_id)
                return None
            case TellParent():
                self._children.tell(state)
                return ()
            case SendEndTask() | DeliverWebhook():
                sends_task = isinstance(effect, SendEndTask)
                deliver = self._end_tasks.send if sends_task else self._webhooks.deliver
                deliver(state, effect.attempt)
                return ()
            case AskApproval() | RemindUser():
                self._webhooks.ask(state)
                return None
            case _:
                raise AssertionError(f"{effect} is recorded, not done")

    def _run_role(
        self, state: JobState, handoff: AgentHandoff, text: str, look: EvaluationLease
    ) -> Sequence[Recorded] | None:
        """Run the role here, or send it to another process if this process has no free slot. Return
        the new events of the journal.
        """
        with self._role_runner.slot() as is_free:
            if is_free:
                return self._after_role(
                    state, self._role_runner.claim_and_run(state, handoff, text, look.name)
                )
        self._delegate_role(state, handoff, text)
        return None

    def _after_role(self, state: JobState, ended: AttemptOutcome) -> Sequence[Recorded] | None:
        if (
            ended.how is AttemptEnd.HANDED_BACK
        ):  # this process shuts down, and no message goes back to a queue
            self._dispatcher.wake(state.job_id)
        if ended.how is AttemptEnd.FINISHED:
            return ended.recorded
        return None

    def _delegate_role(self, state: JobState, handoff: AgentHandoff, text: str) -> None:
        if self._store.jobs.queue(
            state.job_id, handoff.handoff_id, ROLES_QUEUE
        ) and self._dispatcher.send_role(handoff, text):
            self._store.jobs.sent(state.job_id, [handoff.handoff_id])
