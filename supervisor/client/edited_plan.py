"""The check of a plan that a person has written in place of the plan of a job."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import JsonValue, ValidationError

from handoff_queue.shared.text.word_forms import suggest_name
from handoff_queue.shared.types.errors import PlanRefused
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.message import iterate_problems
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.plan_validation import (
    count_problems,
    find_name_problems,
    find_problems_by_step,
)
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.lifecycle.child_jobs import may_have_children
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.workflows.join_syntax import convert_join

_OF_A_REPORT = frozenset({"degraded", "method", "child_jobs"})
"""Fields of `JobResult.plan` that a plan does not have."""
_OF_A_PLAN = frozenset(Plan.model_fields)
_Problem = tuple[str, Sequence[str]]
"""A problem, and its place in the plan, such as `("steps", "0", "task")`."""


def parse_edited_plan(value: JsonValue, state: JobState, served: Collection[str]) -> Plan:
    """Parse a plan that a person has written.

    Raises:
        PlanRefused: all mistakes in the plan.
    """
    fields = value if isinstance(value, dict) else {}
    entries = fields.get("steps")
    if not isinstance(entries, list) or not entries:
        raise PlanRefused(
            [("the plan has no steps: write it in the form of the job's plan", ("steps",))]
        )
    problems: list[_Problem] = []
    known = _OF_A_PLAN | _OF_A_REPORT
    for name in fields:
        if name not in known:
            advice = suggest_name(name, sorted(known))
            problems.append((f"a plan has no field {name}: {advice}", (name,)))
    given_steps = tuple(earlier.step for earlier in state.submitted.given)
    counted_entries = _with_counted_joins(entries, given_steps)
    problems += _find_step_problems(counted_entries, given_steps, state, served)
    if problems:
        raise PlanRefused(problems)
    plan: dict[str, Any] = {}
    for name in fields.keys() & _OF_A_PLAN:
        plan[name] = fields[name]
    plan |= {"steps": counted_entries, "given": given_steps}
    if "join" in plan:
        plan["join"] = convert_join(plan["join"], _count_sinks(counted_entries))
    try:
        return Plan.model_validate_json(json.dumps(plan))
    except ValidationError as error:
        for where, message in iterate_problems(error, Plan, shows_values=True):
            problems.append((f"{'.'.join(where)}: {message}", where))
        raise PlanRefused(problems) from None


def _find_step_problems(
    entries: Sequence[JsonValue],
    given_steps: Sequence[StepId],
    state: JobState,
    served: Collection[str],
) -> list[_Problem]:
    """Return the mistakes in the steps of a plan that a person has written."""
    problems: list[_Problem] = []
    steps: list[Step] = []
    unread: list[str] = []
    places: dict[StepId, Sequence[str]] = {}
    for index, entry in enumerate(entries):
        place = ("steps", str(index))
        try:
            step = Step.model_validate_json(json.dumps(entry))
        except ValidationError as error:
            for where, message in iterate_problems(error, Step, shows_values=True):
                text = ": ".join(filter(None, (f"step {index + 1}", ".".join(where), message)))
                problems.append((text, (*place, *where)))
            if isinstance(entry, dict):
                unread.append(str(entry.get("id")))
        else:
            steps.append(step)
            places[step.id] = place
    limit = max(state.submitted.limits.max_steps, len(state.steps))
    for step_id, problem in find_problems_by_step(steps, given_steps, unread):
        problems.append((problem, places[step_id]))
    for problem in count_problems(steps, limit):
        problems.append((problem, ("steps",)))
    for step in steps:
        if step.after and not state.is_reviewed:
            problem = f"step {step.id} waits for the review, and the job has none"
            problems.append((problem, places[step.id]))
    allowed_specialists = _list_allowed_specialists(state, served)
    for step in steps:
        for problem in find_name_problems([step], allowed_specialists):
            problems.append((problem, places[step.id]))
    return problems


def _list_allowed_specialists(state: JobState, served: Collection[str]) -> set[str]:
    """Return the specialists that a person's plan may name.

    These are the served specialists that the request allows, and the specialists of the job's
    present steps.
    """
    allowed_specialists = set(served)
    if state.submitted.specialists:
        allowed_specialists &= set(state.submitted.specialists)
    for step in state.steps.values():
        allowed_specialists.add(step.outline.specialist)
    if may_have_children(state.submitted):
        allowed_specialists.add(CHILD_JOB_SPECIALIST)
    return allowed_specialists


def _with_counted_joins(
    entries: Sequence[JsonValue], given_steps: Collection[str]
) -> list[JsonValue]:
    """Return the steps with numbers in their joins. A person may write a percentage, such as
    `80%`.
    """
    counted_entries: list[JsonValue] = []
    for entry in entries:
        if not isinstance(entry, dict) or "join" not in entry:
            counted_entries.append(entry)
            continue
        awaited = [name for name in _get_dependencies(entry) if name not in given_steps]
        counted_entries.append({**entry, "join": convert_join(entry["join"], len(awaited))})
    return counted_entries


def _count_sinks(entries: Sequence[JsonValue]) -> int:
    """Return the number of steps that no other step depends on."""
    steps = [entry for entry in entries if isinstance(entry, dict)]
    depended_on: set[JsonValue] = set()
    for step in steps:
        depended_on.update(_get_dependencies(step))
    sinks = [step for step in steps if step.get("id") not in depended_on]
    return len(sinks)


def _get_dependencies(step: Mapping[str, JsonValue]) -> list[str]:
    """Return the texts in `depends_on` of a step that was not checked yet."""
    dependencies = step.get("depends_on")
    if not isinstance(dependencies, list):
        return []
    return [name for name in dependencies if isinstance(name, str)]
