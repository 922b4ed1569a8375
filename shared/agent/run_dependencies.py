"""The dependencies of one run of a handoff."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf

from handoff_queue.shared.agent.answer_format import AnswerFormat
from handoff_queue.shared.agent.checkpoint_store import CheckpointStore, NoCheckpoints
from handoff_queue.shared.agent.prices import Prices
from handoff_queue.shared.agent.tool import Tool, ToolContext
from handoff_queue.shared.types.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDependencies:
    """Everything that the loop needs from outside to run a handoff."""

    model: Model
    model_name: str
    """`handoff.model`, or the spec's, or the default of its tier."""
    lane: str | None = None
    """Rate-limit bucket of the calls, see `shared.types.rate_limits.Expected`. None: there are no
    limits.
    """
    turns: CheckpointStore = field(default_factory=NoCheckpoints)
    ends_at: float | None = None
    """Until when the claim may work, Unix time in seconds. None: there is no end to it, or no
    claim yet.
    """
    reading: AnswerFormat
    prices: Prices
    tools: tuple[Tool, ...] = ()
    """Tools that exist in this process; the loop offers only the tools that the spec names."""
    tool_context: ToolContext
    now: Callable[[], float] = time.time
    """Unix time in seconds by the clock that this end is given in (Redis's)."""
    wait: Callable[[float], None] = time.sleep
    dice: Callable[[], float] = random.random
    silence_s: float = 120.0
    """The longest silence on the wire of a model call."""
    progress_s: float = 300.0
    """Longest time in seconds without progress of a reply, also if other bytes arrive."""
    rate_wait_s: float = 20.0
    """A call that must wait longer than this for the provider's rate limits gives its slot back."""
    streams_draft: bool = False
    """Whether the answer's `output` so far goes out with each beat (the synthesizer's)."""

    def claimed(self, turns: CheckpointStore, ends_at: float | None) -> RunDependencies:
        """The same for a claim of which it is known until when it may work."""
        return replace(self, turns=turns, ends_at=ends_at)

    @property
    def left_s(self) -> float:
        """Until then; infinite where there is no end to it."""
        return inf if self.ends_at is None else self.ends_at - self.now()

    def for_tools(self) -> ToolContext:
        """The context of its tools, which are told how much time there is."""
        return (
            self.tool_context
            if self.ends_at is None
            else replace(self.tool_context, remaining_s=lambda: max(0.0, self.left_s))
        )
