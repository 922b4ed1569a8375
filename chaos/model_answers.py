"""Answers of the model in a run. Each role gets an answer in its form, and the same request
always gets the same answer. Pure.
"""

from __future__ import annotations

import json
import re
from typing import Any

from handoff_queue.chaos.expected_handoffs import CHECKED, INSTEAD, find_step
from handoff_queue.chaos.job_shapes import QUARRELS, Shape
from handoff_queue.chaos.notes import (
    INSERTS_FROM,
    PlannedNote,
    build_note,
    inserts_line,
)
from handoff_queue.chaos.planned_jobs import (
    FINDS_AT,
    KEEPER,
    SKIMMER,
    SWITCHING,
    CallKey,
    PlannedJob,
    PlannedOutcome,
    PlannedStep,
)
from handoff_queue.chaos.shortened_requests import build_reply_of_skimmer
from handoff_queue.shared.types.ids import parse_attempt
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

FIXED = "Attempt {} has fixed it."
"""Text of a revised result, with the number of its attempt, so that each attempt has another
text.
"""
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
WRITTEN_BY = "Written by {}."
"""Text of each reply of a handoff with several models, with the name of its model."""
_WRITER = re.compile(r"Written by (\S+)\.")
_CONFLICT = re.compile(r'^(\{"conflict".*\})(?:</task>)?$', re.M)
HEIGHTS = {"a": "330", "b": "312"}
"""Height in metres that each of two steps states for the same tower."""
NOT_BEGUN = "not begun"
"""Status of a step, as the replanner reads it."""


def build_reply(job: PlannedJob, key: CallKey, request: Json) -> Reply:
    """Return the reply to a call of this job when nothing goes wrong."""
    role = key.handoff.partition(".")[0]
    match role:
        case "router":
            answer = _build_route(job)
        case "planner":
            return _build_planner_reply(job, key, request)
        case "replanner":
            return _build_replanner_reply(job, request)
        case "judge":
            answer = _build_judgement(job, request)
        case "assessor":
            answer = _build_verdict(job, key, request)
        case "synthesizer":
            answer = ENVELOPE
        case _ if role == FACT_GATE:
            answer = _build_fact_check(job, key)
        case _:
            return _build_feature_reply(job, key, request) or _build_specialist_reply(job, key)
    return json_reply(answer)


def _build_route(job: PlannedJob) -> Json:
    route = "team"
    if job.shape is Shape.ALONE:
        route = "single"
    return {"route": route, "specialist": job.steps[0].specialist, "why": "-"}


def _build_planner_reply(job: PlannedJob, key: CallKey, request: Json) -> Reply:
    """Return the planner's answers to questions of steps, or its plan."""
    text = first_message_text(request)
    if "resolutions" in answer_properties(request):
        steps = re.findall(r'^\{"step": "(\w+)", "needs"', text, re.M)
        return json_reply({"resolutions": [_build_resolution(job, step) for step in steps]})
    if job.shape is Shape.REPAIRED and key.turn == 1:
        return text_reply("I had rather not.")
    return json_reply(_build_plan(job, known=re.findall(r'^\{"id": "(prev\w*)"', text, re.M)))


def _build_resolution(job: PlannedJob, needy: str) -> Json:
    """Return the planner's reaction to a step's question: a helper step, or an answer."""
    for helper in job.steps:
        if helper.helps == needy:
            return {
                "step": needy,
                "action": "add_step",
                "answer": "",
                "specialist": helper.specialist,
                "task": build_task(job, helper),
            }
    return {"step": needy, "action": "answer", "answer": "Take the first one."}


def _build_plan(job: PlannedJob, known: list[str]) -> Json:
    """Return the plan.

    Args:
        known: results of an earlier job. Steps without dependencies depend on them.
    """
    planned = job.first_steps
    if job.shape is Shape.ALONE:  # the router failed, so a team got the job
        planned = [PlannedStep("a", job.steps[0].specialist)]
    return {
        "steps": [_build_step(job, step, known) for step in planned],
        "synthesis": "reconcile" if job.shape is Shape.WRITTEN else "merge",
        "why": "",
    }


def _build_step(job: PlannedJob, step: PlannedStep, known: list[str]) -> Json:
    join = None
    if step.enough:
        join = {"enough": step.enough, "within_s": 0, "must": []}
    return {
        "id": step.id,
        "specialist": step.specialist,
        "task": build_task(job, step),
        "depends_on": list(step.after or known),
        "fallback": "-",
        "on_failure": "retry",
        "join": join,
    }


def build_task(job: PlannedJob, step: PlannedStep) -> str:
    """Return the task of a step."""
    if step.team:
        return step.team.request
    return f"Do {step.id} of {job.name}."


def _build_replanner_reply(job: PlannedJob, request: Json) -> Reply:
    """Return the replanner's reply, which depends on the plan in its request."""
    lines = re.compile(r'^\{"step": "(\w+)".*"status": "([\w ]+)"\}$', re.M)
    statuses = dict(lines.findall(first_message_text(request)))
    calls: list[tuple[str, Json]] = []
    for step in job.steps:
        if step.is_added and step.id not in statuses and {*step.after} <= statuses.keys():
            arguments = {
                "id": step.id,
                "task": build_task(job, step),
                "depends_on": list(step.after),
                "why": "It is missing.",
            }
            calls.append(("hand_off", {"specialist": step.specialist, **arguments}))
        if step.is_dropped and statuses.get(step.id) == NOT_BEGUN:
            calls.append(("drop_step", {"step": step.id, "why": "It says nothing new."}))
            for dependency in step.after:
                if statuses.get(dependency) == NOT_BEGUN:
                    calls.append(("change_step", _build_step_change(job, dependency)))
    if calls:
        return tool_call_reply(*calls)
    return json_reply(GO_ON)


def _build_step_change(job: PlannedJob, step_id: str) -> Json:
    task = f"Do {step_id} of {job.name}. And nothing else."
    return {"step": step_id, "task": task, "why": "It is the last."}


def _build_judgement(job: PlannedJob, request: Json) -> Json:
    """Return the judge's settlements of conflicts, or its rulings on points of the assessor."""
    if job.shape not in QUARRELS:
        conflicts = map(json.loads, _CONFLICT.findall(first_message_text(request)))
        return {"settlements": list(map(_settle_conflict, conflicts))}
    items = answer_properties(request)["rulings"]["items"]
    right = "assessor"
    if job.shape is Shape.OVERRULED:
        right = "writer"
    rulings: list[Json] = []
    for point in items["properties"]["point"]["enum"]:
        rulings.append({"point": point, "right": right, "why": "It stands there."})
    return {"rulings": rulings}


def _settle_conflict(conflict: Json) -> Json:
    """Settle a conflict for its first claim."""
    return {
        "conflict": conflict["conflict"],
        "stands": [conflict["claims"][0]["id"]],
        "why": "It was measured.",
    }


def _build_verdict(job: PlannedJob, key: CallKey, request: Json) -> Json:
    """Return the assessor's verdict: it sends back the job's first step once, or twice in a
    quarrel. It passes a plan that has no such step, because code made that plan.
    """
    revisions: Any = answer_properties(request).get("revisions", {})
    step: Any = revisions.get("items", {}).get("properties", {}).get("step", {})
    if job.steps[0].id not in step.get("enum", [job.steps[0].id]):
        return PASS
    revising_reviews: dict[Shape, tuple[str, ...]] = {
        Shape.REVISED: ("assessor.1",),
        **dict.fromkeys(QUARRELS, ("assessor.1", "assessor.2")),
    }
    if key.handoff not in revising_reviews.get(job.shape, ()):
        return PASS
    problem = "Fix it."
    if job.shape in QUARRELS:
        problem = f"Say it of {job.name}."
    return {
        "verdict": "REVISE",
        "revisions": [{"step": job.steps[0].id, "problem": problem}],
        "open_points": [],
    }


def _build_fact_check(job: PlannedJob, key: CallKey) -> Json:
    output = RIGHT
    if job.shape is Shape.VETOED and key.handoff == CHECKED:
        output = WRONG
    return {**ENVELOPE, "output": output}


def find_writers(text: str) -> tuple[str, ...]:
    """Return the names of the models that wrote the replies in a text, in order."""
    return tuple(_WRITER.findall(text))


def _build_feature_reply(job: PlannedJob, key: CallKey, request: Json) -> Reply | None:
    """Return the reply of a specialist that does the steps of features; None for others."""
    step = find_step(job, key.handoff)
    if step is not None and step.specialist == SWITCHING:
        return _build_reply_of_model(step, key, request["model"])
    if step is not None and step.specialist == SKIMMER:
        return build_reply_of_skimmer(job, key, step.turns, request)
    if job.shape is Shape.RECALLED:
        return _build_reply_of_finder(job, key, request)
    if step is not None and step.specialist == KEEPER:
        return _build_reply_of_keeper(job, key)
    return None


def _build_reply_of_model(step: PlannedStep, key: CallKey, model: str) -> Reply:
    """Return a reply that names its model."""
    text = WRITTEN_BY.format(model)
    if key.turn < step.turns:
        return tool_call_reply(("now", {}), text=text)
    return json_reply({**ENVELOPE, "output": text})


def _build_search(note: PlannedNote) -> Reply:
    return tool_call_reply(("memory", {"command": "search", "query": note.fact}))


def _build_reply_of_finder(job: PlannedJob, key: CallKey, request: Json) -> Reply:
    """Return a search for the note, then an answer that cites the note. If the search has not
    found the note, the specialist looks at all notes before it answers.
    """
    note = build_note(job)
    if key.turn == 1:
        return _build_search(note)
    messages_json = json.dumps(request["messages"])
    for line in note.lines:
        is_quote = re.search(rf'quote\\":\s*\\"{re.escape(line)}', messages_json)
        if note.source in messages_json and is_quote:
            sources = [{"source": note.source, "quote": line}]
            claim: Json = {"id": "c1", "text": line, "sources": sources}
            return json_reply({**ENVELOPE, "output": f"{line} [c1]", "claims": [claim]})
    if key.turn == FINDS_AT:
        return tool_call_reply(("memory", {"command": "view"}))
    return json_reply(ENVELOPE)


def _build_reply_of_keeper(job: PlannedJob, key: CallKey) -> Reply:
    """Return the calls that write the note, and a call without evidence."""
    note = build_note(job)
    evidence = {"path": note.path, "source": note.guide}
    match key.turn:
        case 1:
            return _build_search(note)
        case 2:
            create = {"command": "create", **evidence, "file_text": note.fact, "quote": note.fact}
            wrong = {**create, "path": f"{note.path}-wrong", "quote": f"Not in {note.guide}."}
            return tool_call_reply(("memory", create), ("memory", wrong))
        case _ if inserts_line(job, key):
            place = key.turn - INSERTS_FROM
            line = note.inserted[place]
            insert = {"command": "insert", "insert_line": place + 1, "insert_text": line}
            return tool_call_reply(("memory", {**insert, **evidence, "quote": line}))
        case _:
            return json_reply(ENVELOPE)


def _build_specialist_reply(job: PlannedJob, key: CallKey) -> Reply:
    """Return the result of a planned step as its attempt has it, or a plain result."""
    step, attempt = find_step(job, key.handoff), parse_attempt(key.handoff)
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
        outcome = step.attempts[attempt - 1]
    else:
        outcome = PlannedOutcome.OK
    match outcome:
        case PlannedOutcome.FAILED:
            return json_reply(
                {**ENVELOPE, "status": "failed", "output": None, "problem": "It would not open."}
            )
        case PlannedOutcome.NEEDS_INPUT:
            return json_reply(
                {
                    **ENVELOPE,
                    "status": "needs_input",
                    "output": None,
                    "needs": "Which of the two is meant?",
                }
            )
        case PlannedOutcome.OK:
            output = DONE
            if attempt > 1:
                output = FIXED.format(attempt)
            claims: list[Json] = []
            if job.shape is Shape.DISPUTED:
                claims.append(_build_claim(job, step))
            return json_reply({**ENVELOPE, "output": output, "claims": claims})


def _build_claim(job: PlannedJob, step: PlannedStep) -> Json:
    """Return a claim that contradicts the claim of the job's other step."""
    height = HEIGHTS[step.id]
    parts = {
        "subject": f"tower {job.name}",
        "attribute": "height",
        "value": height,
        "unit": "m",
        "date": None,
    }
    return {"id": "c1", "text": f"It is {height} m high.", **parts, "sources": []}
