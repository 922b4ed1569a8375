"""One attempt at a handoff, from its message to its stored result. Workers use it for
specialists, and supervisors for roles.

An attempt loads the payloads, claims the handoff, runs the agent loop and stores the result.
It always ends in one of the ways of `AttemptEnd`.

Workers and supervisors provide different functions for the set-up of a handoff's run (`MakeSetup`)
and for the consequences of its result (`Conclude`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_hex

from handoff_queue.shared.agent.call_reservation import UNKNOWN_CALL, FirstCall
from handoff_queue.shared.agent.loop import Agent
from handoff_queue.shared.broker.attempt_outcome import (
    OUTCOME_OF_REFUSAL,
    AttemptEnd,
    AttemptOutcome,
    build_handoff_finished_event,
    collect_figures,
    handle_interrupt,
)
from handoff_queue.shared.observability.logs import get_log, logged_as
from handoff_queue.shared.observability.redaction import Redactor, find_secret_settings
from handoff_queue.shared.observability.telemetry import get_telemetry
from handoff_queue.shared.runtime.models import Models
from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.runtime.runner_factory import MakeSetup, Runner, RunnerFactory
from handoff_queue.shared.runtime.shared_run import SharedRequest
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.claim import ClaimVerdict, FinishReply, FinishRequest, HandoffClaim
from handoff_queue.shared.store.claim_requests import MAX_CLAIMS, ClaimRequest
from handoff_queue.shared.store.leases import Leases
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.trust.event_signatures import WORD_BYTES
from handoff_queue.shared.types.checkpoints import ToolCallStarted
from handoff_queue.shared.types.errors import (
    Cancelled,
    Interrupted,
    MalformedMessage,
    MessagesWaiting,
    StoreError,
    StoreUnavailable,
    UserError,
)
from handoff_queue.shared.types.events import Event
from handoff_queue.shared.types.handoff import (
    AgentHandoff,
    HandoffResult,
    StopReason,
    build_failed_result,
)
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.specialist import SpecialistSpec

log = get_log(__name__)


OUTAGE_PAUSE_S = 1.0
"""Seconds that a worker waits before it hands a message back because Redis is unreachable."""
Finish = Callable[[HandoffClaim, FinishRequest], FinishReply]
"""Function that stores the end of a handoff. It raises `Interrupted` if the claim is lost, and
`MessagesWaiting` if the agent must first take messages of users.
"""


@dataclass(frozen=True, slots=True)
class Consequences:
    """Events that follow from a result. The store writes them in the same step as the result."""

    events: tuple[Event, ...] = ()
    payloads: tuple[str, ...] = ()
    """Texts that the events refer to by digest."""


Conclude = Callable[[AgentHandoff, HandoffResult], Consequences]
"""Function that returns the consequences of a result."""


def no_consequences(_handoff: AgentHandoff, _result: HandoffResult) -> Consequences:
    """Return no consequences."""
    return Consequences()


@dataclass(frozen=True, slots=True)
class PreparedAttempt:
    """A handoff that this process can claim and end."""

    handoff: AgentHandoff
    claiming: ClaimRequest
    runner: Runner | HandoffResult
    """The runner, or a failed result if this process cannot run the handoff."""
    conclude: Conclude
    shared: SharedRequest | None = None
    """The request, if equal handoffs share its run."""


@dataclass(frozen=True, slots=True)
class _PreparedRunner:
    """The runner of a handoff, or a failed result if this process cannot run it."""

    runner: Runner | HandoffResult
    shared: SharedRequest | None = None
    """The request, if equal handoffs share its run."""
    first_call: FirstCall = UNKNOWN_CALL


@dataclass(slots=True)
class Attempts:
    """The attempts of this process. Its threads share this object."""

    store: Store
    settings: Settings
    worker: str
    """Name of this process: host name and process id."""
    leases: Leases
    payload_cache: PayloadCache
    models: Models
    _redactor: Redactor = field(init=False)

    def __post_init__(self) -> None:
        self._redactor = Redactor(find_secret_settings(self.settings))

    def attempt(
        self,
        text: str,
        handoff: AgentHandoff,
        make_setup: MakeSetup,
        conclude: Conclude = no_consequences,
        *,
        own_spec: SpecialistSpec | None = None,
    ) -> AttemptOutcome:
        """Claim a handoff, and run it to its end.

        If Redis is unreachable before the claim, the message goes back to its queue. A pause
        before that keeps the worker from emptying its queues in a loop.

        Args:
            text: text of the message.
            handoff: the parsed message.
            make_setup: function that sets up the run.
            conclude: function that returns the consequences of the result.
            own_spec: see `prepare`.

        Raises:
            StoreUnavailable: Redis was unreachable after the claim. Nothing is lost: the lease
                expires, and the sweeper publishes the handoff again.
        """
        try:
            ready = self.prepare(text, handoff, make_setup, conclude, own_spec=own_spec)
            claim = self.store.claims.claim(ready.claiming)
        except StoreUnavailable as error:
            time.sleep(OUTAGE_PAUSE_S)
            return AttemptOutcome(
                AttemptEnd.HANDED_BACK, f"the worker cannot start a handoff without Redis: {error}"
            )
        return self.run(ready, claim)

    def prepare(
        self,
        text: str,
        handoff: AgentHandoff,
        make_setup: MakeSetup,
        conclude: Conclude = no_consequences,
        *,
        own_spec: SpecialistSpec | None = None,
    ) -> PreparedAttempt:
        """Prepare the run of a handoff. If this process cannot run it, the prepared attempt
        has a failed result.

        An exception before the claim would cause endless retries, because only claims are
        counted.

        Args:
            text: text of the message.
            own_spec: spec of the specialist's file in this process. The spec that the handoff
                refers to may only narrow it, see `grant_spec`. None: the spec of the handoff is
                used unchanged.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        # the thread may be in the log context of another handoff, which it is just ending
        with logged_as(job_id=handoff.job_id, handoff_id=handoff.handoff_id):
            prepared = self._prepare_runner(handoff, make_setup, own_spec)
        claiming = ClaimRequest(
            handoff.job_id,
            handoff.handoff_id,
            compute_digest(text),
            self.worker,
            prepared.first_call.worst,
            prepared.first_call.expected,
            deadline=handoff.limits.deadline,
            max_seconds=handoff.limits.max_seconds,
            max_microusd=handoff.limits.max_microusd,
            run_name="" if prepared.shared is None else prepared.shared.name,
        )
        return PreparedAttempt(handoff, claiming, prepared.runner, conclude, prepared.shared)

    def run(
        self, ready: PreparedAttempt, claim: HandoffClaim, finish: Finish = HandoffClaim.finish
    ) -> AttemptOutcome:
        """Run a prepared handoff to its end, if the claim was granted.

        Args:
            finish: function that stores the end.

        Raises:
            StoreUnavailable: Redis is unreachable. Nothing is lost: the lease expires, and the
                sweeper publishes the handoff again.
        """
        if claim.verdict not in (ClaimVerdict.GRANTED, ClaimVerdict.EXHAUSTED):
            end = OUTCOME_OF_REFUSAL.get(claim.verdict, AttemptEnd.UNWANTED)
            return AttemptOutcome(end, claim.verdict.value)
        handoff = ready.handoff
        model = None
        if not isinstance(ready.runner, HandoffResult):
            model = ready.runner.model_name
        with (
            self.leases.keep_renewed(claim),
            logged_as(job_id=handoff.job_id, handoff_id=handoff.handoff_id),
            get_telemetry().handoff(handoff, model, claim.started_at) as span,
        ):
            try:
                outcome = self._run_to_end(claim, ready, finish)
            except Interrupted as reason:
                if isinstance(reason, Cancelled):
                    span.mark_dropped()
                return handle_interrupt(claim, reason)
            if outcome.result is not None:
                span.record_result(outcome.result)
            return outcome

    def _run_to_end(
        self, claim: HandoffClaim, ready: PreparedAttempt, finish: Finish
    ) -> AttemptOutcome:
        """Do the work, and store its result. If users have sent messages during the last call,
        the agent takes them first, and changes its result.
        """
        while True:
            result, consequences = self._run_and_conclude(claim, ready)
            try:
                return self._finish(claim, ready, result, consequences, finish)
            except MessagesWaiting:
                log.debug("users have sent messages during the last call")

    def _run_and_conclude(
        self, claim: HandoffClaim, ready: PreparedAttempt
    ) -> tuple[HandoffResult, Consequences]:
        """Do the work, and return the result and its consequences. If the store fails, try to
        store the waiting checkpoints, so that the next claim does not pay for the same calls
        again.
        """
        try:
            result = self._produce_result(claim, ready)
            word = token_hex(WORD_BYTES) if claim.trust.is_on else None
            return self._conclude_result(ready.handoff, result, ready.conclude, word)
        except StoreError:
            claim.store_waiting_checkpoints()
            raise

    def _produce_result(self, claim: HandoffClaim, ready: PreparedAttempt) -> HandoffResult:
        """Return the result of the handoff. It says whether a tool with effects may have run
        under an earlier claim.
        """
        result = self._run_own(claim, ready)
        for checkpoint in claim.load_earlier_checkpoints():
            if isinstance(checkpoint, ToolCallStarted):
                return result.model_copy(update={"acted": True})
        return result

    def _run_own(self, claim: HandoffClaim, ready: PreparedAttempt) -> HandoffResult:
        """Return the result of the runner, or a failed result if the runner must not run. If an
        equal handoff has run, return a copy of its result.
        """
        if claim.verdict is ClaimVerdict.EXHAUSTED:
            why = f"its worker died or froze {MAX_CLAIMS} times while running it"
            return build_failed_result(ready.handoff, why, StopReason.TOO_MANY_CLAIMS)
        if claim.unreadable is not None:
            return build_failed_result(
                ready.handoff,
                f"the checkpoints of its earlier claims cannot be read: {claim.unreadable}",
            )
        runner = ready.runner
        if isinstance(runner, HandoffResult):
            return runner
        if ready.shared is not None and claim.copied_run is not None:
            copied_result = ready.shared.copy_result(claim.copied_run)
            if copied_result is not None:
                return copied_result
        return runner.run(claim, claim.ends_at)

    def _prepare_runner(
        self, handoff: AgentHandoff, make_setup: MakeSetup, own_spec: SpecialistSpec | None
    ) -> _PreparedRunner:
        """Return the runner of a handoff, or a failed result.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        try:
            factory = RunnerFactory(
                self.store, self.settings, self.payload_cache, self.models, self._redactor
            )
            runner, shared = factory.make(handoff, make_setup, own_spec)
            return _PreparedRunner(runner, shared, runner.estimate_first_call())
        except StoreUnavailable:
            raise
        except (StoreError, MalformedMessage) as error:
            failure = build_failed_result(
                handoff, f"a payload of the handoff cannot be read: {error}"
            )
        except UserError as error:
            failure = build_failed_result(handoff, f"worker {self.worker} cannot run it: {error}")
        except Exception as error:
            log.exception("internal error before an attempt")
            why = f"an internal error before the run: {type(error).__name__}"
            failure = build_failed_result(handoff, why)
        return _PreparedRunner(failure)

    def _finish(
        self,
        claim: HandoffClaim,
        ready: PreparedAttempt,
        result: HandoffResult,
        consequences: Consequences,
        finish: Finish,
    ) -> AttemptOutcome:
        """Store the result with its consequences, and return the outcome.

        Raises:
            MessagesWaiting: the agent can still change its result, and must first take messages.
        """
        runner = ready.runner
        text = result.to_json()
        finished = build_handoff_finished_event(result, self.worker, text)
        self.payload_cache.remember((text, *consequences.payloads), claim.job_id)
        request = claim.build_finish_request(
            result,
            (finished, *consequences.events),
            consequences.payloads,
            takes_messages=isinstance(runner, Agent) and runner.can_take_messages,
        )
        end = finish(claim, request)
        if log.isEnabledFor(logging.INFO):
            log.info(
                "handoff finished",
                **collect_figures(claim, ready.handoff, result, end.recorded[0].at),
            )
        return AttemptOutcome(
            AttemptEnd.FINISHED,
            result.status.value,
            result,
            end.parts_left,
            end.wakes,
            end.recorded,
        )

    def _conclude_result(
        self, handoff: AgentHandoff, result: HandoffResult, conclude: Conclude, word: str | None
    ) -> tuple[HandoffResult, Consequences]:
        """Return the result and its consequences. If `conclude` raises an unexpected error,
        return a failed result and its consequences.

        Args:
            word: the random word of the result. The consequences name the digest of the result, so
                it has its word before.
        """
        result = result.model_copy(update={"word": word})
        try:
            return result, conclude(handoff, result)
        except (StoreUnavailable, Interrupted):
            raise
        except Exception as error:
            log.exception("internal error after an attempt")
            why = build_failed_result(
                handoff, f"an internal error after the run: {type(error).__name__}"
            )
            instead = why.model_copy(
                update={
                    "usage": result.usage,
                    "turns": result.turns,
                    "model": result.model,
                    "replies_by_model": result.replies_by_model,
                    "acted": result.acted,
                    "word": word,
                }
            )
        try:
            return instead, conclude(handoff, instead)
        except (StoreUnavailable, Interrupted):
            raise
        except Exception:
            log.exception("internal error after a failed attempt")
            return instead, Consequences()
