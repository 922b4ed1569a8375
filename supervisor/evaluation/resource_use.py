"""The resources that the jobs of an evaluation used: turns, tokens, money and time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from handoff_queue.supervisor.client.job_result import JobResult


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Resources of one job, or of several jobs together."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    """None if a price is unknown."""
    wall_s: float = 0.0
    """Seconds from submission to the end."""
    own_s: float = 0.0
    """Sum of the durations of all handoffs in seconds: the time without any parallel work."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: ResourceUse) -> ResourceUse:
        cost_usd = None
        if self.cost_usd is not None and other.cost_usd is not None:
            cost_usd = self.cost_usd + other.cost_usd
        return ResourceUse(
            turns=self.turns + other.turns,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=cost_usd,
            wall_s=self.wall_s + other.wall_s,
            own_s=self.own_s + other.own_s,
        )


def get_usage(result: JobResult) -> ResourceUse:
    """Return the resources of a job."""
    usage = result.usage
    own_s = 0
    for handoff in result.handoffs:
        start, end = handoff.get("started_at"), handoff.get("finished_at")
        if start and end:
            own_s += end - start
    return ResourceUse(
        usage["turns"],
        usage["input_tokens"],
        usage["output_tokens"],
        usage["cost_usd"],
        result.wall_s,
        round(own_s, 3),
    )


def sum_usage(parts: Iterable[ResourceUse]) -> ResourceUse:
    """Return the sum of the resources."""
    return sum(parts, start=ResourceUse())


def format_times(more: float, less: float) -> str:
    """Return the quotient in words: `5.2 times`, or `many times` if `less` is zero."""
    if less:
        return f"{more / less:.1f} times"
    return "many times"
