"""Make the quote of a job from the history in the store, score it at the end, and show it as JSON.

A quote estimates the working time of a job. Waits for a person, and the time between an
end and a retry, do not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from graphlib import TopologicalSorter
from typing import Any

from handoff_queue.shared.store.presence import ServedSpecialist
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.cost_quote import Estimate, Quote
from handoff_queue.shared.types.events import JobEnded, JobStatus, RecordedEvent
from handoff_queue.shared.types.ids import JobId, StepId
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.shared.types.usage import MICROUSD
from handoff_queue.supervisor.lifecycle.job_budget import list_closing_roles
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.state import JobState, Phase
from handoff_queue.supervisor.quoting.cost_simulation import (
    CostHistory,
    CostSample,
    QuoteScore,
    RemainingWork,
    compute_quote,
    compute_score,
)

BATCH_PROVIDER = "anthropic"
"""The provider with batches, as workers announce it."""


def compute_working_seconds(job_id: JobId, journal: Iterable[RecordedEvent]) -> float:
    """Return the seconds of work to the job's end, or to its last event."""
    earlier_s = 0.0  # work of the runs before the latest retry
    latest_s = 0.0  # work since the submission or the latest retry
    state: JobState | None = None
    for events in _split_events_by_end(journal):
        before = state
        state = fold(job_id, before, events)
        had_ended = before is not None and before.ended is not None
        if state is None or (had_ended and state.ended):
            continue  # events after an end are not work
        if had_ended:
            earlier_s += latest_s
        latest_s = _compute_working_time_s(state, before)
    return earlier_s + latest_s


def _split_events_by_end(journal: Iterable[RecordedEvent]) -> Iterator[list[RecordedEvent]]:
    """Yield the events in parts. Each end of the job is a separate part."""
    part: list[RecordedEvent] = []
    for recorded in journal:
        if isinstance(recorded.event, JobEnded):
            yield part
            yield [recorded]
            part = []
        else:
            part.append(recorded)
    yield part


def _compute_working_time_s(state: JobState, before: JobState | None) -> float:
    """Return the seconds since the submission or the latest retry. An open question ends the
    count, also at the end of the job.
    """
    question = state.question
    if question is None and before and state.ended:
        question = before.question
    if question:
        return question.at - state.started_at - state.waited_s
    return state.worked_s


def convert_quote(quote: Quote) -> dict[str, Any]:
    """Return `{cost: {likely_usd, most_usd}, time: {likely_s, most_s}, handoffs, jobs}`.

    `cost` and `time` are None if they are not known. If calls go through batches, `cost` also has
    `half_price_usd`: the part of `likely_usd` that is for their tokens. Then `time` is None.
    `time_without_batches` has its form and does not count the waits for batches. `deadline_s` is
    the seconds from the submission, or the latest retry, to the end at the latest. It has the waits
    for a person before the quote, but not those after it.
    """
    cost = _estimate_as_json(quote.microusd, MICROUSD, "usd")
    if cost is not None and quote.half_price_microusd is not None:
        cost["half_price_usd"] = quote.half_price_microusd / MICROUSD
    fields: dict[str, Any] = {
        "cost": cost,
        "time": _estimate_as_json(quote.seconds, 1.0, "s"),
        "handoffs": quote.handoffs,
        "jobs": quote.jobs,
    }
    if quote.deadline_s is not None:
        fields["time_without_batches"] = _estimate_as_json(quote.live_seconds, 1.0, "s")
        fields["deadline_s"] = quote.deadline_s
    return fields


def _estimate_as_json(estimate: Estimate | None, unit: float, name: str) -> dict[str, float] | None:
    if estimate is None:
        return None
    return {f"likely_{name}": estimate.likely / unit, f"most_{name}": estimate.most / unit}


def make_quote(state: JobState, store: Store) -> Quote:
    """Return the quote of a job that has a plan, in one round trip."""
    work = _build_remaining_work(state, store.presence.load_served_specialists())
    stored_samples, scores = store.history.read(work.names)
    samples: dict[str, list[CostSample]] = {}
    for name, entries in stored_samples.items():
        samples[name] = [_build_sample(entry) for entry in entries]
    past = CostHistory(samples, [QuoteScore(**entry) for entry in scores])
    return compute_quote(work, past, state.usage.cost_microusd, state.worked_s, state.job_id)


def encode_score(before: JobState, later: JobState) -> str | None:
    """Return the score of the job's quote as JSON if a decision ends the job, else None.

    Later quotes are scaled by these scores. A job that was retried, or that ended with another
    status than `ok` or `partial`, has no score.

    Args:
        before: state before the decision.
        later: state after the decision.
    """
    ends_now = later.phase is Phase.ENDED and not before.ended
    has_answer = later.status in (JobStatus.OK, JobStatus.PARTIAL)
    if not ends_now or not has_answer or later.retries or later.quote is None:
        return None
    score = compute_score(later.quote, later.usage.cost_microusd, later.worked_s)
    if score:
        return json.dumps(asdict(score))
    return None


def _build_sample(entry: Mapping[str, Any]) -> CostSample:
    """Return a sample of the store."""
    return CostSample(entry["usd"], entry["ms"] / 1000, entry["saved"], entry["server_tools"])


def _build_remaining_work(state: JobState, served: Mapping[str, ServedSpecialist]) -> RemainingWork:
    """Return all steps of the plan, each after its dependencies, and the roles after the steps."""
    dependencies = {step_id: step.outline.depends_on for step_id, step in state.steps.items()}
    steps: dict[StepId, tuple[str, tuple[StepId, ...]]] = {}
    for step_id in TopologicalSorter(dependencies).static_order():
        steps[step_id] = (state.steps[step_id].specialist, dependencies[step_id])
    work = RemainingWork(steps, list_closing_roles(state))
    if not state.submitted.is_batched:
        return work
    live: set[str] = set()
    for name in work.names:
        if not _has_batches(name, served.get(name)):
            live.add(name)
    deadline_s = round(state.deadline - state.started_at)  # waits for a person have moved it
    return replace(work, is_batched=True, deadline_s=deadline_s, live=frozenset(live))


def _has_batches(name: str, served: ServedSpecialist | None) -> bool:
    """Return whether calls of a specialist or role may go through batches. The specialists of a
    child job are not known, so its cost counts as if all its calls were live.

    Args:
        served: None for a role, and if no worker serves the specialist now.
    """
    if name == CHILD_JOB_SPECIALIST:
        return False
    if served is None:
        return True
    is_external = served.spec.runner is not None or served.spec.celery_task is not None
    return not is_external and {*served.models} <= {BATCH_PROVIDER}
