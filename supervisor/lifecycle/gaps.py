"""Gaps of an answer: the missing step, the reason, and the likely cost to fill the gap."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from handoff_queue.shared.types.answer import Gap
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST, CLOSING_ROLES, FACT_GATE
from handoff_queue.shared.types.usage import to_usd
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState, StepState


def find_gaps(state: JobState, texts: ResultTexts) -> tuple[Gap, ...]:
    """Return the steps whose results are missing or incomplete, and why."""
    prices = _estimate_prices(state)
    gaps: list[Gap] = []
    for step_id, step in state.steps.items():
        if not step.is_whole:
            gaps.append(
                Gap(
                    step=step_id,
                    specialist=step.specialist,
                    why=_explain_gap(step, texts),
                    likely_microusd=prices[step_id],
                )
            )
    return tuple(gaps)


def _explain_gap(step: StepState, texts: ResultTexts) -> str:
    """Return why the result of a step is missing or incomplete."""
    why = texts.explain(step.problem_result)
    if step.result_status is ResultStatus.PARTIAL:
        return _explain_incomplete(step, why)
    if step.acted:
        return f"{why or 'it has no result'} (not tried again: it may have acted)"
    if why:
        return why
    if step.attempt:
        return "it was stopped before it had a result"
    return "it did not run"


def _explain_incomplete(step: StepState, why: str | None) -> str:
    if not why:
        return "incomplete"
    asked_for_the_rest = bool(step.remarks) and step.remarks[-1].asks_for_the_rest
    if step.problem_result == step.result or asked_for_the_rest:
        return f"incomplete: {why}"
    return f"incomplete: it was sent back, and the new attempt failed: {why}"


def to_finish(state: JobState) -> int | None:
    """Return the likely micro-dollars to fill all gaps: the steps with a gap, their
    dependents, the roles that end the job and the fact-check. None: there is no gap, or the
    price of a step is unknown.
    """
    known = _get_costs_if_all_known(_estimate_prices(state).values())
    if not known:
        return None
    total = sum(known)
    for role in (*CLOSING_ROLES, FACT_GATE):
        total += state.role_costs.get(role, 0)
    return total


def _estimate_prices(state: JobState) -> dict[StepId, int | None]:
    """Return the likely micro-dollars of each missing or incomplete step and of its
    dependents. A child job that continues only fills its gaps; any other attempt does the whole
    step.
    """
    incomplete = frozenset(state.incomplete_steps)
    if not incomplete:
        return {}
    dependents, costs = state.find_downstream(incomplete), compute_likely_costs(state)
    prices: dict[StepId, int | None] = {}
    for step_id in incomplete | dependents:
        step = state.steps[step_id]
        prices[step_id] = costs.get_mean_cost(step.specialist)
        continues = (
            step.specialist == CHILD_JOB_SPECIALIST
            and step.child_job_knows_all
            and step_id not in dependents
        )
        if continues and step.to_finish_microusd is not None:
            prices[step_id] = step.to_finish_microusd
    return prices


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Mean costs of steps with a usable result, in micro-dollars. None: there is no such step,
    or the price of one is unknown.
    """

    by_specialist: Mapping[str, int | None]
    overall: int | None
    """Mean cost of the steps of all specialists."""

    def get_mean_cost(self, specialist: str) -> int | None:
        """Return the mean cost of this specialist's steps, or of all steps if there are none."""
        return self.by_specialist.get(specialist, self.overall)


def compute_likely_costs(state: JobState) -> StepCosts:
    """Return the mean costs of the job's steps so far, by specialist."""
    all_costs: list[int | None] = []
    costs_by_specialist: dict[str, list[int | None]] = {}
    for step in state.steps.values():
        if step.is_usable and step.began_at:
            all_costs.append(step.cost_microusd)
            costs_by_specialist.setdefault(step.specialist, []).append(step.cost_microusd)
    averages = {name: _compute_average(costs) for name, costs in costs_by_specialist.items()}
    return StepCosts(averages, _compute_average(all_costs))


def _compute_average(costs: Collection[int | None]) -> int | None:
    """Return the mean cost; None if there are no costs, or one is unknown."""
    known = _get_costs_if_all_known(costs)
    if known:
        return round(sum(known) / len(known))
    return None


def _get_costs_if_all_known(costs: Collection[int | None]) -> list[int]:
    """Return the costs; empty if one is unknown."""
    known: list[int] = []
    for cost in costs:
        if cost is None:
            return []
        known.append(cost)
    return known


def format_gaps_section(gaps: tuple[Gap, ...]) -> str:
    """Return the section with the gaps; '' if there are none."""
    if not gaps:
        return ""
    return "\n".join(["**Missing or incomplete:**", "", *(f"- {format_gap(gap)}" for gap in gaps)])


def format_gaps(gaps: Sequence[Gap]) -> str:
    """Return the gaps in one line, without their costs."""
    return "; ".join(f"{gap.step} ({gap.specialist}): {gap.why}" for gap in gaps)


def format_gap(gap: Gap) -> str:
    """Return a gap in one line, with its likely cost if that is known and not 0."""
    line = f"{gap.step} ({gap.specialist}): {gap.why}"
    cost = to_usd(gap.likely_microusd)
    if not cost:
        return line
    price = f"{cost:.6f}".rstrip("0").rstrip(".")
    return f"{line} (doing it would cost about ${price})"
