"""advance(job): load, fold, decide, commit, then do. Run twice, late or concurrently, the job is the same."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import structlog

from shared.agent.price import prices_from
from shared.attempt import Attempts, Ended, Ending, Ready
from shared.ledger.claim import Claim
from shared.ledger.jobs import LOST_AFTER_S, HandoffStanding
from shared.ledger.journal import Commit
from shared.ledger.ledger import Ledger
from shared.ledger.looks import Look
from shared.wire.errors import (
    Interrupted,
    LedgerUnavailable,
    LooksCrowded,
    LooksFrozen,
    VersionConflict,
)
from shared.wire.events import ApprovalAsked, Recorded
from shared.wire.handoff import AgentHandoff
from shared.wire.ids import HandoffId, JobId
from shared.wire.names import THINK_QUEUE
from supervisor.children import Children
from supervisor.closing import Closing
from supervisor.dispatch import Dispatcher
from supervisor.giving_up import GivingUp
from supervisor.lifecycle.approving import approval_fields
from supervisor.lifecycle.budget import why_asked
from supervisor.lifecycle.commands import (
    AskApproval,
    Command,
    DeliverWebhook,
    PublishAgain,
    RemindUser,
    RunRole,
    StartChild,
    TellParent,
)
from supervisor.lifecycle.decide import MOST_IN_A_SLICE, decide
from supervisor.lifecycle.ending import next_due
from supervisor.lifecycle.evolve import fold_on
from supervisor.lifecycle.seen import HandoffSeen, Load, Seen
from supervisor.lifecycle.state import JobState
from supervisor.lifetimes import tell_end
from supervisor.plan_in_short import plan_fields
from supervisor.prepared import Prepared
from supervisor.preparing import Preparing
from supervisor.quoting.quoting import score_in
from supervisor.states import States
from supervisor.thinking import Thinker
from supervisor.together import Place, Together
from supervisor.webhook import Webhooks

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
        self._children = Children(ledger, attempts.library, dispatcher)
        self._closing = Closing(attempts.models, prices_from(attempts.settings), self._preparing.fact_checker)
        self._states = States(ledger.journal)
        self._giving_up = GivingUp(ledger, self._states)
        self._lease_s = attempts.settings.lease_s
        self._together = Together()

    def __call__(self, job_id: JobId, suspects: Sequence[HandoffId] = ()) -> None:
        """Take the job as far as it can go now.

        Raises:
            LedgerUnavailable: the sweeper tries again.
        """
        with self._together.place(job_id, suspects) as place:
            if place is not None:  # or somebody else looks for this one, too
                self._look_at(job_id, place)

    def _look_at(self, job_id: JobId, place: Place) -> None:
        look = self._ledger.looks.at(job_id)
        try:
            with self._attempts.leases.shown(look.sign_of_life):
                self._advance(job_id, place, look)
        except (LedgerUnavailable, Interrupted):
            look.interrupted()
            raise
        except LooksCrowded as why:
            log.warning("not looked at", job_id=job_id, why=str(why))
        except LooksFrozen:
            self._giving_up.froze(look)
        except Exception as error:  # noqa: BLE001 - logged there; what raises here would be tried for ever
            self._giving_up.stumbled(look, error)

    def _advance(self, job_id: JobId, place: Place, look: Look) -> None:
        state, suspects = self._states.load(job_id, look.begin), place.suspects
        if state is None:
            log.warning("no such job", job_id=job_id)
            self._ledger.journal.set_due(job_id, None, 0)
        conflicts = 0
        while (known := state) is not None:
            try:
                state = self._step(known, self._look(known, suspects), look, place)
                suspects = ()
            except VersionConflict:
                conflicts += 1
                if conflicts > MOST_CONFLICTS:
                    raise
                time.sleep(0.002 * min(conflicts, 10))
                state = self._states.load(job_id)
                if state is not None and state.handoffs - known.handoffs >= MOST_IN_A_SLICE:
                    look.interrupted()  # whoever has handed out a whole slice goes on: two would prepare each next one, and one in vain
                    return

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

    def _step(self, state: JobState, seen: Seen, look: Look, place: Place) -> JobState | None:
        """One decision. Returns the state to decide on next; None: nothing more can be done now."""
        now = self._ledger.connection.now()
        prepared, later = self._decide(state, seen, now)
        due_at = next_due(later, now, self._lease_s, seen)
        if prepared.is_full:  # should the wake-up be lost that follows on this slice
            due_at = min(due_at or now + LOST_AFTER_S, now + LOST_AFTER_S)
        if not prepared.events:  # before the effects: a role may run for minutes, and the job can be woken meanwhile
            self._ledger.journal.set_due(state.job_id, due_at, state.version, look.name)
            place.over()
            return self._grown(later, [self._do(later, effect, look) for effect in prepared.effects])
        self._attempts.library.remember(prepared.texts.values())
        role = prepared.role
        with self._thinker.slot(wanted=role is not None) as is_free:
            ready = self._thinker.ready(later, role.handoff, role.text, look.name) if role and is_free else None
            claim = self._commit(state, later, prepared, due_at, look, ready)
            self._publish(state.job_id, prepared)
            place.over()
            grown = [self._do(later, effect, look) for effect in prepared.effects]
            if ready and claim:
                grown.append(self._thought(later, self._thinker.run(ready, claim)))
            elif role:
                self._have_thought(later, role.handoff, role.text)
        return self._grown(later, grown)

    def _publish(self, job_id: JobId, prepared: Prepared) -> None:
        """One slice. The next is for a wake-up of its own, behind those of other jobs."""
        for group in prepared.groups:
            self._dispatcher.publish_group(job_id, group)
        if prepared.is_full:
            self._dispatcher.wake(job_id)

    def _grown(self, state: JobState, parts: Sequence[Sequence[Recorded] | None]) -> JobState | None:
        """The state after what was done has entered the journal; None: nothing did."""
        new = [recorded for recorded in parts if recorded is not None]
        if not new:
            return None
        return (self._states.fold_on(state, new[0]) if len(new) == 1 else None) or self._states.load(state.job_id)

    def _decide(self, state: JobState, seen: Seen, now: float) -> tuple[Prepared, JobState]:
        """Decide until nothing more follows, or a slice is full, as if each decision had been recorded at once; one commit for them all."""
        prepared, later = Prepared(), state
        for _ in range(MOST_DECISIONS):
            recorded = len(prepared.events)
            for command in decide(later, seen, now):
                self._preparing.record(later, command, prepared)
            new = prepared.events[recorded:]
            if not new:
                return prepared, later
            later = fold_on(later, [Recorded(later.version + n, now, event) for n, event in enumerate(new, start=1)])
            if prepared.is_full:
                return prepared, later
            if seen.handoffs:
                seen = replace(seen, handoffs={})  # what was wrong has been ordered to be mended
        raise AssertionError("decisions follow from decisions without end")

    def _commit(
        self, state: JobState, later: JobState, prepared: Prepared, due_at: float | None, look: Look, ready: Ready | None
    ) -> Claim | None:
        """Record it, and claim the role's handoff that it issues, if that is to be run here: one round trip for both."""
        asks = any(isinstance(event, ApprovalAsked) for event in prepared.events)
        fields = {"status": later.status.value, "asks": why_asked(later), **approval_fields(state, later), **self._closing.fields(later)}
        commit = Commit(
            job_id=state.job_id,
            expected=state.version,
            tip=state.as_of,
            events=prepared.events,
            payloads=list(prepared.texts.values()),
            fields=fields | plan_fields(state, later, prepared.events),
            drop=sorted(one for one in later.open.changed_since(state.open) if one not in later.open),
            keep=later.handed_over if asks else (),
            due_at=due_at,
            score=score_in(state, later),
            look=look.name,
        )
        claim = None
        if ready:
            recorded, claim = self._ledger.claims.commit_and_claim(commit, ready.claiming)
        else:
            recorded = self._ledger.journal.commit(commit)
        if recorded[0].version == state.version + 1:  # or results stand between, which the next look reads first
            tell_end(self._states.remember(later, recorded[-1]), recorded)
        return claim

    def _do(self, state: JobState, effect: Command, look: Look) -> Sequence[Recorded] | None:
        """What entered the journal by it; None: nothing did."""
        match effect:
            case PublishAgain():
                log.warning("published again", handoffs=list(effect.handoffs), job_id=state.job_id)
                if self._dispatcher.publish_again(state.job_id, self._preparing.outgoing(state, effect.handoffs)):
                    self._ledger.jobs.sent(state.job_id, effect.handoffs)
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
            case DeliverWebhook():
                self._webhooks.deliver(state, effect.attempt)
                return ()
            case AskApproval() | RemindUser():
                self._webhooks.ask(state)
                return None
            case _:
                raise AssertionError(f"{effect} is recorded, not done")

    def _run_role(self, state: JobState, handoff: AgentHandoff, text: str, look: Look) -> Sequence[Recorded] | None:
        """Think here, or have somebody else think if this process's slots run short. Returns what entered the journal by it."""
        with self._thinker.slot() as is_free:
            if is_free:
                return self._thought(state, self._thinker.think(state, handoff, text, look.name))
        self._have_thought(state, handoff, text)
        return None

    def _thought(self, state: JobState, ended: Ended) -> Sequence[Recorded] | None:
        if ended.how is Ending.HANDED_BACK:  # this process shuts down, and no message goes back to a queue
            self._dispatcher.wake(state.job_id)
        return ended.recorded if ended.how is Ending.FINISHED else None

    def _have_thought(self, state: JobState, handoff: AgentHandoff, text: str) -> None:
        if self._ledger.jobs.queue(state.job_id, handoff.handoff_id, THINK_QUEUE) and self._dispatcher.think(handoff, text):
            self._ledger.jobs.sent(state.job_id, [handoff.handoff_id])

    def _look(self, state: JobState, suspects: Sequence[HandoffId]) -> Seen:
        """What is to be known outside the journal; of handoffs, nothing is asked where nothing is suspect."""
        there, checker = self._preparing.briefing.there(state), state.submitted.fact_checker
        ask = list(dict.fromkeys([*suspects, *state.overview.apart]))
        standings = self._ledger.jobs.handoffs(state.job_id, ask)
        return Seen(
            roles=frozenset(there),
            loads={name: Load(one.spec.capability, one.queued, one.slots) for name, one in there.items() if one.spec.capability},
            handoffs={i: _seen(found) for i, found in standings.items()},
            is_fact_checker_away=checker is not None and checker not in self._ledger.roles.served(),
        )


def _seen(found: HandoffStanding) -> HandoffSeen:
    return HandoffSeen(found.state, found.lease_until, found.lost, bool(found.queue), found.held)
