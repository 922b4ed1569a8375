"""Briefs of the supervisor's roles: the task texts of their handoffs. Pure, and always the same for
the same job.

Results are the handoff's context, and documents are its artifacts. A brief holds the plan, the
known gaps and, last, the request word for word. Text of other authors comes before the request as
JSON, one item a line, so that it cannot look like a heading. There are no tags, because a brief is
inside the handoff's `<task>`, where closing tags are escaped.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from handoff_queue.shared.types.handoff import Given
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.review import DEFAULT_RUBRIC, Rubric
from handoff_queue.supervisor.lifecycle.teams import SPEC
from handoff_queue.supervisor.roles.answer_text import clip

MAX_REQUEST_CHARS = 60_000
"""Characters of a request that a role is shown."""
MAX_BRIEF_CHARS = 100_000
"""Characters of a handoff's task."""
MAX_TASK_CHARS = 1_200
"""Characters of each step's task that the assessor is shown."""
MAX_NOTE_CHARS = 10_000
"""Characters of a person's note on a plan."""
MAX_NEED_CHARS = 4_000
"""Characters of a step's question."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A specialist that live workers serve, as the planner sees it."""

    name: str
    description: str
    tools: tuple[str, ...] = ()
    queued: int = 0
    """Handoffs that wait on its queue."""


SUB_TEAM = Candidate(SPEC.name, SPEC.description)
"""The sub-supervisor as the planner sees it."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """Inputs of a job before it begins."""

    given: tuple[Given, ...] = ()
    asked_before: str | None = None
    """The request that it follows on."""

    def lists(self) -> dict[str, Sequence[JsonValue]]:
        results: list[JsonValue] = [
            {"id": given.step, "specialist": given.specialist, "about": given.title}
            for given in self.given
        ]
        return {
            "request_before": [clip(self.asked_before, MAX_NOTE_CHARS)]
            if self.asked_before
            else [],
            "known_results": results,
        }


@dataclass(frozen=True, slots=True)
class RejectedPlanBrief:
    """A plan that the user has rejected."""

    plan: Plan
    note: str = ""
    """The person's note."""
    own: Plan | None = None
    """The plan that the user would make."""

    def item(self) -> JsonValue:
        if self.own:
            own = {"users_own_plan": _whole(self.own)}
        else:
            own = {}
        return {"note": clip(self.note, MAX_NOTE_CHARS), **own, "steps": _steps(self.plan)}


def plan_brief(
    request: str,
    candidates: Sequence[Candidate],
    max_steps: int,
    rejected: Sequence[RejectedPlanBrief] = (),
    known: JobContext = JobContext(),
) -> str:
    """Return the planner's brief.

    Args:
        rejected: plans that the user rejected, the latest last.
    """
    job = f"Make the plan for the request below, with at most {max_steps} steps."
    if known.given:
        job += " The known results exist already, and are in your context: a step that needs a result names its id in `depends_on`."
    if rejected:
        job += " The user has rejected the plans below: follow the notes about them, and change nothing else without need."
    if any(plan.own for plan in rejected):
        job += (
            " If an item has the user's own plan, begin with that plan, and change only the points of "
            "the note and steps that cannot work."
        )
    plans = [plan.item() for plan in rejected]
    return _brief(
        job, request, specialists=_offered(candidates), **known.lists(), rejected_plans=plans
    )


def route_brief(
    request: str, candidates: Sequence[Candidate], known: JobContext = JobContext()
) -> str:
    """Return the router's brief."""
    job = "Decide who does the request below: one specialist alone, or a team with a plan."
    if known.given:
        job += " The known results exist already, and the chosen specialist or team gets them."
    return _brief(job, request, specialists=_offered(candidates), **known.lists())


def needs_brief(
    request: str,
    plan: Plan,
    needs: Mapping[str, str],
    candidates: Sequence[Candidate] = (),
    room: int = 0,
) -> str:
    """Return the planner's second brief: the steps' questions. Their results so far are the
    handoff's context.

    Args:
        room: number of steps that may be added, for `candidates`.
    """
    asked: list[JsonValue] = [
        {"step": step, "needs": clip(need, MAX_NEED_CHARS)} for step, need in sorted(needs.items())
    ]
    how = "answer it, or give it up"
    if candidates:
        how = f"answer it, add a step (at most {room}), or give it up"
    job = f"Steps of your plan cannot go on without something. Resolve each need: {how}."
    return _brief(job, request, specialists=_offered(candidates), plan=_steps(plan), needs=asked)


def replan_brief(
    request: str,
    plan: Plan,
    standing: Mapping[StepId, str],
    news: Sequence[StepId],
    candidates: Sequence[Candidate],
    most: int,
    left: int,
    known: JobContext = JobContext(),
) -> str:
    """Return the replanner's brief.

    Args:
        standing: state of each step, in a word.
        news: steps with new results.
        most: number of steps that it may add.
        left: number of changes of the plan that are left, including this one.
    """
    if left == 1:
        again = "this is the last time that it can be changed"
    else:
        again = f"it can be changed {left} more times"
    job = f"There are new results of {', '.join(news)}. Decide what the plan needs now: at most {most} new steps, and {again}."
    return _brief(
        job, request, specialists=_offered(candidates), **known.lists(), plan=_steps(plan, standing)
    )


def assessment_brief(
    request: str,
    plan: Plan,
    round_number: int,
    left: int,
    conflicts: Sequence[JsonValue] = (),
    rubric: Rubric = DEFAULT_RUBRIC,
    about: Collection[StepId] = (),
) -> str:
    """Return the assessor's brief.

    Args:
        round_number: counts from 1.
        left: how often work may still be sent back.
        conflicts: the judge's settlements of contradicting claims.
        about: steps that have results; the other steps wait for the verdict. Empty: all steps.
    """
    again = "nothing can be sent back any more"
    if left:
        again = f"work may be sent back {left} more {'time' if left == 1 else 'times'}"
    job = f"Judge the results of round {round_number} against the request below ({again})."
    criteria: list[JsonValue] = [
        {"criterion": criterion.name, "means": criterion.means} for criterion in rubric.criteria
    ]
    standing: dict[StepId, str | str] = {}
    for step in plan.steps:
        if step.id in about:
            standing[step.id] = "done"
        else:
            standing[step.id] = "waits for a PASS of this review"
    are_all_done = not about or len(about) == len(plan.steps)
    steps = _steps(plan, None if are_all_done else standing)
    return _brief(job, request, rubric=criteria, plan=steps, conflicts=conflicts)


def synthesis_brief(
    request: str,
    plan: Plan,
    gaps: Sequence[str],
    open_points: Sequence[str],
    vetoes: Sequence[str] = (),
    conflicts: Sequence[JsonValue] = (),
) -> str:
    """Return the synthesizer's brief.

    Args:
        gaps: failed or missing parts. Code prints them below the answer in any case.
        vetoes: reasons why the previous answer was rejected.
        conflicts: as in `assessment_brief`.
    """
    job, last = (
        "Write one answer to the request below from the results of these steps.",
        list(vetoes),
    )
    known: dict[str, Sequence[JsonValue]] = {
        "plan": _steps(plan),
        "gaps": list(gaps),
        "open_points": list(open_points),
        "conflicts": conflicts,
    }
    return _brief(job, request, **known, turned_down_before_because=last)


def _offered(candidates: Sequence[Candidate]) -> list[JsonValue]:
    return [
        {
            "name": candidate.name,
            "description": candidate.description,
            "tools": list(candidate.tools),
            "waiting": candidate.queued,
        }
        for candidate in sorted(candidates, key=lambda candidate: candidate.name)
    ]


def _steps(plan: Plan, standing: Mapping[StepId, str] | None = None) -> list[JsonValue]:
    steps: list[JsonValue] = []
    for step in plan.steps:
        steps.append(
            {
                "step": step.id,
                "specialist": step.specialist,
                "task": clip(step.task, MAX_TASK_CHARS),
                "depends_on": list(step.depends_on),
                **({"status": standing[step.id]} if standing else {}),
            }
        )
    return steps


def _whole(plan: Plan) -> JsonValue:
    """Return the whole plan in its JSON form; very long tasks are cut."""
    fields: dict[str, JsonValue] = plan.model_dump(
        mode="json", exclude_defaults=True, exclude={"steps": True}
    )
    steps = [
        step.model_copy(update={"task": clip(step.task, MAX_NOTE_CHARS)}) for step in plan.steps
    ]
    return {
        **fields,
        "steps": [step.model_dump(mode="json", exclude_defaults=True) for step in steps],
    }


def _brief(job: str, request: str, **lists: Sequence[JsonValue]) -> str:
    """Return the job, each list that is not empty, and the request. Lists are cut at their end so
    that the request fits.
    """
    shown = clip(request, MAX_REQUEST_CHARS)
    above = [job]
    for name, items in lists.items():
        if items:
            lines = (json.dumps(item, ensure_ascii=False) for item in items)
            above.append("\n".join([f"{name.replace('_', ' ').capitalize()}:", *lines]))
    return f"{clip(chr(10).join(above), MAX_BRIEF_CHARS - len(shown) - 20)}\n\nRequest:\n{shown}"
