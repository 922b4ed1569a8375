"""The roles that decide who does what: router, planner and replanner."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from handoff_queue.shared.providers.offline.conversation import Conversation, lines_of_json
from handoff_queue.shared.providers.offline.request_text import (
    MOST_CHARS,
    understand,
    why_not_answerable,
)
from handoff_queue.shared.providers.offline.words import content_stems, content_words, joined
from handoff_queue.shared.types.names import SUB_SUPERVISOR

_GENERALIST = "generalist"
_RESEARCHERS = ("researcher", _GENERALIST, "analyst")
_WRITERS = ("writer", "analyst", _GENERALIST)
_TEAM_PARTS = 3
"""Things or questions from which a team is worth its cost."""
_MOST_STEPS = 8
_LONGEST_ID = 44
_FALLBACK = "Write what there is to say, and name what is missing."
_NOT_ITS_FIELD = re.compile(r"\b(?:Not for|Never)\b.*", re.DOTALL)
"""The end of a description: the tasks that belong to other specialists."""
_SURE = 1.0
"""Score from which a request lies in the field of a specialist. A word that only one of ten
descriptions has scores 2."""


def route(conversation: Conversation) -> dict[str, Any]:
    """Choose a team for three or more things or questions, otherwise one specialist."""
    names = _property(conversation.schema, "specialist")["enum"]
    brief, _, request = conversation.task.partition("\nRequest:\n")
    is_answerable = why_not_answerable(request) is None
    if is_answerable:
        offered = lines_of_json(brief)
    else:
        offered = []
    specialist = _best_specialist(request, offered, names)
    asking = understand(request)
    parts = asking.things or asking.topics
    if not is_answerable or len(parts) < _TEAM_PARTS:
        return {"route": "single", "specialist": specialist, "why": "One agent can do this alone."}
    why = f"{len(parts)} parts can be researched side by side: {joined(parts)}."
    return {"route": "team", "specialist": specialist, "why": why}


def plan(conversation: Conversation) -> dict[str, Any]:
    """Plan one research step for each thing or question, and a step that writes the answer."""
    step_fields = _property(conversation.schema, "steps")["items"]
    offered = _property(step_fields, "specialist")["enum"]
    names = [name for name in offered if name != SUB_SUPERVISOR] or [_GENERALIST]
    brief, _, request = conversation.task.partition("\nRequest:\n")
    request = request[:MOST_CHARS]
    known: list[Any] = []
    for line in lines_of_json(brief):
        if "about" in line:
            known.append(line["id"])
    most = re.search(r"\bat most (\d+) steps\b", brief)
    if most:
        cap = min(int(most.group(1)), _MOST_STEPS)
    else:
        cap = _MOST_STEPS
    if known and "\nRequest before:\n" in brief:
        steps = [_write_step(request, _first(_WRITERS, names), known)]
    elif cap == 1 or why_not_answerable(request):
        step = _write_step(request, _first(_RESEARCHERS, names), known)
        steps = [{**step, "id": "answer"}]
    else:
        steps = _research_and_write(request, names, cap, known)
    fields = step_fields.get("properties", {})
    kept = [{key: value for key, value in step.items() if key in fields} for step in steps]
    parts = sum(step["id"] != "write" for step in steps)
    why = "The request has one part."
    if parts > 1:
        why = f"{parts} parts can be researched side by side."
    return {"steps": kept, "synthesis": "merge", "why": why}


def resolve_needs(conversation: Conversation) -> dict[str, Any]:
    """Give up every need: the documents are all there is, and the steps have searched them."""
    item = _property(conversation.schema, "resolutions")["items"]
    fields = item.get("properties", {})
    why = "The offline model knows nothing beyond the documents of this job."
    given = {"action": "give_up", "answer": why, "specialist": "", "task": ""}
    values: dict[str, str] = {}
    for key, value in given.items():
        if key in fields:
            values[key] = value
    return {"resolutions": [{"step": step, **values} for step in fields["step"]["enum"]]}


def replan(conversation: Conversation) -> dict[str, Any]:
    """Keep the plan while it has steps to come. Another search would find nothing new."""
    brief = conversation.task.partition("\nRequest:\n")[0]
    statuses: list[Any | None] = []
    for line in lines_of_json(brief):
        if "step" in line:
            statuses.append(line.get("status"))
    if "under way" in statuses or "not begun" in statuses:
        return {"decision": "go_on", "why": "The steps to come use what was found."}
    return {"decision": "finalize", "why": "Everything in the documents was looked up."}


def _best_specialist(
    request: str, offered: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> str:
    """Return the specialist with tools whose description has most words of the request."""
    fields: dict[str, frozenset[str]] = {}
    for line in offered:
        if line.get("name") in names and line.get("tools") and line["name"] != _GENERALIST:
            description = _NOT_ITS_FIELD.sub("", str(line.get("description", "")))
            fields[line["name"]] = content_stems(f"{line['name']} {description}")
    scores = {}
    for name, field in fields.items():
        score = 0.0
        for word in sorted(content_stems(request) & field):
            count = 0
            for other in fields.values():
                count += word in other
            score += 2 * math.log((1 + len(fields)) / count) / math.log(1 + len(fields))
        scores[name] = score
    best = max(sorted(scores), key=scores.__getitem__, default="")
    if scores.get(best, 0.0) >= _SURE:
        return best
    if _GENERALIST in names:
        return _GENERALIST
    return min(names)


def _research_and_write(
    request: str, names: Sequence[str], cap: int, known: list[str]
) -> list[dict[str, Any]]:
    asking = understand(request)
    researcher = _first(_RESEARCHERS, names)
    writer = None
    for name in _WRITERS:
        if name in names:
            writer = name
            break
    if writer:
        most = max(1, cap - 1)
    else:
        most = cap
    subjects = list(asking.things or asking.topics)
    groups: list[list[str]] = []
    for start in range(min(most, len(subjects))):
        groups.append(subjects[start::most])
    steps: list[dict[str, Any]] = []
    for group in groups:
        subject = joined(group)
        taken = {step["id"] for step in steps}
        step = _step(_free_id(subject, taken), subject, researcher, _task(asking.aspects, group))
        steps.append({**step, "depends_on": known})
    if writer and not (len(steps) == 1 and writer == researcher):
        ids = [step["id"] for step in steps]
        steps.append(_write_step(request, writer, ids))
    return steps


def _task(aspects: Sequence[str], group: Sequence[str]) -> str:
    subject = joined(list(group))
    if subject.endswith("?"):
        objective = f"Research the question: {subject}"
    elif len(group) > 1:
        objective = f"Research the subject: {subject}"
    else:
        by = ""
        if aspects:
            by = f" with regard to {joined(list(aspects))}"
        objective = f"Research {subject}{by}."
    return f"{objective}\nQuote the documents for every statement. Name what they do not say."


def _write_step(request: str, specialist: str, depends_on: list[str]) -> dict[str, Any]:
    task = f"Write the answer to the request from the results. Cite every statement.\nRequest: {request}"
    return {**_step("write", "Answer", specialist, task), "depends_on": depends_on}


def _step(name: str, title: str, specialist: str, task: str) -> dict[str, Any]:
    return {
        "id": name,
        "title": title,
        "specialist": specialist,
        "task": task,
        "depends_on": [],
        "fallback": _FALLBACK,
        "on_failure": "drop",
        "join": {"enough": 0, "within_s": 0, "must": []},
    }


def _free_id(subject: str, taken: set[str]) -> str:
    words = re.findall(r"[a-z0-9]+", " ".join(content_words(subject)[:3]))
    first = "_".join(["research", *words])[:_LONGEST_ID].rstrip("_")
    names = [first, *(f"{first}_{number}" for number in range(2, 100))]
    return next(name for name in names if name not in taken)


def _first(wanted: Sequence[str], names: Sequence[str]) -> str:
    for name in wanted:
        if name in names:
            return name
    return names[0]


def _property(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schema.get("properties", {}).get(name, {})
    return found
