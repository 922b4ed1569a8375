"""Summary of a large plan in the fields of the job's hash, for readers that cannot read the
whole plan. It is written when the plan changes. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from handoff_queue.shared.types.events import (
    Event,
    NeedsResolved,
    PlanMade,
    PlanPatched,
    StepOutline,
)
from handoff_queue.shared.types.ids import StepId, find_step_of_copy
from handoff_queue.supervisor.lifecycle.state import JobState, get_outlines

FEW_STEPS = 20
"""Plans with at most this many steps get no summary: readers show each of their handoffs."""
MAX_PARTS = 20
"""Most parts in a summary. All copies of a repeated step are one part, and a plan has few
other steps.
"""


def build_plan_fields(state: JobState, later: JobState, events: Sequence[Event]) -> dict[str, str]:
    """Return the field `plan_short` of the job's hash if the plan may have changed. One of the
    events may change it, or a person before the first step began. Empty if it has not changed.

    Args:
        state: the state before the events.
        later: the state after them.
    """
    if not later.steps:
        if state.steps:
            return {"plan_short": ""}
        return {}
    if not any(map(_changes_plan, events)) and _has_begun(state):
        return {}
    return {"plan_short": in_short(get_outlines(later.steps))}


def _has_begun(state: JobState) -> bool:
    """Return whether any step of the plan has begun. Single look-ups are cheap: `items()` of
    the steps would build a dict of all steps for each version of the state.
    """
    return state.plan is not None and any(state.steps[step.id].attempt for step in state.plan.steps)


def _changes_plan(event: Event) -> bool:
    return isinstance(event, PlanMade | PlanPatched | NeedsResolved)


def in_short(steps: Sequence[StepOutline]) -> str:
    """Return `{steps, parts: [{first, last, count, specialist}], other_steps}` as JSON; '' for
    a small plan.
    """
    if len(steps) <= FEW_STEPS:
        return ""
    parts = _group_steps(steps)
    visible_parts = parts[:MAX_PARTS]
    other_steps = len(steps) - sum(part["count"] for part in visible_parts)
    summary = {"steps": len(steps), "parts": visible_parts, "other_steps": other_steps}
    return json.dumps(summary, separators=(",", ":"))


def _group_steps(steps: Iterable[StepOutline]) -> list[dict[str, Any]]:
    """Return a part for each source and specialist, in the order of their first steps."""
    parts: dict[tuple[StepId | str, str], dict[str, Any]] = {}
    for step in steps:
        whose = (find_step_of_copy(step.id) or step.id, step.specialist)
        part = parts.setdefault(
            whose, {"first": step.id, "last": step.id, "count": 0, "specialist": step.specialist}
        )
        part["last"] = step.id
        part["count"] += 1
    return list(parts.values())
