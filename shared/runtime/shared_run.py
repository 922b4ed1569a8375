"""One run for equal handoffs of a tenant.

Handoffs are equal if their whole requests are equal. A request has the specialist's file, the task,
the inputs, the documents, the tools, the models and the settings that change a reply. Only
specialists with `share: true` share runs. A run with a tool that changes something is not shared.

The name of a run is a digest of the request and the tenant. The store lets the first handoff of a
name run, and the others wait without a claim (`store/lua/parts/shared_runs.lua`). Then each waiting
handoff copies the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from handoff_queue.shared.agent.opening_message import LoadedPayloads, Opening
from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.agent.tool import Tool, ToolFailed
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.runtime.payload_cache import JobDocuments, PayloadCache
from handoff_queue.shared.store.claim import EndedRun
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.trust.signatures import check_run
from handoff_queue.shared.types.citation_markers import (
    MARKER,
    map_texts,
    rename_sources_of,
    rename_tool_sources,
)
from handoff_queue.shared.types.errors import (
    InvalidSpecialist,
    MalformedMessage,
    StoreError,
    StoreUnavailable,
    UntrustedMessage,
)
from handoff_queue.shared.types.handoff import (
    AgentHandoff,
    Claim,
    HandoffResult,
    ResultStatus,
    SharedRun,
)
from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.origins import get_origins
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.shared.types.usage import NOTHING_USED

log = get_log(__name__)


@dataclass(frozen=True, slots=True)
class WholeRequest:
    """Everything that the reply to a handoff depends on, except the tenant."""

    handoff: AgentHandoff
    spec: SpecialistSpec
    """The spec that this process grants."""
    loaded: LoadedPayloads
    opening: Opening
    dependencies: RunDependencies

    @property
    def tools(self) -> tuple[Tool, ...]:
        return (*self.dependencies.tools, *self.opening.tools)

    @property
    def may_be_shared(self) -> bool:
        """Return whether the specialist shares its runs, and no tool changes anything."""
        if not self.spec.share or self.spec.ask:
            return False
        return not any(tool.changes_something for tool in self.tools)

    def compute_digest(self, tenant: str, pages: Sequence[str]) -> str:
        """Return the digest of this request of a tenant.

        Args:
            pages: digests of the pages that were fetched for the job.
        """
        handoff = self.handoff
        models = [self.dependencies.model_name]
        for choice in self.dependencies.fallbacks:
            models.append(choice.name)
        documents = [[page.path, page.digest] for page in self.loaded.manifest.documents]
        results = {step: _get_content(result) for step, result in self.loaded.results.items()}
        parts: dict[str, Any] = {
            "tenant": tenant,
            "spec": self.spec.to_json(),
            "system": self.opening.system.text,
            "message": self.opening.message,
            "output": handoff.expected_output_format,
            "limits": [handoff.limits.max_turns, handoff.limits.max_output_tokens],
            "origins": get_origins(handoff.origins),
            "models": models,
            "is_batched": handoff.batch_until is not None,  # a live handoff waits for no batch
            "may_ask": handoff.call_approval_s is not None,  # otherwise such calls do not run
            "tools": [_build_definition(tool) for tool in self.tools],
            "documents": documents,
            "pages": sorted(pages),
            "results": results,
            "previous": [_get_content(result) for result in self.loaded.previous.values()],
        }
        if handoff.request is not None and any(tool.sends for tool in self.tools):
            parts["request"] = handoff.request.digest  # the policy of tools compares its words
        return compute_digest(json.dumps(parts, sort_keys=True, ensure_ascii=False))


@dataclass(frozen=True, slots=True)
class SharedRequest:
    """A request whose run may be shared. It copies the result of a run."""

    store: Store
    payload_cache: PayloadCache
    handoff: AgentHandoff
    documents: JobDocuments
    tenant: str
    name: str
    """Name of the run in the store."""

    @classmethod
    def build(
        cls,
        store: Store,
        payload_cache: PayloadCache,
        request: WholeRequest,
        documents: JobDocuments,
    ) -> SharedRequest | None:
        """Return the shared request; None if the run is not shared.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        if not request.may_be_shared:
            return None
        job_id = request.handoff.job_id
        tenant = store.jobs.get_tenant(job_id)
        pages: list[str] = []
        if any(tool.reads_documents for tool in request.tools):
            pages = [page.digest for page in documents.tool_context.load_fetched_pages()]
        digest = request.compute_digest(tenant, pages)
        # only a holder of the tenant's key can compute the name of a sealed request
        name = store.connection.sealing.list_document_names(tenant, digest)[0]
        return cls(store, payload_cache, request.handoff, documents, tenant, name)

    def copy_result(self, run: EndedRun) -> HandoffResult | None:
        """Return the result of a run as the result of this handoff; None if it may not be used.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        try:
            result = self._load_and_verify_result(run)
            self._keep_pages(run, result)
        except StoreUnavailable:
            raise
        except (StoreError, MalformedMessage, UntrustedMessage, ToolFailed) as error:
            log.warning(
                "the result of an equal handoff cannot be used, so this handoff runs itself",
                of_job=run.job_id,
                of_handoff=run.handoff_id,
                why=str(error),
            )
            return None
        return derive_equal_result(result, self.handoff)

    def _load_and_verify_result(self, run: EndedRun) -> HandoffResult:
        """Return the result of a run.

        Raises:
            UntrustedMessage: the run is of another tenant, or its proof does not hold.
            MalformedMessage: it is not a result that may be copied.
            StoreError: the result is gone.
        """
        if self.store.jobs.find_owner(run.job_id) != self.tenant:
            raise UntrustedMessage("it is of another tenant")
        agent = self.handoff.assigned_to
        trust = self.store.trust
        check_run(trust, agent, run.proof, run.job_id, run.handoff_id, self.name, run.result)
        text = self.payload_cache.get_payloads(run.job_id, [run.result])[run.result]
        result = HandoffResult.from_json(text)
        is_its_own = (result.job_id, result.handoff_id) == (run.job_id, run.handoff_id)
        if not is_its_own or result.status is not ResultStatus.OK or result.shared or result.acted:
            raise MalformedMessage("it is not an ok result that this run made itself")
        return result

    def _keep_pages(self, run: EndedRun, result: HandoffResult) -> None:
        """Store the fetched pages that the result cites as pages of this job, too. Results of the
        equal handoff's tools get the name of this handoff.
        """
        cited_digests: set[str] = set()
        for claim in result.claims:
            cited_digests.update(citation.digest for citation in claim.sources)
        manifest = self.documents.tool_context.manifest
        cited_digests -= {document.digest for document in manifest.documents}
        if not cited_digests:
            return
        for page in self.store.payloads.load_fetched_pages(run.job_id):
            if page.digest in cited_digests:
                text = self.payload_cache.get_payloads(run.job_id, [page.digest])[page.digest]
                path = _with_own_sources(page.path, run.handoff_id, self.handoff)
                own_page = page.model_copy(update={"path": path})
                self.store.payloads.put_fetched_page(self.handoff.job_id, own_page, text)


def check_sharing(spec: SpecialistSpec, tools: Sequence[Tool]) -> None:
    """Check the tools of a specialist that shares its runs.

    Raises:
        InvalidSpecialist: a tool changes something.
    """
    for tool in tools:
        if spec.share and tool.changes_something:
            raise InvalidSpecialist(
                f"{spec.name}: share: its tool {tool.name} acts, or is not safe to repeat; remove"
                " `share` or the tool"
            )


def derive_equal_result(result: HandoffResult, handoff: AgentHandoff) -> HandoffResult:
    """Return the result of an equal handoff as the result of this one, which has used nothing.
    Claims get the ids of this step, and results of tools get the name of this handoff.
    """
    shared_step = result.step_id
    own_step = handoff.step_id

    def rename(text: str) -> str:
        return _with_own_sources(text, result.handoff_id, handoff)

    output = map_texts(result.output, rename)
    claims = tuple(rename_sources_of(claim, rename) for claim in result.claims)
    if shared_step != own_step:
        output = map_texts(output, lambda text: _with_renamed_markers(text, shared_step, own_step))
        claims = tuple(_rename_claim(claim, shared_step, own_step) for claim in claims)
    shared = SharedRun(
        job_id=result.job_id,
        handoff_id=result.handoff_id,
        saved_microusd=result.usage.cost_microusd,
    )
    return result.model_copy(
        update={
            "handoff_id": handoff.handoff_id,
            "job_id": handoff.job_id,
            "step_id": own_step,
            "attempt": handoff.attempt,
            "output": output,
            "claims": claims,
            "usage": NOTHING_USED,
            "turns": 0,
            "replies_by_model": None,
            "shared": shared,
        }
    )


def _with_own_sources(text: str, equal: HandoffId, own: AgentHandoff) -> str:
    """Return a text in which the results of the equal handoff's tools have the name of the own
    handoff.
    """

    def rename(handoffs: str) -> str:
        if handoffs == equal:
            return own.handoff_id
        return handoffs

    return rename_tool_sources(text, rename)


def _rename_claim(claim: Claim, shared_step: StepId, own_step: StepId) -> Claim:
    """Return a claim of the equal handoff under the name of the own step."""
    step, _, name = claim.id.partition(".")
    if step != shared_step:
        return claim
    return claim.model_copy(update={"id": f"{own_step}.{name}"})


def _with_renamed_markers(text: str, shared_step: StepId, own_step: StepId) -> str:
    """Return a text whose markers name the own step in place of the equal handoff's step."""
    claim_of_step = re.compile(rf"(?<![\w-]){re.escape(shared_step)}\.(?=c\d)")
    return MARKER.sub(lambda marker: claim_of_step.sub(f"{own_step}.", marker[0]), text)


def _build_definition(tool: Tool) -> list[Any]:
    return [tool.name, tool.description, tool.input_schema, tool.server_param]


def _get_content(result: HandoffResult) -> list[Any]:
    """Return the part of a result that the specialist can use."""
    claims = [claim.to_json() for claim in result.claims]
    return [result.status.value, result.output, claims, result.error, result.needs]
