"""Quotes of earlier jobs, and a quote as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from graphlib import TopologicalSorter
from typing import Any

from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.quote import Estimate, Quote
from handoff_queue.shared.types.usage import MICROUSD
from handoff_queue.supervisor.lifecycle.budget import closers
from handoff_queue.supervisor.lifecycle.state import JobState, Phase
from handoff_queue.supervisor.quoting.simulation import (
    CostHistory,
    CostSample,
    QuoteScore,
    RemainingWork,
    quote_of,
    score_of,
)


def quote_as_json(quote: Quote) -> dict[str, Any]:
    """Return `{cost: {likely_usd, most_usd}, time: {likely_s, most_s}, handoffs, jobs}`; null:
    unknown.
    """

    def both(estimate: Estimate | None, unit: float, name: str) -> dict[str, float] | None:
        if estimate is None:
            return None
        return {f"likely_{name}": estimate.likely / unit, f"most_{name}": estimate.most / unit}

    cost, time = both(quote.microusd, MICROUSD, "usd"), both(quote.seconds, 1.0, "s")
    return {"cost": cost, "time": time, "handoffs": quote.handoffs, "jobs": quote.jobs}


def make_quote(state: JobState, store: Store) -> Quote:
    """Return the quote of a job that has a plan, in one round trip."""
    work = _work(state)
    samples, scores = store.history.read({name for name, _ in work.steps.values()} | {*work.then})
    past = CostHistory(
        samples={
            name: [CostSample(entry["usd"], entry["ms"] / 1000) for entry in entries]
            for name, entries in samples.items()
        },
        scores=[QuoteScore(**entry) for entry in scores],
    )
    return quote_of(work, past, state.usage.cost_microusd, state.worked_s, state.job_id)


def score_in(before: JobState, later: JobState) -> str | None:
    """Return the score of the job's quote as JSON if this decision ends a job with a quote; else
    None. Later quotes are adjusted by these scores.
    """
    is_over = (
        later.phase is Phase.ENDED
        and not before.ended
        and later.status in (JobStatus.OK, JobStatus.PARTIAL)
    )
    if not is_over or later.retries or later.quote is None:
        return None
    score = score_of(later.quote, later.usage.cost_microusd, later.worked_s)
    if score:
        return json.dumps(asdict(score))
    return None


def _work(state: JobState) -> RemainingWork:
    """Return the work that the plan still needs: each step comes after its dependencies."""
    order = TopologicalSorter(
        {step_id: step.outline.depends_on for step_id, step in state.steps.items()}
    ).static_order()
    steps = {
        step_id: (state.steps[step_id].specialist, state.steps[step_id].outline.depends_on)
        for step_id in order
    }
    return RemainingWork(steps, closers(state))
