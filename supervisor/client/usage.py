"""What jobs and handoffs have taken, as it is told."""

from __future__ import annotations

from typing import Any

from handoff_queue.shared.store.jobs import HandoffStanding, JobStanding
from handoff_queue.shared.types.usage import cost_usd


def usage_of(books: JobStanding | HandoffStanding) -> dict[str, Any]:
    """What the budget has counted for a job or a handoff, in the form of `JobResult.usage`."""
    return {
        "turns": books.turns,
        "input_tokens": books.input_tokens,
        "output_tokens": books.output_tokens,
        "cost_usd": cost_usd(books.cost_microusd),
        "cut": {
            "calls": books.cut_calls,
            "tokens": books.cut_tokens,
            "cost_usd": None if books.cost_microusd is None else cost_usd(books.cut_microusd),
        },
    }
