"""Makes the runner of a handoff: an agent with its model, tools, policy and prompt, or the runner
of its set-up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from handoff_queue.shared.agent.answer_format import AnswerFormat
from handoff_queue.shared.agent.batch_rules import BatchRules
from handoff_queue.shared.agent.call_reservation import FirstCall
from handoff_queue.shared.agent.checkpoint_store import CheckpointStore
from handoff_queue.shared.agent.compaction import compute_compaction_limit
from handoff_queue.shared.agent.loop import Agent
from handoff_queue.shared.agent.model_fallback import ModelChoice
from handoff_queue.shared.agent.opening_message import LoadedPayloads, Opening, build_opening
from handoff_queue.shared.agent.prices import build_prices
from handoff_queue.shared.agent.prompt_documents import (
    NOTHING_SHOWN,
    ShownDocuments,
    choose_shown,
)
from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.agent.system_prompt import AnswerForm
from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.agent.tool_policy import PolicyRules, ToolPolicy
from handoff_queue.shared.agent.tool_result_clearing import ProviderContext, build_clearing_rules
from handoff_queue.shared.observability.redaction import Redactor
from handoff_queue.shared.runtime.models import Models
from handoff_queue.shared.runtime.payload_cache import JobDocuments, PayloadCache
from handoff_queue.shared.runtime.shared_run import SharedRequest, WholeRequest
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.specialists.policy_file import read_rules
from handoff_queue.shared.specialists.tool_grants import grant_spec
from handoff_queue.shared.store.memory_notes import HandoffNotes
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import StoreError
from handoff_queue.shared.types.handoff import (
    AgentHandoff,
    HandoffResult,
    Manifest,
    parse_result,
)
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.model import Model
from handoff_queue.shared.types.origins import (
    DOCUMENT,
    UNTRUSTED,
    get_origins,
    has_any,
    union,
)
from handoff_queue.shared.types.specialist import SpecialistSpec, parse_spec


class Runner(Protocol):
    """Object that does the work of one handoff under a claim, such as `shared.agent.loop.Agent`."""

    @property
    def model_name(self) -> str | None:
        """Return the name of the model, or None if no model runs."""
        ...

    def estimate_first_call(self) -> FirstCall:
        """Return the first model call, which is reserved together with the claim."""
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
    """Form of the answer, whose rules become part of the prompt; None: `choose_form` decides."""
    streams_draft: bool = False
    """True if heartbeats send the text of the answer while the model writes it."""
    runner: Runner | None = None
    """Runner in place of an agent; None: an agent does the work."""
    external_model: Callable[[Model], ExternalModel] | None = None
    """Wraps the model in one with a separate process; None: the agent calls the model itself."""


MakeSetup = Callable[[AgentHandoff, SpecialistSpec, LoadedPayloads, JobDocuments], AgentSetup]
"""Function that sets up the run of a handoff."""


def _select_shown_documents(
    handoff: AgentHandoff, tools: Sequence[Tool], policy: ToolPolicy, documents: JobDocuments
) -> ShownDocuments:
    """Return the contents of documents that the opening message shows. It shows none to an agent
    that cannot read documents, or that would lose the use of a tool by the policy.
    """
    context = documents.tool_context
    if not context.manifest.documents or not any(tool.reads_documents for tool in tools):
        return NOTHING_SHOWN
    if not policy.allows_tools_after(tools, get_origins(handoff.origins), (DOCUMENT,)):
        return NOTHING_SHOWN
    return choose_shown(context.manifest, handoff.task_description, context.text_of)


def _has_documents_to_open(
    handoff: AgentHandoff, manifest: Manifest, tools: Sequence[Tool]
) -> bool:
    """Return whether tools that read documents are of use: the job has documents, or another tool
    or an earlier step may bring some. The cached prefix begins with the tools. Siblings with equal
    results to work from have equal tools.
    """
    if manifest.documents or has_any(get_origins(handoff.origins), UNTRUSTED):
        return True
    return any(tool.result_origins for tool in tools if not tool.reads_documents)


def _with_external_model(dependencies: RunDependencies, external: ExternalModel) -> RunDependencies:
    """Return the dependencies of an agent with an external model. The calls of this agent go
    through no batch, and the provider shortens no request.
    """
    return replace(
        dependencies,
        model=external,
        added_bytes=external.added_bytes,
        batches=None,
        provider_context=None,
    )


@dataclass(frozen=True, slots=True)
class RunnerFactory:
    """Makes the runners of a process."""

    store: Store
    settings: Settings
    payload_cache: PayloadCache
    models: Models
    redactor: Redactor
    """Removes the secrets of the settings from texts."""

    def make(
        self, handoff: AgentHandoff, make_setup: MakeSetup, own_spec: SpecialistSpec | None
    ) -> tuple[Runner, SharedRequest | None]:
        """Return the runner of a handoff: the one of its set-up, or an agent. Also return the
        request if equal handoffs share one run; else None.

        Args:
            own_spec: see `Attempts.prepare`.

        Raises:
            StoreError, MalformedMessage: a payload of the handoff cannot be read.
            UserError: this process cannot run the handoff.
        """
        pinned_spec, loaded = self._load(handoff)
        spec = pinned_spec if own_spec is None else grant_spec(pinned_spec, own_spec)
        documents = self.payload_cache.open_job_documents(
            handoff.job_id, handoff.handoff_id, loaded.manifest, handoff.limits.deadline
        )
        setup = make_setup(handoff, spec, loaded, documents)
        if setup.runner is not None:
            return setup.runner, None
        choices = self.models.list_choices(handoff.model, spec)
        policy = self._build_policy(spec, setup.tools)
        shown_documents = _select_shown_documents(handoff, setup.tools, policy, documents)
        if shown_documents:
            origins = union(get_origins(handoff.origins), (DOCUMENT,))
            handoff = handoff.model_copy(update={"origins": origins})
        tools = setup.tools
        can_open = _has_documents_to_open(handoff, loaded.manifest, tools)
        if shown_documents.are_all_of(loaded.manifest) or not can_open:
            tools = tuple(tool for tool in tools if not tool.reads_documents)
        dependencies = self._build_dependencies(
            handoff, spec, setup, choices, tools, policy, documents
        )
        names = [tool.name for tool in tools]
        opening = build_opening(
            handoff, spec, loaded, form=setup.form, tools=names, documents=shown_documents
        )
        if setup.external_model is not None:
            external = setup.external_model(dependencies.model)
            dependencies = _with_external_model(dependencies, external)
            return AgentWithExternalModel(handoff, spec, opening, dependencies, external), None
        request = WholeRequest(handoff, spec, loaded, opening, dependencies)
        shared = SharedRequest.build(self.store, self.payload_cache, request, documents)
        return Agent(handoff, spec, opening, dependencies), shared

    def _build_policy(self, spec: SpecialistSpec, tools: Sequence[Tool]) -> ToolPolicy:
        """Return the policy of an agent. Without tools, the policy file is not read."""
        rules = read_rules(self.settings.policy_file) if tools else PolicyRules()
        return ToolPolicy(rules, spec.hosts or (), frozenset(spec.ask or ()))

    def _build_dependencies(
        self,
        handoff: AgentHandoff,
        spec: SpecialistSpec,
        setup: AgentSetup,
        choices: Sequence[ModelChoice],
        tools: tuple[Tool, ...],
        policy: ToolPolicy,
        documents: JobDocuments,
    ) -> RunDependencies:
        """Return what the agent of a handoff uses, without a claim."""
        first, *fallbacks = choices
        prices = build_prices(self.settings)
        model_names = [choice.name for choice in choices]
        longest_prompt = min(map(prices.get_longest_prompt, model_names))
        tool_context = replace(documents.tool_context, hosts=policy.hosts)
        if handoff.notes_name is not None:
            open_notes = partial(
                HandoffNotes, self.store.connection, handoff.job_id, spec.name, handoff.notes_name
            )
            tool_context = replace(tool_context, notes=open_notes)
        return RunDependencies(
            agent=handoff.assigned_to,
            model=self.models.get_model(first.name),
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
            clearing=build_clearing_rules(spec.context, longest_prompt),
            compact_at=compute_compaction_limit(spec.context, longest_prompt),
            provider_context=self._build_provider_context(spec, longest_prompt),
            tools=tools,
            tool_context=tool_context,
            policy=policy,
            words_of_user=partial(self._get_user_words, handoff),
            now=self.store.connection.now,
            batches=self._build_batch_rules(handoff, first.name),
            silence_s=self.settings.model_silence_s,
            progress_s=self.settings.model_progress_s,
            rate_wait_s=self.settings.rate_wait_s,
            without_secrets=self.redactor.without_values,
            streams_draft=setup.streams_draft,
        )

    def _build_provider_context(
        self, spec: SpecialistSpec, longest_prompt: int
    ) -> ProviderContext | None:
        """Return what the provider may do to keep requests short, or None for nothing."""
        if spec.context is None or not spec.context.is_managed_by_provider:
            return None
        return ProviderContext(self.models.get_context_edits, longest_prompt)

    def _build_batch_rules(self, handoff: AgentHandoff, model: str) -> BatchRules | None:
        """Return how the handoff's calls go through batches, or None if all are live."""
        if handoff.batch_until is None:
            return None
        batches = self.models.get_batches(model)
        if batches is None:
            return None
        return BatchRules(batches, handoff.batch_until, self.settings.batch_poll_s)

    def _get_user_words(self, handoff: AgentHandoff) -> str:
        """Return the user's request, or "" if it cannot be read or a model wrote it."""
        if handoff.request is None:
            return ""
        digest = handoff.request.digest
        try:
            return self.payload_cache.get_payloads(handoff.job_id, [digest])[digest]
        except StoreError:
            return ""

    def _load(self, handoff: AgentHandoff) -> tuple[SpecialistSpec, LoadedPayloads]:
        """Load the spec, the results and the manifest of a handoff, in one round trip. A
        missing or damaged result counts as failed.

        Raises:
            StoreError: the spec or the manifest is missing or damaged.
        """
        result_digests: list[str] = []
        for item in (*handoff.context, *(handoff.claim_sources or ())):
            result_digests.append(item.result.digest)
        for feedback in handoff.feedback:
            if feedback.previous:
                result_digests.append(feedback.previous.digest)
        manifest = None
        for artifact in handoff.artifacts:
            if artifact.kind == "documents":
                manifest = artifact.manifest.digest
                break
        digests = [handoff.specialist]
        if manifest:
            digests.append(manifest)
        texts = self.payload_cache.get_payloads(handoff.job_id, digests, results=result_digests)
        spec = parse_spec(texts[handoff.specialist])
        results: dict[StepId, HandoffResult] = {}
        for item in handoff.context:
            results[item.step_id] = parse_result(texts[item.result.digest])
        claim_sources: list[tuple[StepId, HandoffResult]] = []
        for item in handoff.claim_sources or ():
            claim_sources.append((item.step_id, parse_result(texts[item.result.digest])))
        previous: dict[str, HandoffResult] = {}
        for feedback in handoff.feedback:
            if feedback.previous:
                digest = feedback.previous.digest
                earlier = parse_result(texts[digest])
                # its worker may have written the step of another result, and claims of this step
                previous[digest] = earlier.model_copy(update={"step_id": handoff.step_id})
        loaded = LoadedPayloads(
            results=results,
            previous=previous,
            claim_sources=claim_sources,
            checked_steps=handoff.find_checked_steps(),
        )
        if manifest:
            loaded = replace(loaded, manifest=self.payload_cache.parse_manifest(texts[manifest]))
        return spec, loaded


class ExternalModel(Model, Protocol):
    """A model with a process that asks for each call. Each handoff has its own."""

    added_bytes: int
    """Most bytes that the process adds to a request."""

    def close(self) -> None:
        """End the process. A later call starts it again."""
        ...


class AgentWithExternalModel(Agent):
    """An agent that ends the process of its model after each run."""

    def __init__(
        self,
        handoff: AgentHandoff,
        spec: SpecialistSpec,
        opening: Opening,
        dependencies: RunDependencies,
        model: ExternalModel,
    ) -> None:
        super().__init__(handoff, spec, opening, dependencies)
        self._model = model

    def run(self, checkpoints: CheckpointStore, ends_at: float | None) -> HandoffResult:
        try:
            return super().run(checkpoints, ends_at)
        finally:
            self._model.close()
