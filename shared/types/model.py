"""The port to a language model: one call and its reply, in the types of the Messages API.

`shared.providers.anthropic.model.AnthropicModel` implements it for all models. The offline model is
an HTTP transport of the same client. Both pass tests/contracts/test_model.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from handoff_queue.shared.types.rate_limits import NO_RATE_LIMITS, RateLimits
from handoff_queue.shared.types.usage import NOTHING_USED, Usage

MIN_PROGRESS_INTERVAL_S = 0.25
MAX_PROGRESS_INTERVAL_S = 2.0
"""Shortest and longest time between two reports of a waiting call while no piece arrives, in
seconds. The first is for few waiting calls, the second for a thousand or more.
"""
MAX_PROGRESS_REPORTS_A_S = 500
"""Reports a second of all waiting calls of a process. More would slow down the calls whose
replies arrive.
"""
Block = dict[str, Any]
"""A content block of the Messages API, such as {"type": "text", ...} or {"type": "tool_use",
...}.
"""
MessageParam = dict[str, Any]
"""A message of the Messages API: {"role": "user" | "assistant", "content": str | [Block]}."""


COMPACTION = "compaction"
"""Type of the block with a summary that the provider has written and signed."""
CONTEXT_FULL = "model_context_window_exceeded"
"""Stop reason of a reply that has filled the context window of the model."""
CUT_OFF = ("max_tokens", CONTEXT_FULL)
"""Stop reasons of the Messages API for a reply that was cut off. Its last call is not complete."""


class Effort(StrEnum):
    """How much work a model puts into a reply: `effort` of the Messages API."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


class Thinking(StrEnum):
    """When a model thinks before it writes: the type of `thinking` of the Messages API."""

    ADAPTIVE = "adaptive"
    BETWEEN_TOOLS = "between_tools"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class ProviderClearing:
    """When the provider clears old results of tools from a request. The provider counts the
    tokens.
    """

    at_tokens: int
    """Input tokens of a request from which on results are cleared."""
    keep: int
    """Newest results that stay."""
    at_least: int
    """Least tokens of one clearing."""


@dataclass(frozen=True, slots=True)
class SystemPrompt:
    """A system prompt. The code that builds it says which part the provider can cache."""

    common: str
    """The part that all handoffs of the agent have. It comes first, and is cached."""
    handoff_rules: str = ""
    """The part that only some handoffs of the agent have, with the gap before it."""
    caches_handoff_rules: bool = False
    """True if the prompt is cached up to the end of `handoff_rules`, too."""

    @property
    def text(self) -> str:
        """The whole system prompt."""
        return self.common + self.handoff_rules


@dataclass(frozen=True, slots=True)
class ModelCall:
    """Request for one reply of a model."""

    model: str
    system: SystemPrompt
    messages: tuple[MessageParam, ...]
    max_output_tokens: int
    tools: tuple[dict[str, Any], ...] = ()
    """Tool definitions of the Messages API, including server-side tools."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema of the final text; None: free text."""
    may_call_tools: bool = True
    """False if the model may not call tools in this reply. The tools stay defined, because the
    conversation may mention them.
    """
    effort: Effort | None = None
    """None: the default of the model."""
    thinking: Thinking | None = None
    """None: the default of the model."""
    caches_for_1h: bool = False
    """True if the provider's cache should keep the request for one hour, at a higher price. A
    person may have to approve a tool call before the next turn. False: for 5 minutes.
    """
    caches_prefix_for_1h: bool = False
    """True if the provider's cache should keep at least the part that other handoffs repeat for one
    hour.
    """
    clearing: ProviderClearing | None = None
    """When the provider clears results from this request; None: it clears none."""
    compaction: str | None = None
    """Instructions for a summary of all messages, which the provider writes in place of a reply.
    None: an ordinary reply.
    """
    is_summary: bool = False
    """True if the reply is a summary, by the model or by the provider. It replaces all messages but
    the first, so no later request repeats the end of this one.
    """
    timeout_s: float = 120.0
    """Longest silence on the connection in seconds."""
    progress_s: float = 300.0
    """Longest time without an event of the reply in seconds. A server may only keep the
    connection alive, and not work on the reply.
    """

    @property
    def has_signed_summary(self) -> bool:
        """Return whether the messages begin with a summary that the provider has signed."""
        content = self.messages[0]["content"] if self.messages else ""
        return not isinstance(content, str) and content[0].get("type") == COMPACTION


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A complete reply."""

    content: tuple[Block, ...]
    stop_reason: str
    """end_turn | max_tokens | stop_sequence | tool_use | pause_turn | refusal | compaction |
    model_context_window_exceeded
    """
    usage: Usage
    """Tokens. The cost holds only charges besides tokens (server-side searches).
    `shared.agent.prices` adds the price of the tokens.
    """
    model: str
    """Name of the model in the server's answer."""
    request_id: str | None = None
    limits: RateLimits = NO_RATE_LIMITS
    """Rate limits that the provider reported."""
    cleared_calls: int = 0
    """Calls of tools, the oldest of the request, whose results the provider has cleared."""
    cleared_tokens: int = 0
    """Tokens of these results."""


@dataclass(frozen=True, slots=True)
class CallProgress:
    """Progress of a call, before its reply is complete."""

    text: str = ""
    """The final text so far. It may be the beginning of a JSON value."""
    usage: Usage = field(default=NOTHING_USED)
    """Usage that the server has reported so far."""
    is_usage_final: bool = False
    """True if the reply has ended, so that only its last event may be missing."""
    limits: RateLimits | None = None
    """Rate limits that the server reported with its answer; None before the answer."""


def compute_progress_interval_s(waiting: int) -> float:
    """Return the seconds between two reports of each call, for this number of waiting calls.

    It is one second for 500 calls. It bounds the delay of a cancel, a drain or a deadline.
    """
    return min(
        MAX_PROGRESS_INTERVAL_S, max(MIN_PROGRESS_INTERVAL_S, waiting / MAX_PROGRESS_REPORTS_A_S)
    )


class Model(Protocol):
    """A language model, or something that answers like one."""

    def reply(self, call: ModelCall, on_progress: Callable[[CallProgress], None]) -> ModelReply:
        """Make exactly one request, without retries, and return the reply.

        The model calls `on_progress` for each piece that arrives, and every
        `compute_progress_interval_s` while no piece arrives. So a slow first token does not look
        like a dead call. An error that `on_progress` raises (`Interrupted`, `LimitReached`) cuts
        the stream and is raised. A complete reply is returned in any case, because it is paid for.
        A refusal is a reply with `stop_reason` "refusal".

        Raises:
            ModelError: there is no reply; see its subclasses.
        """
        ...
