"""Gaps of an answer: the missing step, the reason, and the likely cost to fill the gap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from handoff_queue.shared.types.answer import Gap
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.names import CLOSING_ROLES, FACT_GATE, SUB_SUPERVISOR
from handoff_queue.shared.types.usage import cost_usd
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState, StepState


def gaps_of(state: JobState, words: ResultTexts) -> tuple[Gap, ...]:
    """Return the steps whose results are missing or incomplete, and why."""
    prices = _prices(state)
    gaps: list[Gap] = []
    for step_id, step in state.steps.items():
        if not step.is_whole:
            gaps.append(
                Gap(
                    step=step_id,
                    specialist=step.specialist,
                    why=_why(step, words),
                    likely_microusd=prices[step_id],
                )
            )
    return tuple(gaps)


def _why(step: StepState, words: ResultTexts) -> str:
    """Return why the result of a step is missing or incomplete."""
    why = words.why(step.trouble)
    is_as_before = step.trouble == step.result or (
        bool(step.remarks) and step.remarks[-1].asks_for_the_rest
    )
    if step.result_status is ResultStatus.PARTIAL:
        sent_back = "it was sent back, and the new attempt failed: "
        if is_as_before:
            sent_back = ""
        if why:
            return f"incomplete: {sent_back}{why}"
        return "incomplete"
    if step.acted:
        why = f"{why or 'it has no result'} (not tried again: it may have acted)"
    return why or ("it was stopped before it had a result" if step.attempt else "it did not run")


def to_finish(state: JobState) -> int | None:
    """Return the likely micro-dollars to fill all gaps: the steps with a gap, their dependents, and
    the later roles. None: there is no gap, or a price is unknown.
    """
    again = list(_prices(state).values())
    known: list[int] = []
    for cost in again:
        if cost is not None:
            known.append(cost)
    if not again or len(known) < len(again):
        return None
    return sum(known) + sum(state.role_costs.get(role, 0) for role in (*CLOSING_ROLES, FACT_GATE))


def _prices(state: JobState) -> dict[StepId, int | None]:
    """Return the likely micro-dollars of each missing or incomplete step and of its dependents. A
    team that continues only fills its gaps; any other attempt does the whole step.
    """
    missing = frozenset(step_id for step_id, step in state.steps.items() if not step.is_whole)
    if not missing:
        return {}
    follow, costs = frozenset(state.downstream(missing)), likely_costs(state)

    def price(step_id: StepId) -> int | None:
        step = state.steps[step_id]
        goes_on = (
            step.specialist == SUB_SUPERVISOR and step.team_knows_all and step_id not in follow
        )
        if goes_on and step.to_finish_microusd is not None:
            return step.to_finish_microusd
        return costs.of(step.specialist)

    return {step_id: price(step_id) for step_id in (*missing, *(follow - missing))}


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Mean costs of steps with a usable result, in micro-dollars. None: there are none, or a price
    is unknown.
    """

    by_specialist: Mapping[str, int | None]
    everybody: int | None

    def of(self, specialist: str) -> int | None:
        """Return the mean cost of this specialist's steps, or of all steps if there are none."""
        return self.by_specialist.get(specialist, self.everybody)


def likely_costs(state: JobState) -> StepCosts:
    done = [step for step in state.steps.values() if step.usable and step.began_at]
    by_specialist: dict[str, list[int | None]] = {}
    for step in done:
        by_specialist.setdefault(step.specialist, []).append(step.cost_microusd)
    return StepCosts(
        {name: _average(costs) for name, costs in by_specialist.items()},
        _average([step.cost_microusd for step in done]),
    )


def _average(costs: Sequence[int | None]) -> int | None:
    known: list[int] = []
    for cost in costs:
        if cost is not None:
            known.append(cost)
    if known and len(known) == len(costs):
        return round(sum(known) / len(known))
    return None


def gap_text(gaps: tuple[Gap, ...]) -> str:
    if not gaps:
        return ""
    return "\n".join(["**Missing or incomplete:**", "", *(f"- {gap_line(gap)}" for gap in gaps)])


def lacking(gaps: Sequence[Gap]) -> str:
    """Return the gaps in one line, without their costs."""
    return "; ".join(f"{gap.step} ({gap.specialist}): {gap.why}" for gap in gaps)


def gap_line(gap: Gap) -> str:
    cost = cost_usd(gap.likely_microusd)
    price = ""
    if cost:
        price = f"{cost:.6f}".rstrip("0").rstrip(".")
    return f"{gap.step} ({gap.specialist}): {gap.why}" + (
        f" (doing it would cost about ${price})" if price else ""
    )
