"""advance(job): load, fold, decide, commit, then do. Run twice, late or concurrently, the job is the same."""

from __future__ import annotations

import time
from collections.abc import Sequence

import structlog

from shared.agent.price import prices_from
from shared.attempt import Attempts, Ended, Ending, Ready
from shared.ledger.claim import Claim
from shared.ledger.jobs import HandoffStanding
from shared.ledger.journal import Commit
from shared.ledger.ledger import Ledger
from shared.wire.errors import HandoffError, Interrupted, LedgerUnavailable, MalformedMessage, VersionConflict
from shared.wire.events import ApprovalAsked, JobEnded, JobStatus, Recorded
from shared.wire.handoff import AgentHandoff
from shared.wire.ids import HandoffId, JobId
from shared.wire.names import SUPERVISOR_QUEUE, THINK_QUEUE
from supervisor.closing import Closing
from supervisor.dispatch import Dispatcher
from supervisor.lifecycle.approving import approval_fields
from supervisor.lifecycle.budget import kept_back, why_asked
from supervisor.lifecycle.commands import (
    AskApproval,
    Command,
    DeliverWebhook,
    PublishAgain,
    RemindUser,
    RunRole,
)
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.ending import next_due
from supervisor.lifecycle.evolve import fold_on
from supervisor.lifecycle.failing import has_failed
from supervisor.lifecycle.seen import HandoffSeen, Seen
from supervisor.lifecycle.state import JobState
from supervisor.prepared import Prepared
from supervisor.preparing import Preparing
from supervisor.states import States
from supervisor.thinking import Thinker
from supervisor.webhook import Webhooks

MOST_STUMBLES = 8
"""Looks in a row at which our own code fails for a job; with `stumble.lua`'s pauses they take about four minutes."""
MOST_DECISIONS = 100
"""That follow from one another without anything from outside: a job has five phases."""
MOST_CONFLICTS = 50
"""In a row; every one of them means that somebody else has made progress."""

log = structlog.get_logger()


class Advance:
    """The shell. One in a supervisor process, called by its threads."""

    def __init__(self, ledger: Ledger, dispatcher: Dispatcher, attempts: Attempts, thinker: Thinker, webhooks: Webhooks) -> None:
        self._ledger = ledger
        self._dispatcher = dispatcher
        self._thinker = thinker
        self._webhooks = webhooks
        self._attempts = attempts
        self._preparing = Preparing(ledger, attempts.library)
        self._closing = Closing(attempts.models, prices_from(attempts.settings))
        self._states = States(ledger.journal)
        self._lease_s = attempts.settings.lease_s

    def __call__(self, job_id: JobId, suspects: Sequence[HandoffId] = (), woken_by: str = "") -> None:
        """Take the job as far as it can go now. `woken_by`: the queue whose remembered wake-up this is, if it is one.

        Raises:
            LedgerUnavailable: the sweeper tries again.
        """
        try:
            self._advance(job_id, suspects, woken_by)
        except (LedgerUnavailable, Interrupted):
            raise
        except Exception as error:  # noqa: BLE001 - logged there; what raises here would be tried for ever
            self._stumbled(job_id, error, woken_by)

    def _advance(self, job_id: JobId, suspects: Sequence[HandoffId], woken_by: str) -> None:
        state = self._states.load(job_id)
        if state is None:
            log.warning("no such job", job_id=job_id)
            self._ledger.journal.set_due(job_id, None, 0, woken_by)
        conflicts = 0
        while state is not None:
            try:
                state = self._step(state, self._look(state, suspects), woken_by)
                suspects = ()
            except VersionConflict:
                conflicts += 1
                if conflicts > MOST_CONFLICTS:
                    raise
                time.sleep(0.002 * min(conflicts, 10))
                state = self._states.load(job_id)

    def _stumbled(self, job_id: JobId, error: Exception, woken_by: str) -> None:
        """A journal or a payload that this version cannot read, or a defect of ours: looked at again, later each time. What cannot be read
        another version may be able to, until the job's time is over. A defect ends the job after `MOST_STUMBLES`, with that reason.
        """
        why = str(error) if isinstance(error, HandoffError) else type(error).__name__
        log.error("a job cannot be carried on", job_id=job_id, why=why, exc_info=not isinstance(error, HandoffError))
        times = self._ledger.journal.stumble(job_id, woken_by)
        if times == 1:
            self._ledger.dead.add(SUPERVISOR_QUEUE, f"{job_id} cannot be carried on: {why}", job_id)
        if times < MOST_STUMBLES:
            return
        try:
            state = self._states.load(job_id)
        except MalformedMessage:  # nobody here can say how far it is: that is left to who can
            return
        now = self._ledger.connection.now()
        is_unreadable = isinstance(error, MalformedMessage) and state is not None and now < state.deadline
        if state is not None and not state.ended and not is_unreadable:
            reason = f"a defect of ours ({type(error).__name__}): see the supervisor's log; what steps have found is in `handoff show`"
            end = Prepared(events=[JobEnded(status=JobStatus.FAILED, reason=reason)])
            later = fold_on(state, [Recorded(state.version + 1, now, end.events[0])])
            self._commit(state, later, end, next_due(later, now, claim_within_s=self._lease_s), "", None)

    def think(self, handoff: AgentHandoff, text: str) -> Ended:
        """Run a role's handoff that came from the think queue, then go on with the job."""
        state = self._states.load(handoff.job_id)
        if state is None or handoff.handoff_id not in state.open:
            return Ended(Ending.UNWANTED, "duplicate")
        with self._thinker.slot() as is_free:
            if not is_free:  # it was fetched just before this process stopped to take from that queue
                return Ended(Ending.HANDED_BACK, "no slot to think is free")
            ended = self._thinker.think(state, handoff, text)
        if ended.how is Ending.FINISHED:
            self(handoff.job_id)
        return ended

    def _step(self, state: JobState, seen: Seen, woken_by: str) -> JobState | None:
        """One decision. Returns the state to decide on next; None: nothing more can be done now."""
        now = self._ledger.connection.now()
        prepared, later = self._decide(state, seen, now)
        due_at = next_due(later, now, self._lease_s, seen)
        if not prepared.events:  # before the effects: a role may run for minutes, and the job can be woken meanwhile
            self._ledger.journal.set_due(state.job_id, due_at, state.version, woken_by)
            return self._grown(later, [self._do(later, effect) for effect in prepared.effects])
        self._attempts.library.remember(prepared.texts.values())
        role = prepared.role
        with self._thinker.slot(wanted=role is not None) as is_free:
            ready = self._thinker.ready(later, role.handoff, role.text) if role and is_free else None
            claim = self._commit(state, later, prepared, due_at, woken_by, ready)
            for group in prepared.groups:
                self._dispatcher.publish_group(state.job_id, group)
            grown = [self._do(later, effect) for effect in prepared.effects]
            if ready and claim:
                grown.append(self._thought(later, self._thinker.run(ready, claim)))
            elif role:
                self._have_thought(later, role.handoff, role.text)
        return self._grown(later, grown)

    def _grown(self, state: JobState, parts: Sequence[Sequence[Recorded] | None]) -> JobState | None:
        """The state after what was done has entered the journal; None: nothing did."""
        new = [recorded for recorded in parts if recorded is not None]
        if not new:
            return None
        return (self._states.fold_on(state, new[0]) if len(new) == 1 else None) or self._states.load(state.job_id)

    def _decide(self, state: JobState, seen: Seen, now: float) -> tuple[Prepared, JobState]:
        """Decide until nothing more follows, as if each decision had been recorded at once; one commit records them all."""
        prepared, later = Prepared(), state
        for _ in range(MOST_DECISIONS):
            recorded = len(prepared.events)
            for command in decide(later, seen, now):
                self._preparing.record(later, command, prepared)
            new = prepared.events[recorded:]
            if not new:
                return prepared, later
            later = fold_on(later, [Recorded(later.version + n, now, event) for n, event in enumerate(new, start=1)])
            seen = Seen(roles=seen.roles)  # what was wrong has been ordered to be mended
        raise AssertionError("decisions follow from decisions without end")

    def _commit(
        self, state: JobState, later: JobState, prepared: Prepared, due_at: float | None, woken_by: str, ready: Ready | None
    ) -> Claim | None:
        """Record it, and claim the role's handoff that it issues, if that is to be run here: one round trip for both."""
        kept = kept_back(later, self._closing.foreseen(later))
        asks = any(isinstance(event, ApprovalAsked) for event in prepared.events)
        commit = Commit(
            job_id=state.job_id,
            expected=state.version,
            tip=state.as_of,
            events=prepared.events,
            payloads=list(prepared.texts.values()),
            fields={"status": later.status.value, "asks": why_asked(later), **approval_fields(state, later), **kept},
            drop=sorted(state.open.keys() - later.open.keys()),
            keep=later.handed_over if asks else (),
            due_at=due_at,
            woken_by=woken_by,
        )
        claim = None
        if ready:
            recorded, claim = self._ledger.claims.commit_and_claim(commit, ready.claiming)
        else:
            recorded = self._ledger.journal.commit(commit)
        self._states.remember(later, recorded[-1])
        return claim

    def _do(self, state: JobState, effect: Command) -> Sequence[Recorded] | None:
        """What entered the journal by it; None: nothing did."""
        match effect:
            case PublishAgain():
                log.warning("published again", handoffs=list(effect.handoffs), job_id=state.job_id)
                self._dispatcher.publish_again(state.job_id, self._preparing.outgoing(state, effect.handoffs))
                return None
            case RunRole():
                item = next(iter(self._preparing.outgoing(state, [effect.handoff_id])), None)
                return self._run_role(state, item.handoff, item.text) if item else None
            case DeliverWebhook():
                self._webhooks.deliver(state, effect.attempt)
                return ()
            case AskApproval() | RemindUser():
                self._webhooks.ask(state)
                return None
            case _:
                raise AssertionError(f"{effect} is recorded, not done")

    def _run_role(self, state: JobState, handoff: AgentHandoff, text: str) -> Sequence[Recorded] | None:
        """Think here, or have somebody else think if this process's slots run short. Returns what entered the journal by it."""
        with self._thinker.slot() as is_free:
            if is_free:
                return self._thought(state, self._thinker.think(state, handoff, text))
        self._have_thought(state, handoff, text)
        return None

    def _thought(self, state: JobState, ended: Ended) -> Sequence[Recorded] | None:
        if ended.how is Ending.HANDED_BACK:  # this process shuts down, and no message goes back to a queue
            self._dispatcher.wake(state.job_id)
        return ended.recorded if ended.how is Ending.FINISHED else None

    def _have_thought(self, state: JobState, handoff: AgentHandoff, text: str) -> None:
        if self._ledger.jobs.queue(state.job_id, handoff.handoff_id, THINK_QUEUE):
            self._dispatcher.think(handoff, text)

    def _look(self, state: JobState, suspects: Sequence[HandoffId]) -> Seen:
        """What is to be known outside the journal; nothing is asked where nothing is suspect."""
        is_asked = state.plan is None or any(map(has_failed, state.steps.values()))
        roles = frozenset(one.name for one in self._preparing.candidates(state)) if is_asked else frozenset()
        ask = list(dict.fromkeys([*suspects, *(i for i, handoff in state.open.items() if handoff.group is None)]))
        standings = self._ledger.jobs.handoffs(state.job_id, ask)
        return Seen(
            roles=roles,
            handoffs={i: _seen(found) for i, found in standings.items()},
        )


def _seen(found: HandoffStanding) -> HandoffSeen:
    return HandoffSeen(found.state, found.lease_until, found.lost, bool(found.queue), found.held)
