"""Answers of the model in a run: each role gets its form, and the same question gets the same
answer. Pure.
"""

from __future__ import annotations

import json
import re
from typing import Any

from handoff_queue.chaos.expected_handoffs import CHECKED, INSTEAD, step_of
from handoff_queue.chaos.plan import CallKey, PlannedJob, PlannedStep, Says
from handoff_queue.chaos.shapes import QUARRELS, Shape
from handoff_queue.shared.types.names import FACT_GATE
from handoff_queue.testing import (
    Json,
    Reply,
    answer_properties,
    first_message_text,
    json_reply,
    text_reply,
    tool_call_reply,
)

MENDED = "Attempt {} has mended it."
"""Text of an improved result. It differs each time, so that a reviewer sees a different result."""
DONE = "So it is."
ENVELOPE: Json = {
    "status": "ok",
    "output": DONE,
    "claims": [],
    "confidence": 0.9,
    "needs": None,
    "problem": None,
}
PASS: Json = {"verdict": "PASS", "revisions": [], "open_points": []}
GO_ON: Json = {"decision": "go_on", "why": "-"}
RIGHT: Json = {"verdict": "PASS", "wrong": [], "why": "Held against nothing."}
WRONG: Json = {**RIGHT, "verdict": "VETO", "wrong": [{"statement": DONE, "why": "It is not."}]}
_CONFLICT = re.compile(r'^(\{"conflict".*\})(?:</task>)?$', re.M)
HEIGHTS = {"a": "330", "b": "312"}
"""Metres, as two steps have it of the same tower."""


def reply_to(job: PlannedJob, key: CallKey, request: Json) -> Reply:
    """Return the reply to a call of this job when nothing goes wrong."""
    role = key.handoff.partition(".")[0]
    match role:
        case "router":
            return json_reply(
                {
                    "route": "single" if job.shape is Shape.ALONE else "team",
                    "specialist": job.steps[0].specialist,
                    "why": "-",
                }
            )
        case "planner":
            return _of_the_planner(job, key, request)
        case "replanner":
            return _look(job, request)
        case "judge" | "assessor":
            return json_reply(
                _of_the_judge(job, request) if role == "judge" else _verdict(job, key, request)
            )
        case "synthesizer":
            return json_reply(ENVELOPE)
        case _:
            return json_reply(_check(job, key)) if role == FACT_GATE else _of_a_specialist(job, key)


def _of_the_planner(job: PlannedJob, key: CallKey, request: Json) -> Reply:
    if "resolutions" in answer_properties(request):
        steps = re.findall(r'^\{"step": "(\w+)", "needs"', first_message_text(request), re.M)
        return json_reply({"resolutions": [_resolution(job, step) for step in steps]})
    if job.shape is Shape.REPAIRED and key.turn == 1:
        return text_reply("I had rather not.")
    return json_reply(
        _plan(job, known=re.findall(r'^\{"id": "(prev\w*)"', first_message_text(request), re.M))
    )


def _resolution(job: PlannedJob, needy: str) -> Json:
    """Return the resolution: an answer, or no answer if another step must find it."""
    for helper in job.steps:
        if helper.helps == needy:
            return {
                "step": needy,
                "action": "add_step",
                "answer": "",
                "specialist": helper.specialist,
                "task": task_of(job, helper),
            }
    return {"step": needy, "action": "answer", "answer": "Take the first one."}


def _plan(job: PlannedJob, known: list[str]) -> Json:
    """Return the plan.

    Args:
        known: results that exist from the beginning, which its first steps get.
    """
    planned = [step for step in job.steps if step.is_there_from_the_beginning]
    if job.shape is Shape.ALONE:  # the job has no router
        planned = [PlannedStep("a", job.steps[0].specialist)]
    steps: list[Any] = [
        {
            "id": step.id,
            "specialist": step.specialist,
            "task": task_of(job, step),
            "depends_on": [*step.after, *([] if step.after else known)],
            "fallback": "-",
            "on_failure": "retry",
            "join": {"enough": step.enough, "within_s": 0, "must": []} if step.enough else None,
        }
        for step in planned
    ]
    return {
        "steps": steps,
        "synthesis": "reconcile" if job.shape is Shape.WRITTEN else "merge",
        "why": "",
    }


def task_of(job: PlannedJob, step: PlannedStep) -> str:
    if step.team:
        return step.team.request
    return f"Do {step.id} of {job.name}."


def _look(job: PlannedJob, request: Json) -> Reply:
    """Return the replanner's reply, which depends on the plan in its request."""
    standing = dict(
        re.findall(
            r'^\{"step": "(\w+)".*"status": "([\w ]+)"\}$', first_message_text(request), re.M
        )
    )
    asked: list[tuple[str, Json]] = []
    for step in job.steps:
        if step.is_added and step.id not in standing and {*step.after} <= standing.keys():
            arguments = {
                "id": step.id,
                "task": task_of(job, step),
                "depends_on": list(step.after),
                "why": "It is missing.",
            }
            asked.append((f"hand_off_to_{step.specialist}", arguments))
        if step.is_dropped and standing.get(step.id) == "not begun":
            asked.append(("drop_step", {"step": step.id, "why": "It says nothing new."}))
            for dependency in step.after:
                if standing.get(dependency) == "not begun":
                    asked.append(
                        (
                            "change_step",
                            {
                                "step": dependency,
                                "task": f"Do {dependency} of {job.name}. And nothing else.",
                                "why": "It is the last.",
                            },
                        )
                    )
    if asked:
        return tool_call_reply(*asked)
    return json_reply(GO_ON)


def _of_the_judge(job: PlannedJob, request: Json) -> Json:
    if job.shape not in QUARRELS:
        return {
            "settlements": [
                _settled(json.loads(line))
                for line in _CONFLICT.findall(first_message_text(request))
            ]
        }
    points: list[str] = answer_properties(request)["rulings"]["items"]["properties"]["point"][
        "enum"
    ]
    right = "reviewer"
    if job.shape is Shape.OVERRULED:
        right = "writer"
    return {
        "rulings": [{"point": point, "right": right, "why": "It stands there."} for point in points]
    }


def _settled(conflict: Json) -> Json:
    """Settle a conflict for its first claim."""
    return {
        "conflict": conflict["conflict"],
        "stands": [conflict["claims"][0]["id"]],
        "why": "It was measured.",
    }


def _verdict(job: PlannedJob, key: CallKey, request: Json) -> Json:
    """Return the verdict. It sends back no step of a plan that code made."""
    step: Any = (
        answer_properties(request)
        .get("revisions", {})
        .get("items", {})
        .get("properties", {})
        .get("step", {})
    )
    is_there = job.steps[0].id in step.get("enum", [job.steps[0].id])
    insists = job.shape in QUARRELS and key.handoff == "assessor.2"
    if not is_there or not (
        insists or (key.handoff == "assessor.1" and job.shape in (Shape.REVISED, *QUARRELS))
    ):
        return PASS
    problem = "Mend it."
    if job.shape in QUARRELS:
        problem = f"Say it of {job.name}."
    return {
        "verdict": "REVISE",
        "revisions": [{"step": job.steps[0].id, "problem": problem}],
        "open_points": [],
    }


def _check(job: PlannedJob, key: CallKey) -> Json:
    return {
        **ENVELOPE,
        "output": WRONG if job.shape is Shape.VETOED and key.handoff == CHECKED else RIGHT,
    }


def _of_a_specialist(job: PlannedJob, key: CallKey) -> Reply:
    step, attempt = step_of(job, key.handoff), int(key.handoff.rpartition(".")[2])
    is_planned = (
        step is not None
        and not step.team
        and (key.handoff != INSTEAD or job.steps[0].id == "answer")
    )
    if step is None or not is_planned:
        return json_reply(ENVELOPE)
    if key.turn < step.turns and attempt == 1:
        return tool_call_reply(("now", {}))
    if attempt <= len(step.attempts):
        says_what = step.attempts[attempt - 1]
    else:
        says_what = Says.OK
    match says_what:
        case Says.FAILED:
            return json_reply(
                {**ENVELOPE, "status": "failed", "output": None, "problem": "It would not open."}
            )
        case Says.NEEDS_INPUT:
            return json_reply(
                {
                    **ENVELOPE,
                    "status": "needs_input",
                    "output": None,
                    "needs": "Which of the two is meant?",
                }
            )
        case Says.OK:
            if job.shape is Shape.DISPUTED:
                claims = [_claim(job, step)]
            else:
                claims = []
            return json_reply(
                {
                    **ENVELOPE,
                    "output": MENDED.format(attempt) if attempt > 1 else DONE,
                    "claims": claims,
                }
            )


def _claim(job: PlannedJob, step: PlannedStep) -> Json:
    height = HEIGHTS[step.id]
    parts = {
        "subject": f"tower {job.name}",
        "attribute": "height",
        "value": height,
        "unit": "m",
        "date": None,
    }
    return {"id": "c1", "text": f"It is {height} m high.", **parts, "sources": []}
