"""One attempt at a handoff, from its message to its stored result: for workers and for the
supervisor's own roles.

The attempt loads the payloads, claims the handoff, runs the agent loop and stores the result. It
always ends in one of the ways of `AttemptEnd`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from handoff_queue.shared.agent.loop import Agent
from handoff_queue.shared.agent.prices import prices_from
from handoff_queue.shared.agent.prompt import LoadedPayloads, opening_of
from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.broker.attempt_outcome import (
    WITHOUT_A_CLAIM,
    AttemptEnd,
    AttemptOutcome,
    figures_of,
    finished_event,
    outcome_of_interrupt,
)
from handoff_queue.shared.observability.logs import log_of, logged_as
from handoff_queue.shared.observability.telemetry import telemetry
from handoff_queue.shared.runtime.agent_setup import (
    Conclude,
    Consequences,
    Fit,
    Runner,
    nothing_follows,
)
from handoff_queue.shared.runtime.models import Models
from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.specialists.tool_grants import grant_spec
from handoff_queue.shared.store.claim import Claim, ClaimVerdict
from handoff_queue.shared.store.claims import MAX_CLAIMS, ClaimRequest
from handoff_queue.shared.store.finish_request import FinishReply, FinishRequest
from handoff_queue.shared.store.leases import Leases
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import ToolCallStarted, WorstCase
from handoff_queue.shared.types.errors import (
    Cancelled,
    Interrupted,
    MalformedMessage,
    StoreError,
    StoreUnavailable,
    UserError,
)
from handoff_queue.shared.types.handoff import (
    AgentHandoff,
    HandoffResult,
    StopReason,
    failed_result,
)
from handoff_queue.shared.types.message import digest_of
from handoff_queue.shared.types.rate_limits import Expected
from handoff_queue.shared.types.results import result_in
from handoff_queue.shared.types.specialist import SpecialistSpec, spec_from

AWAY_PAUSE_S = 1.0
"""A worker whose store is away gives a message back no faster than this."""
log = log_of(__name__)

Finish = Callable[[Claim, FinishRequest], FinishReply]
"""Tells the store. Raises `Interrupted` where the claim holds no more."""
_First = tuple[WorstCase | None, Expected | None]
"""Upper bound of a handoff's first call, and its expected share of the rate limits."""
_NO_CALL: _First = (None, None)


@dataclass(frozen=True, slots=True)
class PreparedAttempt:
    """A handoff that can be claimed and run here."""

    handoff: AgentHandoff
    claiming: ClaimRequest
    runner: Runner | HandoffResult
    """A result: why it cannot be run."""
    conclude: Conclude


@dataclass(slots=True)
class Attempts:
    """Runs attempts in this process; shared by its threads."""

    store: Store
    settings: Settings
    worker: str
    """This process's name, as Celery calls it."""
    leases: Leases
    library: PayloadCache
    models: Models

    def attempt(
        self,
        text: str,
        handoff: AgentHandoff,
        fit: Fit,
        conclude: Conclude = nothing_follows,
        *,
        own: SpecialistSpec | None = None,
    ) -> AttemptOutcome:
        """Claim the handoff that the message `text` holds, and run it to its end. `own`: see
        `ready`.

        Without a store nothing can be begun: the message goes back to its queue, after a
        moment, so that a queue is not popped empty.

        Raises:
            StoreUnavailable: later on; nothing is lost, for the lease runs out, and the
            sweeper has it run again.
        """
        try:
            ready = self.ready(text, handoff, fit, conclude, own=own)
            claim = self.store.claims.claim(ready.claiming)
        except StoreUnavailable as error:
            time.sleep(AWAY_PAUSE_S)
            return AttemptOutcome(
                AttemptEnd.HANDED_BACK, f"without a store nothing can be begun: {error}"
            )
        return self.run(ready, claim)

    def ready(
        self,
        text: str,
        handoff: AgentHandoff,
        fit: Fit,
        conclude: Conclude = nothing_follows,
        *,
        own: SpecialistSpec | None = None,
    ) -> PreparedAttempt:
        """Prepare the run of a handoff. Return a failed result if this process cannot run it.

        An exception before the claim would cause endless retries, because only claims are counted.

        Args:
            own: the agent's file in this process. The spec that the handoff refers to may only
                narrow it, see `grant_spec`. None: the spec is taken as it is.

        Raises:
            StoreUnavailable: a payload could not be read now.
        """
        with logged_as(
            job_id=handoff.job_id, handoff_id=handoff.handoff_id
        ):  # another one may just be ended in this thread
            runner, first = self._prepared(handoff, fit, own)
        limits, whose = (
            handoff.limits,
            (handoff.job_id, handoff.handoff_id, digest_of(text), self.worker),
        )
        claiming = ClaimRequest(
            *whose, *first, deadline=limits.deadline, max_seconds=limits.max_seconds
        )
        return PreparedAttempt(handoff, claiming, runner, conclude)

    def run(
        self, ready: PreparedAttempt, claim: Claim, finish: Finish = Claim.finish
    ) -> AttemptOutcome:
        """Run it to its end under this claim, if it is one. `finish`: how the store is told.

        Raises:
            StoreUnavailable: nothing is lost; the lease runs out, and the sweeper has it run
            again.
        """
        if claim.verdict not in (ClaimVerdict.GRANTED, ClaimVerdict.EXHAUSTED):
            return AttemptOutcome(
                WITHOUT_A_CLAIM.get(claim.verdict, AttemptEnd.UNWANTED), claim.verdict.value
            )
        handoff, runner = ready.handoff, ready.runner
        if isinstance(runner, HandoffResult):
            model = None
        else:
            model = runner.model_name
        with (
            self.leases.held(claim),
            logged_as(job_id=handoff.job_id, handoff_id=handoff.handoff_id),
            telemetry().handoff(handoff, model, claim.started_at) as span,
        ):
            try:
                ended = self._finish(claim, handoff, *self._worked(claim, ready), finish)
            except Interrupted as reason:
                if isinstance(reason, Cancelled):
                    span.dropped()
                return outcome_of_interrupt(claim, reason)
            if ended.result is not None:
                span.finished(ended.result)
            return ended

    def _worked(self, claim: Claim, ready: PreparedAttempt) -> tuple[HandoffResult, Consequences]:
        try:
            return self._concluded(ready.handoff, self._result(claim, ready), ready.conclude)
        except StoreError:
            claim.write_down()  # otherwise the next claim would pay for the same calls again
            raise

    def _result(self, claim: Claim, ready: PreparedAttempt) -> HandoffResult:
        """Return the result, which says if a tool with effects may have run, under any claim."""
        result = self._own_result(claim, ready)
        acted = any(isinstance(item, ToolCallStarted) for item in claim.so_far())
        if acted:
            return result.model_copy(update={"acted": True})
        return result

    def _own_result(self, claim: Claim, ready: PreparedAttempt) -> HandoffResult:
        if claim.verdict is ClaimVerdict.EXHAUSTED:
            why = f"its worker died or froze {MAX_CLAIMS} times while running it"
            return failed_result(ready.handoff, why, StopReason.TOO_MANY_CLAIMS)
        if claim.unreadable is not None:
            return failed_result(
                ready.handoff,
                f"the checkpoints of its earlier claims cannot be read: {claim.unreadable}",
            )
        runner = ready.runner
        if isinstance(runner, HandoffResult):
            return runner
        return runner.run(claim, claim.ends_at)

    def _prepared(
        self, handoff: AgentHandoff, fit: Fit, own: SpecialistSpec | None
    ) -> tuple[Runner | HandoffResult, _First]:
        try:
            runner = self._runner(handoff, fit, own)
            return runner, runner.first_call()
        except StoreUnavailable:
            raise
        except (StoreError, MalformedMessage) as error:
            return failed_result(
                handoff, f"a payload of the handoff cannot be read: {error}"
            ), _NO_CALL
        except UserError as error:
            return failed_result(handoff, f"worker {self.worker} cannot run it: {error}"), _NO_CALL
        except Exception as error:
            log.exception("defect before a handoff")
            return failed_result(
                handoff, f"an internal error before the run: {type(error).__name__}"
            ), _NO_CALL

    def _runner(self, handoff: AgentHandoff, fit: Fit, own: SpecialistSpec | None) -> Runner:
        pinned, loaded = self._load(handoff)
        if own is not None:
            spec = grant_spec(pinned, own)
        else:
            spec = pinned
        books = self.library.of_job(
            handoff.job_id, handoff.handoff_id, loaded.manifest, handoff.limits.deadline
        )
        fitting = fit(handoff, spec, loaded, books)
        if fitting.runner is not None:
            return fitting.runner
        model_name = self.models.name_of(handoff.model, spec)
        equipment = RunDependencies(
            model=self.models.of(model_name),
            model_name=model_name,
            lane=self.models.lane_of(model_name),
            reading=fitting.reading,
            prices=prices_from(self.settings),
            tools=fitting.tools,
            tool_context=books.tool_context,
            now=self.store.connection.now,
            silence_s=self.settings.model_silence_s,
            progress_s=self.settings.model_progress_s,
            rate_wait_s=self.settings.rate_wait_s,
            streams_draft=fitting.streams_draft,
        )
        return Agent(
            handoff,
            spec,
            opening_of(handoff, spec, loaded, answer_rules=fitting.answer_rules),
            equipment,
        )

    def _load(self, handoff: AgentHandoff) -> tuple[SpecialistSpec, LoadedPayloads]:
        """Load the specialist, the results and the manifest of a handoff, in one round trip. A
        damaged result counts as failed.

        Raises:
            StoreError: the specialist or the manifest is gone or damaged.
        """
        refs = [item.result.digest for item in handoff.context]
        previous = [item.previous.digest for item in handoff.feedback if item.previous]
        manifest = None
        for artifact in handoff.artifacts:
            if artifact.kind == "documents":
                manifest = artifact.manifest.digest
                break
        texts = self.library.payloads(
            handoff.job_id,
            [handoff.specialist, *([manifest] if manifest else [])],
            results=[*refs, *previous],
        )
        spec = spec_from(texts[handoff.specialist])
        return spec, LoadedPayloads(
            results={
                item.step_id: result_in(texts[item.result.digest]) for item in handoff.context
            },
            previous={digest: result_in(texts[digest]) for digest in previous},
            manifest=self.library.manifest(texts[manifest])
            if manifest
            else LoadedPayloads().manifest,
        )

    def _finish(
        self,
        claim: Claim,
        handoff: AgentHandoff,
        result: HandoffResult,
        followed: Consequences,
        finish: Finish,
    ) -> AttemptOutcome:
        text = result.to_json()
        finished = finished_event(result, self.worker, text)
        self.library.remember((text, *followed.payloads))
        done = finish(claim, claim.end(result, (finished, *followed.events), followed.payloads))
        if log.isEnabledFor(logging.INFO):
            log.info("handoff finished", **figures_of(claim, handoff, result, done.recorded[0].at))
        return AttemptOutcome(
            AttemptEnd.FINISHED,
            result.status.value,
            result,
            done.parts_left,
            done.wakes,
            done.recorded,
        )

    def _concluded(
        self, handoff: AgentHandoff, result: HandoffResult, conclude: Conclude
    ) -> tuple[HandoffResult, Consequences]:
        """Return the result and its consequences. If our own code raises, return a failed result
        and the consequences of the failure.
        """
        try:
            return result, conclude(handoff, result)
        except (StoreUnavailable, Interrupted):
            raise
        except Exception as error:
            log.exception("defect after a handoff")
            why = failed_result(handoff, f"an internal error after the run: {type(error).__name__}")
            instead = why.model_copy(
                update={
                    "usage": result.usage,
                    "turns": result.turns,
                    "model": result.model,
                    "acted": result.acted,
                }
            )
        try:
            return instead, conclude(handoff, instead)
        except (StoreUnavailable, Interrupted):
            raise
        except Exception:
            log.exception("defect after a failed handoff")
            return instead, Consequences()
