"""Run the agent loop in a test: with a scripted model, checkpoints in memory and a fake clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from handoff_queue.shared.agent.answer_envelope import EnvelopeFormat
from handoff_queue.shared.agent.answer_format import AnswerFormat
from handoff_queue.shared.agent.batch_rules import BatchRules
from handoff_queue.shared.agent.compaction import USUAL_COMPACTION
from handoff_queue.shared.agent.loop import Agent
from handoff_queue.shared.agent.model_fallback import ModelChoice
from handoff_queue.shared.agent.opening_message import LoadedPayloads, build_opening
from handoff_queue.shared.agent.prices import Prices
from handoff_queue.shared.agent.prompt_cache_prefixes import PromptCaches
from handoff_queue.shared.agent.quote_verification import Sources
from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.agent.system_prompt import choose_form
from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.agent.tool_policy import ToolPolicy
from handoff_queue.shared.agent.tool_result_clearing import (
    USUAL_CLEARING,
    ClearingRules,
    ProviderContext,
)
from handoff_queue.shared.types.errors import ModelError
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult
from handoff_queue.shared.types.model import Model, ModelCall
from handoff_queue.testing import Reply, json_reply
from tests.doubles.handoffs import STEP, a_handoff, a_manifest, a_spec, a_tool_context
from tests.doubles.memory_checkpoints import MemoryCheckpoints
from tests.doubles.scripted_model import ScriptedModel, replies_in_order

TEXTS = {"qdrant": "Qdrant is a vector\n  database. It is written in Rust."}


@dataclass(slots=True)
class Clock:
    """Fake clock that advances only when the agent waits. `waited` holds the waits in seconds."""

    now_s: float = 1_000.0
    waited: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.now_s += seconds


def envelope(output: Any = "It is written in Rust [c1].", **changes: Any) -> dict[str, Any]:
    quote = {"source": "qdrant.md", "quote": "It is written in Rust."}
    claims = [{"id": "c1", "text": "Qdrant is written in Rust.", "sources": [quote]}]
    return {
        "status": "ok",
        "output": output,
        "claims": claims,
        "confidence": 0.9,
        "needs": None,
        "problem": None,
        **changes,
    }


def answer_reply(output: Any = "It is written in Rust [c1].", **changes: Any) -> Reply:
    """Return the reply of a model that sends a valid answer envelope."""
    return json_reply(envelope(output, **changes))


@dataclass(slots=True)
class Run:
    """Inputs of one run of the agent loop. `go` runs the loop and returns its result."""

    script: Callable[[ModelCall], Reply | ModelError]
    handoff: AgentHandoff = field(default_factory=a_handoff)
    tools: tuple[Tool, ...] = ()
    offered: tuple[str, ...] | None = None
    """Tool names in the specialist's spec, or None for all of `tools`."""
    checkpoints: MemoryCheckpoints = field(default_factory=MemoryCheckpoints)
    loaded: LoadedPayloads = field(default_factory=LoadedPayloads)
    answer_format: AnswerFormat | None = None
    clock: Clock = field(default_factory=Clock)
    model: Model | None = None
    model_name: str = "claude-haiku-5-5"
    bucket: str | None = None
    fallbacks: tuple[ModelChoice, ...] = ()
    streams_draft: bool = False
    tool_policy: ToolPolicy = field(default_factory=ToolPolicy)
    prices: Prices = field(default_factory=Prices)
    clearing: ClearingRules = USUAL_CLEARING
    compact_at: int = USUAL_COMPACTION
    provider_context: ProviderContext | None = None
    caches: PromptCaches = field(default_factory=PromptCaches)
    may_wait_for_person: bool = False
    batches: BatchRules | None = None
    hidden: list[str] = field(default_factory=list)
    """Texts that requests to the model no longer show."""
    without_secrets: Callable[[str], str] = str
    scripted: ScriptedModel = field(init=False)

    def __post_init__(self) -> None:
        self.scripted = ScriptedModel(self.script)

    @property
    def calls(self) -> list[ModelCall]:
        return self.scripted.calls

    def go(self) -> HandoffResult:
        return self.agent().run(self.checkpoints, self.handoff.limits.deadline)

    def agent(self) -> Agent:
        """Return the agent of the run."""
        manifest, text_of = a_manifest(**TEXTS)
        results: dict[str, str] = {}
        shown: list[str] = []
        sources = Sources(text_of, manifest, results=results, load_seen_texts=lambda: shown)
        answer_format = self.answer_format or EnvelopeFormat(
            STEP,
            self.handoff.expected_output_format,
            sources,
            self.loaded.collect_claims(),
            form=choose_form(self.handoff),
        )
        spec = a_spec(
            *(self.offered if self.offered is not None else (tool.name for tool in self.tools))
        )
        dependencies = RunDependencies(
            model=self.model or self.scripted,
            model_name=self.model_name,
            bucket=self.bucket,
            fallbacks=self.fallbacks,
            answer_format=answer_format,
            prices=self.prices,
            tools=self.tools,
            clearing=self.clearing,
            compact_at=self.compact_at,
            provider_context=self.provider_context,
            caches=self.caches,
            may_wait_for_person=self.may_wait_for_person,
            batches=self.batches,
            policy=self.tool_policy,
            tool_context=replace(
                a_tool_context(manifest, text_of),
                record_tool_result=results.__setitem__,
                record_text=shown.append,
                hide_text=self.hidden.append,
                prove=sources.prove,
            ),
            now=self.clock.now,
            wait=self.clock.wait,
            jitter=lambda: 0.0,
            streams_draft=self.streams_draft,
            without_secrets=self.without_secrets,
        )
        opening = build_opening(self.handoff, spec, self.loaded)
        return Agent(self.handoff, spec, opening, dependencies)


def run_with_replies(*replies: Reply | ModelError, **rest: Any) -> Run:
    """Return a run whose model gives these replies in order."""
    return Run(replies_in_order(*replies), **rest)
