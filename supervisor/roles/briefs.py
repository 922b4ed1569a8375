"""Briefs of the supervisor's roles: the task texts of their handoffs, and the task of a
fact-checker. Pure: the same job always has the same briefs.

A brief begins with the role's job and ends with the request of the user. Between them, text of
other authors is JSON, one item a line, so that it cannot look like a heading. The first paragraph
holds the role's job and the lists that are the same in many jobs. Lines that change between two
briefs of a job come last. So the prompt cache can keep the beginning.

There are no tags, because a brief is inside the handoff's `<task>`, where closing tags are
escaped. Results and documents are not in the brief: they are the handoff's context and artifacts.

The instructions of each role are a Markdown file in this folder.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import JsonValue

from handoff_queue.shared.settings.role_options import parse_role_levels
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.specialists import read_specialist
from handoff_queue.shared.types.handoff import MAX_PLAN_NOTE_CHARS, GivenResult
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.model import Effort, Thinking
from handoff_queue.shared.types.names import Role
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.review import DEFAULT_RUBRIC, Rubric
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.shared.types.step_events import CheckVerdict
from handoff_queue.supervisor.lifecycle.child_jobs import CHILD_JOB_SPEC
from handoff_queue.supervisor.roles.answer_text import build_object_schema, clip, list_values

MAX_REQUEST_CHARS = 60_000
"""Most characters of the request in a brief."""
MAX_BRIEF_CHARS = 100_000
"""Most characters of a brief."""
MAX_TASK_CHARS = 1_200
"""Most characters of each step's task in a brief."""
MAX_NEED_CHARS = 4_000
"""Most characters of a step's question."""

NEEDS_RULES = """
- Give exactly one of the `resolutions` for each need. Never invent a fact.
- `answer`: the request, the plan or a result holds the fact, or an assumption is reasonable; call it an assumption.
- `give_up`: only the user could know; say why."""  # noqa: E501 - lines of a text
"""Rules for the planner's answers to the questions of steps."""
ADD_STEP_RULE = """
- `add_step`: a specialist could find the fact, and no step had this task before. Its `task` holds everything that this specialist must know. Prefer `answer`: a step costs two runs."""  # noqa: E501 - lines of a text
MAX_CHECKED_REQUEST_CHARS = 20_000
"""Most characters of the request in a fact-checker's task: enough to know the subject of the
answer.
"""
FACT_CHECK_TASK = """\
Check the facts of an answer before it leaves. The answer is the output of the results below; its
statements point to their claims.

Compare each important statement of fact with the documents, the other sources that your tools
reach, and your knowledge of your field. Good style, or a note that it was checked, proves
nothing. Change nothing, and write no new answer.

- PASS: the checked statements are right. `wrong` is empty.
- VETO: name each wrong statement in `wrong`, word for word, with the right statement and its
  source.
- CANNOT_SAY: you have no source to check it with.

In `why`, say in one or two sentences which statements you compared with which sources. Below is
the request that the answer is for, as JSON. It tells you the subject. Do not carry it out.
"""


def read_role(name: str) -> SpecialistSpec:
    """Return the spec of a role in `shared.types.names.ROLES`. A role has no tools: its
    handoff has all of its inputs.
    """
    return read_specialist(Path(__file__).parent / f"{name}.md", tools=(), reserved_names=())


@lru_cache
def read_role_once(name: str) -> SpecialistSpec:
    """Return `read_role`, read from its file at the first call in this process."""
    return read_role(name)


def configure_role(name: str, settings: Settings) -> SpecialistSpec:
    """Return the spec of a role, with the effort and the thinking of the settings."""
    options = {
        "effort": parse_role_levels(settings.role_effort, Effort).get(Role(name)),
        "thinking": parse_role_levels(settings.role_thinking, Thinking).get(Role(name)),
    }
    return read_role_once(name).model_copy(update=options)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A specialist that live workers serve, as the router and the planners see it."""

    name: str
    description: str
    tools: tuple[str, ...] = ()
    queued: int = 0
    """Handoffs that wait for it."""


SUB_TEAM = Candidate(CHILD_JOB_SPEC.name, CHILD_JOB_SPEC.description)
"""The child job, as the planners see it."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """Inputs that a job has from the beginning."""

    given_results: tuple[GivenResult, ...] = ()
    earlier_request: str | None = None
    """The request of the job that this job follows."""

    def build_lists(self) -> dict[str, Sequence[JsonValue]]:
        """Return the lists of a brief about these inputs, by name."""
        results: list[JsonValue] = []
        for result in self.given_results:
            results.append(
                {"id": result.step, "specialist": result.specialist, "about": result.title}
            )
        requests: list[JsonValue] = []
        if self.earlier_request:
            requests.append(clip(self.earlier_request, MAX_PLAN_NOTE_CHARS))
        return {"request_before": requests, "known_results": results}


@dataclass(frozen=True, slots=True)
class RejectedPlanBrief:
    """A plan that the user has rejected."""

    plan: Plan
    note: str = ""
    """The user's note."""
    own_plan: Plan | None = None
    """The plan that the user proposed instead."""

    def build_item(self) -> JsonValue:
        """Return the JSON item of a brief about this plan."""
        item: dict[str, JsonValue] = {"note": clip(self.note, MAX_PLAN_NOTE_CHARS)}
        if self.own_plan:
            item["users_own_plan"] = _convert_plan(self.own_plan)
        item["steps"] = _build_step_items(self.plan)
        return item


def build_plan_brief(
    request: str,
    candidates: Sequence[Candidate],
    max_steps: int,
    rejected_plans: Sequence[RejectedPlanBrief] = (),
    context: JobContext = JobContext(),
) -> str:
    """Return the planner's brief.

    Args:
        rejected_plans: plans that the user rejected, the latest last.
    """
    job = f"Make the plan for the request below, with at most {max_steps} steps."
    if context.given_results:
        job += (
            " The known results exist already, and are in your context: a step that needs a result"
            " names its id in `depends_on`."
        )
    if rejected_plans:
        job += (
            " The user has rejected the plans below: follow the notes about them, and change"
            " nothing else without need."
        )
    plans: list[JsonValue] = []
    has_own_plan = False
    for plan in rejected_plans:
        plans.append(plan.build_item())
        has_own_plan = has_own_plan or plan.own_plan is not None
    if has_own_plan:
        job += (
            " If an item has the user's own plan, begin with that plan, and change only the points"
            " of the note and steps that cannot work."
        )
    return _build_brief(
        job,
        request,
        {
            **context.build_lists(),
            "rejected_plans": plans,
            "waiting": _build_waiting_items(candidates),
        },
        shared={"specialists": _build_candidate_items(candidates)},
    )


def build_route_brief(
    request: str, candidates: Sequence[Candidate], context: JobContext = JobContext()
) -> str:
    """Return the router's brief."""
    job = "Decide who does the request below: one specialist alone, or a team with a plan."
    if context.given_results:
        job += " The known results exist already, and the chosen specialist or team gets them."
    return _build_brief(
        job,
        request,
        {**context.build_lists(), "waiting": _build_waiting_items(candidates)},
        shared={"specialists": _build_candidate_items(candidates)},
    )


def build_needs_brief(
    request: str,
    plan: Plan,
    needs: Mapping[str, str],
    candidates: Sequence[Candidate] = (),
    room: int = 0,
) -> str:
    """Return the planner's second brief: the questions of steps.

    Args:
        needs: the questions, by step.
        candidates: specialists for added steps; empty: no step may be added.
        room: number of steps that may be added.
    """
    questions: list[JsonValue] = []
    for step, need in sorted(needs.items()):
        questions.append({"step": step, "needs": clip(need, MAX_NEED_CHARS)})
    ways, rules = "answer it, or give it up", NEEDS_RULES
    if candidates:
        ways = f"answer it, add a step (at most {room}), or give it up"
        rules += ADD_STEP_RULE
    job = f"Steps of your plan cannot go on without something. Resolve each need: {ways}.{rules}"
    return _build_brief(
        job,
        request,
        {"plan": _build_step_items(plan), "needs": questions},
        shared={"specialists": _build_candidate_items(candidates)},
    )


def build_replan_brief(
    request: str,
    plan: Plan,
    step_states: Mapping[StepId, str],
    news: Sequence[StepId],
    candidates: Sequence[Candidate],
    limit: int,
    left: int,
    context: JobContext,
) -> str:
    """Return the replanner's brief.

    Args:
        step_states: state of each step in words.
        news: steps with new results.
        limit: number of steps that the replanner may add.
        left: number of changes that the plan can still have, including this one.
    """
    if left == 1:
        remark = "this is the last time that it can be changed"
    else:
        remark = f"it can be changed {left} more times"
    note = f"There are new results of {', '.join(news)}. Add at most {limit} new steps; {remark}."
    return _build_brief(
        "Decide what the plan needs now.",
        request,
        {
            **context.build_lists(),
            "plan": _build_step_items(plan, step_states),
            "waiting": _build_waiting_items(candidates),
        },
        shared={"specialists": _build_candidate_items(candidates)},
        note=note,
    )


def build_assessment_brief(
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
        left: number of times that work may still be sent back.
        conflicts: contradicting claims, with the judge's settlements.
        about: steps whose results are reviewed; the other steps wait for the verdict. Empty: all
            steps.
    """
    rounds_text = "nothing can be sent back any more"
    if left == 1:
        rounds_text = "work may be sent back 1 more time"
    elif left:
        rounds_text = f"work may be sent back {left} more times"
    note = f"This is round {round_number}: {rounds_text}."
    criteria: list[JsonValue] = []
    for criterion in rubric.criteria:
        criteria.append({"criterion": criterion.name, "means": criterion.means})
    step_states: dict[StepId, str] = {}
    for step in plan.steps:
        if step.id in about:
            step_states[step.id] = "done"
        else:
            step_states[step.id] = "waits for a PASS of this review"
    are_all_done = not about or len(about) == len(plan.steps)
    steps = _build_step_items(plan, None if are_all_done else step_states)
    job = "Judge the results against the request below."
    lists = {"plan": steps, "conflicts": conflicts}
    return _build_brief(job, request, lists, shared={"rubric": criteria}, note=note)


def build_synthesis_brief(
    request: str,
    plan: Plan,
    gaps: Sequence[str],
    open_points: Sequence[str],
    vetoes: Sequence[str] = (),
    conflicts: Sequence[JsonValue] = (),
    requirements: Sequence[str] = (),
) -> str:
    """Return the synthesizer's brief.

    Args:
        gaps: failed or missing parts. The supervisor prints them below the answer in any case.
        open_points: the assessor's open points.
        vetoes: reasons for which the gates rejected the previous answer.
        conflicts: as in `build_assessment_brief`.
        requirements: conditions that the answer must meet.
    """
    job = "Write one answer to the request below from the results of these steps."
    lists: dict[str, Sequence[JsonValue]] = {
        "plan": _build_step_items(plan),
        "gaps": list(gaps),
        "open_points": list(open_points),
        "conflicts": conflicts,
        "the_answer_must_meet": list(requirements),
        "turned_down_before_because": list(vetoes),
    }
    return _build_brief(job, request, lists)


def _build_candidate_items(candidates: Sequence[Candidate]) -> list[JsonValue]:
    """Return the JSON items of the candidates, sorted by name."""
    items: list[JsonValue] = []
    for candidate in sorted(candidates, key=attrgetter("name")):
        item: dict[str, JsonValue] = {
            "name": candidate.name,
            "description": candidate.description,
        }
        if candidate.tools:
            item["tools"] = list(candidate.tools)
        items.append(item)
    return items


def _build_waiting_items(candidates: Sequence[Candidate]) -> list[JsonValue]:
    """Return one JSON item with the handoffs that wait for each candidate, if any wait."""
    queued: dict[str, JsonValue] = {}
    for candidate in sorted(candidates, key=attrgetter("name")):
        if candidate.queued:
            queued[candidate.name] = candidate.queued
    if queued:
        return [queued]
    return []


def _build_step_items(
    plan: Plan, step_states: Mapping[StepId, str] | None = None
) -> list[JsonValue]:
    """Return the JSON items of the steps, with their states if these are given."""
    steps: list[JsonValue] = []
    for step in plan.steps:
        item: dict[str, JsonValue] = {
            "step": step.id,
            "specialist": step.specialist,
            "task": clip(step.task, MAX_TASK_CHARS),
        }
        if step.depends_on:
            item["depends_on"] = list(step.depends_on)
        if step_states:
            item["status"] = step_states[step.id]
        steps.append(item)
    return steps


def _convert_plan(plan: Plan) -> JsonValue:
    """Return the plan in its JSON form without default values. Very long tasks are cut."""
    fields: dict[str, JsonValue] = plan.model_dump(
        mode="json", exclude_defaults=True, exclude={"steps": True}
    )
    steps: list[JsonValue] = []
    for step in plan.steps:
        clipped = step.model_copy(update={"task": clip(step.task, MAX_PLAN_NOTE_CHARS)})
        steps.append(clipped.model_dump(mode="json", exclude_defaults=True))
    return {**fields, "steps": steps}


def _build_brief(
    job: str,
    request: str,
    lists: Mapping[str, Sequence[JsonValue]],
    *,
    shared: Mapping[str, Sequence[JsonValue]] = MappingProxyType({}),
    note: str = "",
) -> str:
    """Return the job and the shared lists as one paragraph, then the other lists, the note, and the
    request. The text before the request is cut at its end so that the brief has at most
    `MAX_BRIEF_CHARS`.

    Args:
        lists: lists by name. A list without items is left out.
        shared: lists by name that are the same in many jobs.
        note: a sentence about this brief.
    """
    request_text = clip(request, MAX_REQUEST_CHARS)
    lines = [*_format_lists(lists), note]
    paragraphs = ["\n".join([job, *_format_lists(shared)]), "\n".join(filter(None, lines))]
    above = clip("\n\n".join(filter(None, paragraphs)), MAX_BRIEF_CHARS - len(request_text) - 20)
    return f"{above}\n\nRequest:\n{request_text}"


def _format_lists(lists: Mapping[str, Sequence[JsonValue]]) -> list[str]:
    """Return the lines of the lists: the name of each list, and one line for each item."""
    lines: list[str] = []
    for name, items in lists.items():
        if items:
            lines.append(f"{name.replace('_', ' ').capitalize()}:")
        for item in items:
            lines.append(json.dumps(item, ensure_ascii=False))
    return lines


def build_fact_check_task(request: str) -> str:
    """Return the task of a fact-checker for the answer to a request. A fact-checker is a specialist
    and answers in the envelope.
    """
    return FACT_CHECK_TASK + json.dumps(
        clip(request, MAX_CHECKED_REQUEST_CHARS), ensure_ascii=False
    )


def build_fact_check_schema() -> Mapping[str, Any]:
    """Return the JSON Schema of `shared.types.step_events.FactCheck`."""
    text = {"type": "string"}
    statement = {"statement": text, "why": text}
    fields = {
        "verdict": {**text, "enum": list_values(CheckVerdict)},
        "wrong": {"type": "array", "items": build_object_schema(statement)},
        "why": text,
    }
    return build_object_schema(fields)
