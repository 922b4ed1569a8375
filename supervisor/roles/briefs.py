"""What the supervisor's roles are asked: the task text of their handoffs. Pure, and the same for the same job.

Results travel as the handoff's context, documents as its artifacts; a brief holds the plan, what code knows to be missing, and,
last, the request, word for word to the end. What others wrote stands above it as JSON, an item a line: it cannot pass for a heading.
(No tags: a brief stands inside the handoff's `<task>`, where closing tags are defused.)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from shared.wire.plan import Plan
from supervisor.roles.answer_text import clipped

MAX_REQUEST_CHARS = 60_000
"""Characters of a request that a role is shown."""
MAX_BRIEF_CHARS = 100_000
"""What a handoff's task holds."""
MAX_TASK_CHARS = 1_200
"""Characters of each step's task that the assessor is shown."""
MAX_NOTE_CHARS = 10_000
"""Characters of what a person says of a plan."""
MAX_NEED_CHARS = 4_000
"""Characters of what a step says that it needs."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A specialist that live workers serve, as the planner sees it."""

    name: str
    description: str
    tools: tuple[str, ...] = ()
    queued: int = 0
    """Handoffs that wait on its queue."""


def plan_brief(request: str, candidates: Sequence[Candidate], max_steps: int, rejected: Sequence[tuple[Plan, str]] = ()) -> str:
    """The planner's first job. `rejected`: plans that the user did not want, the latest last, each with what was said of it."""
    job = f"Make the plan for the request below, with at most {max_steps} steps."
    if rejected:
        job += " The user has rejected the plans below: heed what is said of them, and change nothing else without need."
    plans: list[JsonValue] = [{"note": clipped(note, MAX_NOTE_CHARS), "steps": _steps(plan)} for plan, note in rejected]
    return _brief(job, request, specialists=_offered(candidates), rejected_plans=plans)


def route_brief(request: str, candidates: Sequence[Candidate]) -> str:
    """The router's job."""
    job = "Decide who gets the request below: one specialist, who does all of it alone, or a team with a plan."
    return _brief(job, request, specialists=_offered(candidates))


def needs_brief(request: str, plan: Plan, needs: Mapping[str, str]) -> str:
    """The planner's second job: what steps asked for, by step. Their results so far come as the handoff's context."""
    asked: list[JsonValue] = [{"step": step, "needs": clipped(need, MAX_NEED_CHARS)} for step, need in sorted(needs.items())]
    job = "Steps of your plan cannot go on without something. Resolve each need: answer it, or give it up."
    return _brief(job, request, plan=_steps(plan), needs=asked)


def assessment_brief(request: str, plan: Plan, round_number: int, left: int, conflicts: Sequence[JsonValue] = ()) -> str:
    """The assessor's job. `round_number` counts from 1; `left` is how often work may still be sent back.

    `conflicts`: what the judge made of claims that contradict each other.
    """
    again = f"work may be sent back {left} more {'time' if left == 1 else 'times'}" if left else "nothing can be sent back any more"
    return _brief(
        f"Judge the results of round {round_number} against the request below ({again}).", request, plan=_steps(plan), conflicts=conflicts
    )


def synthesis_brief(
    request: str,
    plan: Plan,
    gaps: Sequence[str],
    open_points: Sequence[str],
    vetoes: Sequence[str] = (),
    conflicts: Sequence[JsonValue] = (),
) -> str:
    """The synthesizer's job. `gaps` are failed or missing parts: code prints them below the answer, whatever the model writes.

    `vetoes`: why the answer before this one was turned down; `conflicts`: as in `assessment_brief`.
    """
    job, last = "Write the one answer to the request below from the results of these steps.", list(vetoes)
    known: dict[str, Sequence[JsonValue]] = {
        "plan": _steps(plan),
        "gaps": list(gaps),
        "open_points": list(open_points),
        "conflicts": conflicts,
    }
    return _brief(job, request, **known, turned_down_before_because=last)


def _offered(candidates: Sequence[Candidate]) -> list[JsonValue]:
    return [
        {"name": one.name, "description": one.description, "tools": list(one.tools), "waiting": one.queued}
        for one in sorted(candidates, key=lambda one: one.name)
    ]


def _steps(plan: Plan) -> list[JsonValue]:
    return [
        {"step": step.id, "specialist": step.specialist, "task": clipped(step.task, MAX_TASK_CHARS), "depends_on": list(step.depends_on)}
        for step in plan.steps
    ]


def _brief(job: str, request: str, **lists: Sequence[JsonValue]) -> str:
    """The job, each list that is not empty, the request. A list gives way to the request, its end first."""
    shown = clipped(request, MAX_REQUEST_CHARS)
    above = [job]
    for name, items in lists.items():
        if items:
            lines = (json.dumps(item, ensure_ascii=False) for item in items)
            above.append("\n".join([f"{name.replace('_', ' ').capitalize()}:", *lines]))
    return f"{clipped(chr(10).join(above), MAX_BRIEF_CHARS - len(shown) - 20)}\n\nRequest:\n{shown}"
