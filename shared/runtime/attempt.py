"""One attempt at a handoff, from its message to its stored result. Workers use it for
specialists, and supervisors for roles.

An attempt loads the payloads, claims the handoff, runs the agent loop and stores the result.
It always ends in one of the ways of `AttemptEnd`.

Workers and supervisors provide different functions for the set-up of a handoff's run (`Fit`)
and for the consequences of its result (`Conclude`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from handoff_queue.shared.agent.answer_format import AnswerFormat
from handoff_queue.shared.agent.answer_rules import AnswerForm
from handoff_queue.shared.agent.batch_rules import BatchRules
from handoff_queue.shared.agent.checkpoint_store import CheckpointStore
from handoff_queue.shared.agent.compaction import compaction_limit
from handoff_queue.shared.agent.loop import Agent
from handoff_queue.shared.agent.prices import prices_from
from handoff_queue.shared.agent.prompt import LoadedPayloads, opening_of
from handoff_queue.shared.agent.prompt_documents import (
    NOTHING_SHOWN,
    ShownDocuments,
    choose_shown,
)
from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.agent.tool_policy import PolicyRules, ToolPolicy
from handoff_queue.shared.agent.tool_result_clearing import clearing_rules
from handoff_queue.shared.broker.attempt_outcome import (
    OUTCOME_OF_REFUSAL,
    AttemptEnd,
    AttemptOutcome,
    figures_of,
    finished_event,
    outcome_of_interrupt,
)
from handoff_queue.shared.observability.logs import log_of, logged_as
from handoff_queue.shared.observability.redaction import Redactor, secret_settings
from handoff_queue.shared.observability.telemetry import telemetry
from handoff_queue.shared.runtime.agent_memory import HandoffNotes
from handoff_queue.shared.runtime.external_model import AgentWithExternalModel, ExternalModel
from handoff_queue.shared.runtime.models import Models
from handoff_queue.shared.runtime.payload_cache import JobDocuments, PayloadCache
from handoff_queue.shared.runtime.shared_run import SharedRequest, WholeRequest
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.specialists.policy_file import rules_in
from handoff_queue.shared.specialists.tool_grants import grant_spec
from handoff_queue.shared.store.claim import Claim, ClaimVerdict, FinishReply, FinishRequest
from handoff_queue.shared.store.claim_grants import MAX_CLAIMS, ClaimRequest
from handoff_queue.shared.store.leases import Leases
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import ToolCallStarted, WorstCase
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
    failed_result,
    result_in,
)
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.message import digest_of
from handoff_queue.shared.types.model import Model
from handoff_queue.shared.types.origins import DOCUMENT, origins_or_unknown, union
from handoff_queue.shared.types.rate_limits import ExpectedUsage
from handoff_queue.shared.types.specialist import SpecialistSpec, spec_from

log = log_of(__name__)


AWAY_PAUSE_S = 1.0
"""Seconds that a worker waits before it hands a message back because Redis is unreachable."""
Finish = Callable[[Claim, FinishRequest], FinishReply]
"""Function that stores the end of a handoff. It raises `Interrupted` if the claim is lost, and
`MessagesWaiting` if the agent must first take messages of users.
"""
_First = tuple[WorstCase | None, ExpectedUsage | None]
"""Upper bound of a handoff's first call, and its expected share of the rate limits."""
_NO_CALL: _First = (None, None)


class Runner(Protocol):
    """Object that does the work of one handoff under a claim, such as `shared.agent.loop.Agent`."""

    @property
    def model_name(self) -> str | None:
        """Return the name of the model, or None if no model runs."""
        ...

    def first_call(self) -> tuple[WorstCase | None, ExpectedUsage | None]:
        """Return the worst case of the first model call, and its expected share of the rate
        limits. Each is None if it does not apply.
        """
        ...

    def run(self, checkpoints: CheckpointStore, ends_at: float | None) -> HandoffResult:
        """Do the work, and return the result.

        Args:
            checkpoints: the claim, which stores the checkpoints.
            ends_at: Unix time in seconds at which the work must end; None: no limit.

        Raises:
            Interrupted: the claim is lost; nothing more may be written.
            StoreError: checkpoints cannot be written.
        """
        ...


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """The parts of a handoff's run, except the model, that differ between specialists and roles."""

    answer_format: AnswerFormat
    """Format in which the answer is read."""
    tools: tuple[Tool, ...] = ()
    form: AnswerForm | None = None
    """Form of the answer, whose rules become part of the prompt; None: `form_of` the handoff."""
    streams_draft: bool = False
    """True if heartbeats send the text of the answer while the model writes it."""
    runner: Runner | None = None
    """Runner in place of an agent; None: an agent does the work."""
    external_model: Callable[[Model], ExternalModel] | None = None
    """Wraps the model in one with a separate process; None: the agent calls the model itself."""


@dataclass(frozen=True, slots=True)
class Consequences:
    """Events that follow from a result. The store writes them in the same step as the result."""

    events: tuple[Event, ...] = ()
    payloads: tuple[str, ...] = ()
    """Texts that the events refer to by digest."""


MakeSetup = Callable[[AgentHandoff, SpecialistSpec, LoadedPayloads, JobDocuments], AgentSetup]
"""Function that sets up the run of a handoff."""
Conclude = Callable[[AgentHandoff, HandoffResult], Consequences]
"""Function that returns the consequences of a result."""


def nothing_follows(_handoff: AgentHandoff, _result: HandoffResult) -> Consequences:
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


def _shown_documents(
    handoff: AgentHandoff, tools: Sequence[Tool], policy: ToolPolicy, documents: JobDocuments
) -> ShownDocuments:
    """Return the contents of documents that the opening message shows. It shows none to an agent
    that cannot read documents, or that would lose the use of a tool by the policy.
    """
    if not any(tool.reads_documents for tool in tools):
        return NOTHING_SHOWN
    if not policy.keeps_tools(tools, origins_or_unknown(handoff.origins), (DOCUMENT,)):
        return NOTHING_SHOWN
    context = documents.tool_context
    return choose_shown(context.manifest, handoff.task_description, context.text_of)


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
        self._redactor = Redactor(secret_settings(self.settings))

    def attempt(
        self,
        text: str,
        handoff: AgentHandoff,
        make_setup: MakeSetup,
        conclude: Conclude = nothing_follows,
        *,
        own: SpecialistSpec | None = None,
    ) -> AttemptOutcome:
        """Claim a handoff, and run it to its end.

        If Redis is unreachable before the claim, the message goes back to its queue. A pause
        before that keeps the worker from emptying its queues in a loop.

        Args:
            text: text of the message.
            handoff: the parsed message.
            make_setup: function that sets up the run.
            conclude: function that returns the consequences of the result.
            own: see `ready`.

        Raises:
            StoreUnavailable: Redis was unreachable after the claim. Nothing is lost: the lease
                expires, and the sweeper publishes the handoff again.
        """
        try:
            ready = self.prepare(text, handoff, make_setup, conclude, own=own)
            claim = self.store.claims.claim(ready.claiming)
        except StoreUnavailable as error:
            time.sleep(AWAY_PAUSE_S)
            return AttemptOutcome(
                AttemptEnd.HANDED_BACK, f"the worker cannot start a handoff without Redis: {error}"
            )
        return self.run(ready, claim)

    def prepare(
        self,
        text: str,
        handoff: AgentHandoff,
        make_setup: MakeSetup,
        conclude: Conclude = nothing_follows,
        *,
        own: SpecialistSpec | None = None,
    ) -> PreparedAttempt:
        """Prepare the run of a handoff. If this process cannot run it, the prepared attempt
        has a failed result.

        An exception before the claim would cause endless retries, because only claims are
        counted.

        Args:
            text: text of the message.
            own: spec of the specialist's file in this process. The spec that the handoff refers to
                may only narrow it, see `grant_spec`. None: the spec of the handoff is used
                unchanged.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        # the thread may be in the log context of another handoff, which it is just ending
        with logged_as(job_id=handoff.job_id, handoff_id=handoff.handoff_id):
            runner, shared, (worst_case, expected) = self._prepared(handoff, make_setup, own)
        claiming = ClaimRequest(
            handoff.job_id,
            handoff.handoff_id,
            digest_of(text),
            self.worker,
            worst_case,
            expected,
            deadline=handoff.limits.deadline,
            max_seconds=handoff.limits.max_seconds,
            max_microusd=handoff.limits.max_microusd,
            run_name="" if shared is None else shared.name,
        )
        return PreparedAttempt(handoff, claiming, runner, conclude, shared)

    def run(
        self, ready: PreparedAttempt, claim: Claim, finish: Finish = Claim.finish
    ) -> AttemptOutcome:
        """Run a prepared handoff to its end, if the claim was granted.

        Args:
            finish: function that stores the end.

        Raises:
            StoreUnavailable: Redis is unreachable. Nothing is lost: the lease expires, and the
                sweeper publishes the handoff again.
        """
        if claim.verdict not in (ClaimVerdict.GRANTED, ClaimVerdict.EXHAUSTED):
            return AttemptOutcome(
                OUTCOME_OF_REFUSAL.get(claim.verdict, AttemptEnd.UNWANTED), claim.verdict.value
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
                ended = self._run_to_end(claim, ready, finish)
            except Interrupted as reason:
                if isinstance(reason, Cancelled):
                    span.dropped()
                return outcome_of_interrupt(claim, reason)
            if ended.result is not None:
                span.finished(ended.result)
            return ended

    def _run_to_end(self, claim: Claim, ready: PreparedAttempt, finish: Finish) -> AttemptOutcome:
        """Do the work, and store its result. If users have sent messages during the last call,
        the agent takes them first, and changes its result.
        """
        while True:
            result, followed = self._worked(claim, ready)
            try:
                return self._finish(claim, ready, result, followed, finish)
            except MessagesWaiting:
                log.debug("messages came with the result")

    def _worked(self, claim: Claim, ready: PreparedAttempt) -> tuple[HandoffResult, Consequences]:
        """Do the work, and return the result and its consequences. If the store fails, try to
        store the waiting checkpoints, so that the next claim does not pay for the same calls
        again.
        """
        try:
            return self._concluded(ready.handoff, self._result(claim, ready), ready.conclude)
        except StoreError:
            claim.store_waiting_checkpoints()
            raise

    def _result(self, claim: Claim, ready: PreparedAttempt) -> HandoffResult:
        """Return the result of the handoff. It says whether a tool with effects may have run
        under an earlier claim.
        """
        result = self._own_result(claim, ready)
        for checkpoint in claim.earlier_checkpoints():
            if isinstance(checkpoint, ToolCallStarted):
                return result.model_copy(update={"acted": True})
        return result

    def _own_result(self, claim: Claim, ready: PreparedAttempt) -> HandoffResult:
        """Return the result of the runner, or a failed result if the runner must not run. If an
        equal handoff has run, return a copy of its result.
        """
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
        if ready.shared is not None and claim.copied_run is not None:
            copied = ready.shared.copied(claim.copied_run)
            if copied is not None:
                return copied
        return runner.run(claim, claim.ends_at)

    def _prepared(
        self, handoff: AgentHandoff, make_setup: MakeSetup, own: SpecialistSpec | None
    ) -> tuple[Runner | HandoffResult, SharedRequest | None, _First]:
        """Return the runner, its request if equal handoffs share its run, and its first call. Or
        return a failed result and no call.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        failed: HandoffResult
        try:
            runner, shared = self._runner(handoff, make_setup, own)
            return runner, shared, runner.first_call()
        except StoreUnavailable:
            raise
        except (StoreError, MalformedMessage) as error:
            failed = failed_result(handoff, f"a payload of the handoff cannot be read: {error}")
        except UserError as error:
            failed = failed_result(handoff, f"worker {self.worker} cannot run it: {error}")
        except Exception as error:
            log.exception("internal error before an attempt")
            why = f"an internal error before the run: {type(error).__name__}"
            failed = failed_result(handoff, why)
        return failed, None, _NO_CALL

    def _runner(
        self, handoff: AgentHandoff, make_setup: MakeSetup, own: SpecialistSpec | None
    ) -> tuple[Runner, SharedRequest | None]:
        """Return the runner of a handoff: the one of its set-up, or an agent. The request of an
        agent is returned, too, if equal handoffs share its run.
        """
        pinned, loaded = self._load(handoff)
        if own is not None:
            spec = grant_spec(pinned, own)
        else:
            spec = pinned
        documents = self.payload_cache.of_job(
            handoff.job_id, handoff.handoff_id, loaded.manifest, handoff.limits.deadline
        )
        setup = make_setup(handoff, spec, loaded, documents)
        if setup.runner is not None:
            return setup.runner, None
        first, *fallbacks = self.models.choices_of(handoff.model, spec)
        hosts = spec.hosts or ()
        rules = PolicyRules()
        if setup.tools:
            rules = rules_in(self.settings.policy_file)
        policy = ToolPolicy(rules, hosts, frozenset(spec.ask or ()))
        shown = _shown_documents(handoff, setup.tools, policy, documents)
        tools = setup.tools
        if shown:
            origins = union(origins_or_unknown(handoff.origins), (DOCUMENT,))
            handoff = handoff.model_copy(update={"origins": origins})
        if shown.are_all_of(loaded.manifest):
            tools = tuple(tool for tool in tools if not tool.reads_documents)
        prices = prices_from(self.settings)
        models = [choice.name for choice in (first, *fallbacks)]
        longest_prompt = min(map(prices.longest_prompt, models))
        dependencies = RunDependencies(
            role=handoff.assigned_to,
            model=self.models.of(first.name),
            handoff_name=f"{handoff.job_id}/{handoff.handoff_id}",
            model_name=first.name,
            effort=spec.effort,
            thinking=spec.thinking,
            bucket=first.bucket,
            fallbacks=tuple(fallbacks),
            answer_format=setup.answer_format,
            prices=prices,
            caches=self.models.caches,
            may_wait_for_person=bool(spec.ask) and handoff.call_approval_s is not None,
            clearing=clearing_rules(spec.context, longest_prompt),
            compact_at=compaction_limit(spec.context, longest_prompt),
            tools=tools,
            tool_context=replace(
                documents.tool_context,
                hosts=hosts,
                notes=partial(HandoffNotes, self.store, handoff.job_id, spec.name),
            ),
            policy=policy,
            words_of_user=partial(self._words_of_user, handoff),
            now=self.store.connection.now,
            batches=self._batch_rules(handoff, first.name),
            silence_s=self.settings.model_silence_s,
            progress_s=self.settings.model_progress_s,
            rate_wait_s=self.settings.rate_wait_s,
            without_secrets=self._redactor.without_values,
            streams_draft=setup.streams_draft,
        )
        names = [tool.name for tool in tools]
        opening = opening_of(handoff, spec, loaded, form=setup.form, tools=names, documents=shown)
        if setup.external_model is None:
            whole = WholeRequest(handoff, spec, loaded, opening, dependencies)
            shared = SharedRequest.of(self.store, self.payload_cache, whole, documents)
            return Agent(handoff, spec, opening, dependencies), shared
        external = setup.external_model(dependencies.model)
        dependencies = replace(
            dependencies, model=external, added_bytes=external.added_bytes, batches=None
        )
        return AgentWithExternalModel(handoff, spec, opening, dependencies, external), None

    def _batch_rules(self, handoff: AgentHandoff, model: str) -> BatchRules | None:
        """Return how the handoff's calls go through batches, or None if all are live."""
        if handoff.batch_until is None or (batches := self.models.batches_of(model)) is None:
            return None
        return BatchRules(batches, handoff.batch_until, self.settings.batch_poll_s)

    def _words_of_user(self, handoff: AgentHandoff) -> str:
        """Return the user's request, or "" if it cannot be read or a model wrote it."""
        if handoff.request is None:
            return ""
        digest = handoff.request.digest
        try:
            return self.payload_cache.payloads(handoff.job_id, [digest])[digest]
        except StoreError:
            return ""

    def _load(self, handoff: AgentHandoff) -> tuple[SpecialistSpec, LoadedPayloads]:
        """Load the spec, the results and the manifest of a handoff, in one round trip. A
        missing or damaged result counts as failed.

        Raises:
            StoreError: the spec or the manifest is missing or damaged.
        """
        result_digests: list[str] = []
        for item in handoff.context:
            result_digests.append(item.result.digest)
        for feedback in handoff.feedback:
            if feedback.previous:
                result_digests.append(feedback.previous.digest)
        manifest = None
        for artifact in handoff.artifacts:
            if artifact.kind == "documents":
                manifest = artifact.manifest.digest
                break
        texts = self.payload_cache.payloads(
            handoff.job_id,
            [handoff.specialist, *([manifest] if manifest else [])],
            results=result_digests,
        )
        spec = spec_from(texts[handoff.specialist])
        results: dict[StepId, HandoffResult] = {}
        for item in handoff.context:
            results[item.step_id] = result_in(texts[item.result.digest])
        previous: dict[str, HandoffResult] = {}
        for feedback in handoff.feedback:
            if feedback.previous:
                digest = feedback.previous.digest
                previous[digest] = result_in(texts[digest])
        loaded = LoadedPayloads(results=results, previous=previous)
        if manifest:
            loaded = replace(loaded, manifest=self.payload_cache.manifest(texts[manifest]))
        return spec, loaded

    def _finish(
        self,
        claim: Claim,
        ready: PreparedAttempt,
        result: HandoffResult,
        followed: Consequences,
        finish: Finish,
    ) -> AttemptOutcome:
        """Store the result with its consequences, and return the outcome.

        Raises:
            MessagesWaiting: the agent can still change its result, and must first take messages.
        """
        runner = ready.runner
        text = result.to_json()
        finished = finished_event(result, self.worker, text)
        self.payload_cache.remember((text, *followed.payloads), claim.job_id)
        request = claim.finish_request(
            result,
            (finished, *followed.events),
            followed.payloads,
            takes_messages=isinstance(runner, Agent) and runner.can_take_messages,
        )
        done = finish(claim, request)
        if log.isEnabledFor(logging.INFO):
            log.info(
                "handoff finished", **figures_of(claim, ready.handoff, result, done.recorded[0].at)
            )
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
        """Return the result and its consequences. If `conclude` raises an unexpected error,
        return a failed result and its consequences.
        """
        try:
            return result, conclude(handoff, result)
        except (StoreUnavailable, Interrupted):
            raise
        except Exception as error:
            log.exception("internal error after an attempt")
            why = failed_result(handoff, f"an internal error after the run: {type(error).__name__}")
            instead = why.model_copy(
                update={
                    "usage": result.usage,
                    "turns": result.turns,
                    "model": result.model,
                    "replies_by_model": result.replies_by_model,
                    "acted": result.acted,
                }
            )
        try:
            return instead, conclude(handoff, instead)
        except (StoreUnavailable, Interrupted):
            raise
        except Exception:
            log.exception("internal error after a failed attempt")
            return instead, Consequences()
