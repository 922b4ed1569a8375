"""A quote for programs: in dollars and seconds."""

from __future__ import annotations

from typing import Any

from handoff_queue.shared.types.quote import Estimate, Quote
from handoff_queue.shared.types.usage import MICROUSD


def shown(quote: Quote) -> dict[str, Any]:
    """`{cost: {likely_usd, most_usd}, time: {likely_s, most_s}, handoffs, jobs}`; null: not known."""

    def both(one: Estimate | None, unit: float, name: str) -> dict[str, float] | None:
        return (
            None
            if one is None
            else {f"likely_{name}": one.likely / unit, f"most_{name}": one.most / unit}
        )

    cost, time = both(quote.microusd, MICROUSD, "usd"), both(quote.seconds, 1.0, "s")
    return {"cost": cost, "time": time, "handoffs": quote.handoffs, "jobs": quote.jobs}
