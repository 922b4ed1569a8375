"""Decisions on a job, and their commits.

`DecisionMaker.decide` makes decisions on a state until no more follow. One round trip commits them
all. The same round trip can end the role's handoff that led to the decisions, and claim the next
role's handoff. The process that commits the end of a job reports it to OpenTelemetry and Flower.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from handoff_queue.shared.agent.prices import build_prices
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.observability.telemetry import get_telemetry
from handoff_queue.shared.observability.trace_ids import JobSpan
from handoff_queue.shared.runtime.attempt import Attempts, PreparedAttempt
from handoff_queue.shared.store.claim import FinishReply, FinishRequest, HandoffClaim
from handoff_queue.shared.store.commit import AnsweredQuestion, Commit, VerifiedAmounts
from handoff_queue.shared.store.due_work import LOST_AFTER_S
from handoff_queue.shared.store.job_evaluation_lease import EvaluationLease
from handoff_queue.shared.store.presence import find_acting
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import StoreError
from handoff_queue.shared.types.events import (
    ApprovalAsked,
    Approved,
    Event,
    JobEnded,
    JobStatus,
    RecordedEvent,
)
from handoff_queue.shared.types.handoff import UNREADABLE
from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.supervisor.client.handoff_publishing import Dispatcher
from handoff_queue.supervisor.engine.child_jobs import list_children
from handoff_queue.supervisor.engine.cost_forecast import CostForecast
from handoff_queue.supervisor.engine.decision_recorder import DecisionRecorder
from handoff_queue.supervisor.engine.deliveries import Deliveries
from handoff_queue.supervisor.engine.role_runner import RoleRunner
from handoff_queue.supervisor.engine.state_cache import StateCache
from handoff_queue.supervisor.engine.unit_of_work import UnitOfWork
from handoff_queue.supervisor.lifecycle.approval_policy import build_waiting_fields
from handoff_queue.supervisor.lifecycle.commands import (
    AbandonSteps,
    Command,
    DeliverWebhook,
    IssueGroup,
    PublishAgain,
    SendEndTask,
)
from handoff_queue.supervisor.lifecycle.decide import decide
from handoff_queue.supervisor.lifecycle.job_end import compute_next_due
from handoff_queue.supervisor.lifecycle.observations import (
    Observations,
    ObservedHandoff,
    SpecialistLoad,
)
from handoff_queue.supervisor.lifecycle.plan_summary import build_plan_fields
from handoff_queue.supervisor.lifecycle.reduce import fold_on
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.quoting.quote_history import encode_score

log = get_log(__name__)

MAX_DECISIONS = 100
"""Most rounds of decisions without an outside event, in addition to one for each step. A job
has five phases, so this limit is never reached unless `decide` has a fault.
"""
NO_THREAD_S = (2.0, 30.0)
"""Least and most seconds after which a try without a free thread looks for one again. Between
them it is a quarter of the time that the try has waited. So 1,000 waiting tries need at least 33
evaluations a second.
"""


@dataclass(frozen=True, slots=True)
class JobDecision:
    """The decisions on a state, ready for the commit."""

    before: JobState
    state: JobState
    """State after the decisions."""
    prepared: UnitOfWork
    due_at: float | None
    """Unix time in seconds at which the sweeper wakes the job again. None: it does not."""


@dataclass(frozen=True, slots=True)
class ClaimedRole:
    """A role's handoff that this process has claimed and runs."""

    ready: PreparedAttempt
    claim: HandoffClaim


@dataclass(frozen=True, slots=True)
class CommittedDecision:
    """A decision in the journal. Its effects are not executed yet."""

    state: JobState
    prepared: UnitOfWork
    role: ClaimedRole | None = None
    """The role's handoff that the decision issues, if this process runs it."""
    dropped_handoffs: tuple[HandoffId, ...] = ()
    """Handoffs that the job no longer needs."""


@dataclass(frozen=True, slots=True)
class FollowingDecision:
    """A decision that is committed together with the end of the role's handoff before it."""

    decision: JobDecision
    commit: Commit
    role: PreparedAttempt | None
    """The role's handoff that the decision issues."""


class DecisionMaker:
    """Makes and commits decisions. The threads of a supervisor process share one instance."""

    def __init__(
        self,
        store: Store,
        attempts: Attempts,
        role_runner: RoleRunner,
        states: StateCache,
        recorder: DecisionRecorder,
        dispatcher: Dispatcher,
        deliveries: Deliveries,
    ) -> None:
        self._store = store
        self._payload_cache = attempts.payload_cache
        self._role_runner = role_runner
        self._states = states
        self._recorder = recorder
        self._dispatcher = dispatcher
        self._deliveries = deliveries
        self._cost_forecast = CostForecast(
            attempts.models, build_prices(attempts.settings), recorder.get_fact_checker
        )
        self._lease_s = attempts.settings.lease_s

    def decide(self, state: JobState, suspects: Sequence[HandoffId] = ()) -> JobDecision:
        """Make decisions until no more follow or a batch is full, as if each decision had been
        recorded immediately.

        A step whose stored result is needed and cannot be read fails first, and the decisions
        are made again without its result. A try to report the end for which no thread is free is
        left out, and the job is due again later.
        """
        now = self._store.connection.now()
        observations = self._observe(state, suspects)
        prepared = UnitOfWork()
        later = state
        damaged: set[StepId] = set()
        for _ in range(MAX_DECISIONS + len(state.steps)):
            commands = decide(later, observations, now)
            refused_queues = self._find_refused_queues(later, commands)
            if refused_queues:
                known = observations.refused_queues
                observations = replace(observations, refused_queues=known | refused_queues)
                continue
            events_before = len(prepared.events)
            self._record(later, commands, prepared)
            newly_damaged = _find_steps_with_unreadable_results(later, prepared) - damaged
            if newly_damaged:
                damaged |= newly_damaged
                prepared = self._without_results(state, damaged)
                later = fold_on(state, _number_events(state, now, prepared.events))
                continue
            new_events = prepared.events[events_before:]
            later = fold_on(later, _number_events(later, now, new_events))
            if not new_events or prepared.is_full:
                due_at = self._compute_due_time(later, prepared, observations, now)
                return JobDecision(state, later, prepared, due_at)
            if observations.handoffs:
                observations = replace(observations, handoffs={})  # the repairs are ordered
        raise AssertionError("the decisions on one state never end")

    def _record(self, state: JobState, commands: Sequence[Command], prepared: UnitOfWork) -> None:
        """Record commands until the decision has its most events. A report of the end for which no
        thread is free is left out.
        """
        for command in commands:
            if prepared.has_most_events:
                return
            if isinstance(command, DeliverWebhook | SendEndTask):
                has_thread = self._deliveries.reserve(state, command)
                if not has_thread:
                    continue
            self._recorder.record(state, command, prepared)

    def _compute_due_time(
        self, state: JobState, prepared: UnitOfWork, observations: Observations, now: float
    ) -> float | None:
        """Return the time at which the sweeper wakes the job again, in Unix seconds. None: it does
        not.
        """
        due_at = compute_next_due(state, now, self._lease_s, observations)
        if prepared.is_full:  # the wake-up for the next batch may be lost
            due_at = min(due_at or now + LOST_AFTER_S, now + LOST_AFTER_S)
        if state.ended and due_at is not None and due_at <= now:  # no thread was free for a report
            waited_s = now - max(due_at, state.as_of)
            return now + compute_seconds_until_next_try(waited_s)
        return due_at

    def _find_refused_queues(self, state: JobState, commands: Sequence[Command]) -> frozenset[str]:
        """Return the queues of these commands that the Redis user of this process may not use. A
        commit that names such a queue would fail in the middle.
        """
        queues: set[str] = set()
        for command in commands:
            if isinstance(command, IssueGroup):
                instead = dict(command.instead)
                for step_id in command.steps:
                    queues.add(instead.get(step_id, state.steps[step_id].specialist))
            elif isinstance(command, PublishAgain):
                queues.update(state.open[name].assigned_to for name in command.handoffs)
        return self._store.connection.queue_access.find_refused(queues)

    def _without_results(self, state: JobState, damaged: Collection[StepId]) -> UnitOfWork:
        """Begin a decision with the failure of steps whose stored results cannot be read."""
        log.error("stored results cannot be read", job_id=state.job_id, steps=sorted(damaged))
        prepared = UnitOfWork()
        self._recorder.record(state, AbandonSteps(tuple(sorted(damaged)), UNREADABLE), prepared)
        return prepared

    def commit(
        self,
        decision: JobDecision,
        evaluation: EvaluationLease,
        *,
        runs_role_here: bool,
        forces_end: bool = False,
        ignores_workers: bool = False,
    ) -> CommittedDecision:
        """Commit a decision, and claim the role's handoff that it issues if this process runs
        the handoff.

        Args:
            runs_role_here: True if this process runs the role.
            forces_end, ignores_workers: see `Commit`.

        Raises:
            VersionConflict: another process has made progress.
        """
        commit = replace(
            self._commit(decision, decision.before, evaluation),
            forces_end=forces_end,
            ignores_workers=ignores_workers,
        )
        ready = None
        if runs_role_here:
            ready = self._prepare_role(decision, evaluation)
        if ready is None:
            return self._complete_commit(decision, self._store.journal.commit(commit))
        recorded, claim = self._store.claims.commit_and_claim(commit, ready.claiming)
        return self._complete_commit(decision, recorded, ClaimedRole(ready, claim))

    def commit_with_end(
        self,
        committed: CommittedDecision,
        claim: HandoffClaim,
        end: FinishRequest,
        evaluation: EvaluationLease,
    ) -> tuple[FinishReply, CommittedDecision | None]:
        """End a role's handoff that ran for the decision `committed`, and commit the next decision
        on its result.

        The next decision is None if no decision follows, if it failed, or if the journal has
        grown and must be read first.

        Raises:
            Interrupted: another process has taken over the claim.
            MessagesWaiting: the role must first take messages of users; nothing is stored.
        """
        following = self._prepare_following(committed, end, evaluation)
        if following is None:
            return claim.finish(end), None
        ready = following.role
        claiming = ready.claiming if ready else None
        try:
            reply = self._store.claims.end_and_commit(claim, end, following.commit, claiming)
        except StoreError:
            # Redis may have stored the end. A repeated end has no further effect.
            return claim.finish(end), None
        if not reply.recorded:
            return reply.finished, None
        role = None
        if ready and reply.claim:
            role = ClaimedRole(ready, reply.claim)
        return reply.finished, self._complete_commit(following.decision, reply.recorded, role)

    def _prepare_following(
        self, committed: CommittedDecision, end: FinishRequest, evaluation: EvaluationLease
    ) -> FollowingDecision | None:
        """Prepare the decision on a result that the journal does not hold yet. None: no decision
        follows, or it failed.
        """
        try:
            now = self._store.connection.now()
            decision = self.decide(
                fold_on(committed.state, _number_events(committed.state, now, end.events))
            )
            if not decision.prepared.events:
                return None
            commit = self._commit(decision, committed.state, evaluation)
            return FollowingDecision(decision, commit, self._prepare_role(decision, evaluation))
        except Exception as error:  # noqa: BLE001 - the result must be stored; the next evaluation fails in the same way and reports it
            log.warning(
                "a decision has failed and is repeated",
                job_id=committed.state.job_id,
                why=type(error).__name__,
            )
            return None

    def _prepare_role(
        self, decision: JobDecision, evaluation: EvaluationLease
    ) -> PreparedAttempt | None:
        """Prepare the role's handoff that a decision issues. None: it issues no role's handoff."""
        role = decision.prepared.role
        if role is None:
            return None
        return self._role_runner.prepare(decision.state, role.handoff, role.text, evaluation.name)

    def _commit(
        self, decision: JobDecision, journaled: JobState, evaluation: EvaluationLease
    ) -> Commit:
        """Return the commit of a decision.

        Args:
            journaled: state by the journal, which may lack the result that the decision is about.
        """
        before, later, prepared = decision.before, decision.state, decision.prepared
        self._payload_cache.remember(prepared.texts.values(), before.job_id)
        dropped_handoffs = _list_closed_handoffs(decision)
        asks_user = any(isinstance(event, ApprovalAsked) for event in prepared.events)
        fields = {
            "status": later.status.value,
            **build_waiting_fields(before, later),
            **self._cost_forecast.build_fields(later),
            **build_plan_fields(before, later, prepared.events),
        }
        return Commit(
            job_id=before.job_id,
            expected=journaled.version,
            tip=journaled.tip,
            events=prepared.events,
            payloads=list(prepared.texts.values()),
            fields=fields,
            drop=dropped_handoffs,
            dropped_children=list_children(before, dropped_handoffs),
            keep=later.handed_over if asks_user else (),
            answered=_find_answered_calls(before, prepared.events),
            deadline=None if later.status.has_ended else later.deadline,
            due_at=decision.due_at,
            score=encode_score(before, later),
            evaluation_id=evaluation.name,
            verified=_sum_result_amounts(later),
        )

    def _complete_commit(
        self,
        decision: JobDecision,
        recorded: Sequence[RecordedEvent],
        role: ClaimedRole | None = None,
    ) -> CommittedDecision:
        state = decision.state
        # Otherwise results of steps came first in the journal. The next evaluation reads them.
        if recorded[0].version == decision.before.version + 1:
            state = self._states.remember(state, recorded[-1])
        tell_end(state, recorded, self._dispatcher)
        return CommittedDecision(state, decision.prepared, role, _list_closed_handoffs(decision))

    def _observe(self, state: JobState, suspects: Sequence[HandoffId]) -> Observations:
        """Read facts that the journal does not hold.

        These are the served specialists with their load and effects. They are also the
        states of the suspect handoffs, and of the open handoffs of roles and child jobs. A
        worker may have sent the names of the suspects, so only open handoffs count.
        """
        served = self._recorder.briefs.get_usable_specialists(state)
        loads: dict[str, SpecialistLoad] = {}
        for name, specialist in served.items():
            capability = specialist.spec.capability
            if capability:
                loads[name] = SpecialistLoad(capability, specialist.queued, specialist.slots)
        answered_ids = [call.handoff_id for call in state.asked_calls if call.is_answered]
        known = [suspect for suspect in suspects if suspect in state.open]
        handoff_ids = list(dict.fromkeys([*known, *state.step_index.outside_chords, *answered_ids]))
        handoffs: dict[HandoffId, ObservedHandoff] = {}
        for handoff_id, info in self._store.jobs.read_handoffs(state.job_id, handoff_ids).items():
            handoffs[handoff_id] = ObservedHandoff(
                info.state, info.lease_until, info.lost, bool(info.queue), info.waits
            )
        checker = state.submitted.fact_checker
        is_away = (
            checker is not None and checker not in self._store.presence.load_served_specialists()
        )
        refused_queues: frozenset[str] = frozenset()
        if not served:
            names = state.submitted.specialists
            refused_queues = self._store.connection.queue_access.find_refused(names)
        return Observations(
            specialists=frozenset(served),
            loads=loads,
            handoffs=handoffs,
            acting=find_acting(served),
            is_fact_checker_away=is_away,
            refused_queues=refused_queues,
        )


def compute_seconds_until_next_try(waited_s: float) -> float:
    """Return the seconds until a try that has waited for a thread looks for one again."""
    soonest_s, latest_s = NO_THREAD_S
    return min(max(soonest_s, waited_s / 4), latest_s)


def _find_answered_calls(before: JobState, events: Sequence[Event]) -> tuple[AnsweredQuestion, ...]:
    """Return the questions about tool calls that these events answer."""
    handoffs = {call.version: call.handoff_id for call in before.open_calls}
    answered_calls: list[AnsweredQuestion] = []
    for place, event in enumerate(events, 1):
        if isinstance(event, Approved) and event.asked in handoffs:
            answered_calls.append(AnsweredQuestion(event.asked, handoffs[event.asked], place))
    return tuple(answered_calls)


def _sum_result_amounts(state: JobState) -> VerifiedAmounts | None:
    """Return the amounts of the results; None if no result has used anything."""
    if any(state.verified_usage.job):
        usage = state.verified_usage
        return VerifiedAmounts(usage.job, usage.day, usage.today)
    return None


def _number_events(state: JobState, now: float, events: Sequence[Event]) -> list[RecordedEvent]:
    """Return the events with the versions that the journal will give them after this state."""
    records: list[RecordedEvent] = []
    for version, event in enumerate(events, state.version + 1):
        records.append(RecordedEvent(version, now, event))
    return records


def _find_steps_with_unreadable_results(state: JobState, prepared: UnitOfWork) -> set[StepId]:
    """Return the steps whose results the decision needs but cannot read."""
    if not prepared.unreadable:
        return set()
    step_ids: set[StepId] = set()
    for step_id, step in state.steps.items():
        if step.result and step.result.digest in prepared.unreadable:
            step_ids.add(step_id)
    return step_ids


def _list_closed_handoffs(decision: JobDecision) -> tuple[HandoffId, ...]:
    """Return the handoffs that the decision closes, sorted."""
    open_handoffs = decision.state.open
    dropped_handoffs: list[HandoffId] = []
    for handoff_id in open_handoffs.find_changed_keys(decision.before.open):
        if handoff_id not in open_handoffs:
            dropped_handoffs.append(handoff_id)
    return tuple(sorted(dropped_handoffs))


def tell_end(state: JobState, recorded: Sequence[RecordedEvent], dispatcher: Dispatcher) -> None:
    """Report a job's end to OpenTelemetry and Flower, if these new events of its journal end
    it.

    The process that commits the end calls this, so the end is reported once.
    """
    ends: list[RecordedEvent] = []
    for record in recorded:
        if isinstance(record.event, JobEnded):
            ends.append(record)
    if not ends:
        return
    span = JobSpan(
        state.job_id,
        state.mode.value,
        state.status.value,
        state.status is JobStatus.FAILED,
        state.started_at,
        ends[-1].at,
        state.retries,
    )
    if get_telemetry().is_on:
        get_telemetry().record_job_end(span)
    dispatcher.tell_ended(span)
