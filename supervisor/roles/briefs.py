"""What the supervisor's roles are asked: the task text of their handoffs. Pure, and the same for the same job.

Results travel as the handoff's context, documents as its artifacts; a brief holds the request, the plan, and what code knows
to be missing. What specialists wrote stands in `<data>` as JSON without `<`: it cannot close its tag.
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


@dataclass(frozen=True, slots=True)
class Candidate:
    """A specialist that live workers serve, as the planner sees it."""

    name: str
    description: str
    tools: tuple[str, ...] = ()
    queued: int = 0
    """Handoffs that wait on its queue."""


def plan_brief(request: str, candidates: Sequence[Candidate], max_steps: int) -> str:
    """The planner's first job."""
    return _whole(
        "Make the plan for this request.",
        _request(request),
        f'<specialists max_steps="{max_steps}">',
        *(_candidate(one) for one in sorted(candidates, key=lambda one: one.name)),
        "</specialists>",
    )


def needs_brief(request: str, plan: Plan, needs: Mapping[str, str]) -> str:
    """The planner's second job: what steps asked for, by step. Their partial results come as the handoff's context."""
    return _whole(
        "Steps of your plan cannot go on without something. Resolve each: answer it, or give it up.",
        _request(request),
        _plan(plan),
        _data("needs", [{"step": step, "needs": need.strip()} for step, need in sorted(needs.items())]),
    )


def assessment_brief(request: str, plan: Plan, round_number: int, max_rounds: int) -> str:
    """The assessor's job. `round_number` counts from 1; after `max_rounds` revisions nothing can be sent back any more."""
    return _whole(
        f"Judge the results of round {round_number} (work may be sent back {max(0, max_rounds - round_number + 1)} more times).",
        _request(request),
        _plan(plan),
    )


def synthesis_brief(request: str, plan: Plan, gaps: Sequence[str], open_points: Sequence[str]) -> str:
    """The synthesizer's job. `gaps` are failed or missing parts: code prints them below the answer, whatever the model writes."""
    return _whole(
        "Write the one answer to the request from the results of these steps.",
        _request(request),
        _plan(plan),
        _data("gaps", gaps),
        _data("open_points", open_points),
    )


def _request(request: str) -> str:
    return f"<request>\n{clipped(request, MAX_REQUEST_CHARS)}\n</request>"


def _candidate(one: Candidate) -> str:
    tools = ", ".join(one.tools) or "none"
    return f'<specialist name="{one.name}" tools="{tools}" waiting="{one.queued}">{one.description}</specialist>'


def _plan(plan: Plan) -> str:
    steps: list[JsonValue] = [
        {"step": step.id, "specialist": step.specialist, "task": clipped(step.task, MAX_TASK_CHARS), "depends_on": list(step.depends_on)}
        for step in plan.steps
    ]
    return _data("plan", steps)


def _data(tag: str, items: Sequence[JsonValue]) -> str:
    """One item a line; nothing at all when there is none."""
    lines = (json.dumps(item, ensure_ascii=False).replace("<", "\\u003c") for item in items)
    return "\n".join([f"<{tag}><data>", *lines, f"</data></{tag}>"]) if items else ""


def _whole(*parts: str) -> str:
    return clipped("\n".join(filter(None, parts)), MAX_BRIEF_CHARS)
