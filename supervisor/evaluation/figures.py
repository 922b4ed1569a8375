"""What a job came to, in figures: what code makes of its answer, and what it took. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.supervisor.client.report import JobResult
from handoff_queue.supervisor.lifecycle.gates import vetoes_of


@dataclass(frozen=True, slots=True)
class Took:
    """Of one job, or of several together."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    """None: a price is not known."""
    wall_s: float = 0.0
    """From submit to the end."""
    own_s: float = 0.0
    """The own time of all handoffs, one after the other: what it would have taken had nothing run side by side."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Took) -> Took:
        is_known = self.cost_usd is not None and other.cost_usd is not None
        return Took(
            turns=self.turns + other.turns,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=(self.cost_usd or 0.0) + (other.cost_usd or 0.0) if is_known else None,
            wall_s=self.wall_s + other.wall_s,
            own_s=self.own_s + other.own_s,
        )


def took_by(result: JobResult) -> Took:
    usage = result.usage
    spans = ((one.get("started_at"), one.get("finished_at")) for one in result.handoffs)
    own_s = sum(end - start for start, end in spans if start and end)
    return Took(
        usage["turns"],
        usage["input_tokens"],
        usage["output_tokens"],
        usage["cost_usd"],
        result.wall_s,
        round(own_s, 3),
    )


def took_together(parts: Iterable[Took]) -> Took:
    return sum(parts, start=Took())


def text_of(result: JobResult) -> str:
    """The answer as its user gets it; a value of a form as JSON. Empty: there is none."""
    if result.answer is None:
        return ""
    return (
        result.answer
        if isinstance(result.answer, str)
        else json.dumps(result.answer, ensure_ascii=False)
    )


def faults_of(result: JobResult, gates: Gates | None) -> tuple[str, ...]:
    """Why the answer does not pass, a sentence each. All of it is looked at, what code adds below it as well: its user reads that, too."""
    text = text_of(result)
    if not text:
        reason = result.notes[-1] if result.notes else result.status.value
        return (f"There is no answer: {reason}",)
    return (
        vetoes_of(gates, text, len(result.citations), is_form=not isinstance(result.answer, str))
        if gates
        else ()
    )


def is_cut(result: JobResult) -> bool:
    """Whether it ran out of money or tokens: it says nothing about the quality of its mode then."""
    return any(
        one["stop_reason"] in (StopReason.JOB_BUDGET, StopReason.DAY_BUDGET)
        for one in result.results
    )
