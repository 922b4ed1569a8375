"""The child jobs to which a plan can lead, and the most that they may use. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.shared.types.usage import format_dollars
from handoff_queue.supervisor.lifecycle.child_job_budgets import compute_first_child_limits
from handoff_queue.supervisor.lifecycle.state import JobState


@dataclass(frozen=True, slots=True)
class ChildJobLayer:
    """The child jobs of one depth below a job: how many there may be, and the most that each
    may use.
    """

    depth: int
    at_most: int
    """Number of child jobs."""
    max_turns: int | None
    max_microusd: int | None


def build_bill(state: JobState) -> tuple[ChildJobLayer, ...]:
    """Return the child jobs to which the plan can lead, by depth. Empty if the plan has no
    steps for child jobs.
    """
    teams = 0
    for step in state.steps.values():
        if step.outline.specialist == CHILD_JOB_SPECIALIST:
            teams += 1
    if not teams:
        return ()
    limits = compute_first_child_limits(state)
    layers: list[ChildJobLayer] = []
    for depth in range(state.submitted.depth + 1, state.submitted.limits.max_depth + 1):
        layers.append(ChildJobLayer(depth, teams, limits.max_turns, limits.max_microusd))
        most_steps = limits.max_steps
        if limits.max_turns:
            most_steps = min(most_steps, limits.max_turns)
        teams *= most_steps
    return tuple(layers)


def format_bill(layers: Sequence[ChildJobLayer]) -> str:
    """Return the bill in one line; '' if there are no teams."""
    texts: list[str] = []
    for layer in layers:
        texts.append(_describe_layer(layer, is_first=not texts))
    return "; ".join(texts)


def _describe_layer(layer: ChildJobLayer, *, is_first: bool) -> str:
    noun = "child job" if layer.at_most == 1 else "child jobs"
    teams = f"{layer.at_most} {noun}"
    limits_in_words: list[str] = []
    if layer.max_turns:
        limits_in_words.append(f"{layer.max_turns} turns")
    if layer.max_microusd:
        limits_in_words.append(format_dollars(layer.max_microusd))
    limits = " without their own limit"
    if limits_in_words:
        limits = f" of at most {' and '.join(limits_in_words)} each"
    if is_first:
        return f"{teams}{limits}"
    return (
        f"below them, at depth {layer.depth}, {teams} at most, out of what those above them may use"
    )
