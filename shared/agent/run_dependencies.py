"""The dependencies of one run of a handoff."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf

from handoff_queue.shared.agent.answer_format import AnswerFormat
from handoff_queue.shared.agent.batch_rules import BatchRules
from handoff_queue.shared.agent.checkpoint_store import CheckpointStore, NoCheckpoints
from handoff_queue.shared.agent.compaction import USUAL_COMPACTION
from handoff_queue.shared.agent.model_fallback import ModelChoice
from handoff_queue.shared.agent.prices import Prices
from handoff_queue.shared.agent.prompt_cache_prefixes import PromptCaches
from handoff_queue.shared.agent.tool import Tool, ToolContext
from handoff_queue.shared.agent.tool_policy import ToolPolicy
from handoff_queue.shared.agent.tool_result_clearing import (
    USUAL_CLEARING,
    ClearingRules,
    ProviderContext,
)
from handoff_queue.shared.types.model import Effort, Model, Thinking


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDependencies:
    """The dependencies that the agent loop needs to run a handoff."""

    agent: str = ""
    """The agent that runs the handoff."""
    model: Model
    handoff_name: str = ""
    """`JOB/HANDOFF`, for the names of its calls in batches."""
    model_name: str
    """`handoff.model`, or the spec's, or the default of its tier."""
    effort: Effort | None = None
    """`effort` of the spec."""
    thinking: Thinking | None = None
    """`thinking` of the spec."""
    caches: PromptCaches = field(default_factory=PromptCaches)
    """Prompt caches that the handoffs of this process share."""
    may_wait_for_person: bool = False
    """True if a person may have to approve a call of a tool."""
    clearing: ClearingRules = USUAL_CLEARING
    """When old results of tools are cleared from requests."""
    compact_at: int = USUAL_COMPACTION
    """Input tokens of a request from which on a summary replaces the earlier turns."""
    provider_context: ProviderContext | None = None
    """What the provider may do to keep requests short; None: the loop does it."""
    bucket: str | None = None
    """Rate-limit bucket of the calls, see `shared.types.rate_limits.ExpectedUsage`. None: the calls
    have no rate limits.
    """
    fallbacks: tuple[ModelChoice, ...] = ()
    """Further models for turns that the model cannot serve soon, in the order of preference."""
    checkpoints: CheckpointStore = field(default_factory=NoCheckpoints)
    ends_at: float | None = None
    """End of the claim's working time, Unix time in seconds. None: no end, or no claim yet."""
    answer_format: AnswerFormat
    prices: Prices
    tools: tuple[Tool, ...] = ()
    """Tools of this process. The loop offers only the tools that the spec names."""
    tool_context: ToolContext
    now: Callable[[], float] = time.time
    """Returns the Unix time in seconds by Redis's clock, as `ends_at`."""
    wait: Callable[[float], None] = time.sleep
    """Waits for a number of seconds."""
    jitter: Callable[[], float] = random.random
    """Returns a random number in [0, 1) for the jitter of retries."""
    added_bytes: int = 0
    """Most bytes that the model's client adds to a request. The upper bound of a call contains
    them.
    """
    batches: BatchRules | None = None
    """How calls go through batches of the provider. None: all calls are live."""
    silence_s: float = 120.0
    """Longest silence in seconds on the connection of a model call."""
    progress_s: float = 300.0
    """Longest time in seconds without progress of a reply, also if other bytes arrive."""
    rate_wait_s: float = 20.0
    """Seconds that a call may wait for the provider's rate limits in its slot. A call with a
    longer wait gives its slot back.
    """
    policy: ToolPolicy = field(default_factory=ToolPolicy)
    """Decides each call of a tool."""
    words_of_user: Callable[[], str] = str
    """Returns the user's request, for the policy."""
    without_secrets: Callable[[str], str] = str
    """Returns a text without the secrets of this process. The model sees tool results after it."""
    streams_draft: bool = False
    """True if heartbeats carry the answer's `output` so far, as for the synthesizer."""

    def with_claim(self, checkpoints: CheckpointStore, ends_at: float | None) -> RunDependencies:
        """Return these dependencies with a claim's checkpoints and the end of its working time."""
        return replace(self, checkpoints=checkpoints, ends_at=ends_at)

    @property
    def left_s(self) -> float:
        """Return the seconds of working time that are left; infinite without an end."""
        if self.ends_at is None:
            return inf
        return self.ends_at - self.now()

    def build_tool_context(self) -> ToolContext:
        """Return the context of the tools, with the time that is left."""
        if self.ends_at is None:
            return self.tool_context
        return replace(self.tool_context, remaining_s=lambda: max(0.0, self.left_s))
