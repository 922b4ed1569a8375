"""The roles that assign work: router, planner and replanner."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from handoff_queue.shared.providers.offline.conversation import (
    RequestParts,
    only_properties,
    parse_json_lines,
)
from handoff_queue.shared.providers.offline.request_text import (
    MAX_CHARS,
    explain_unanswerable,
    understand,
)
from handoff_queue.shared.providers.offline.words import (
    find_content_stems,
    find_content_words,
    join_with_and,
)
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST

_GENERALIST = "generalist"
_RESEARCHERS = ("researcher", _GENERALIST, "analyst")
_WRITERS = ("writer", "analyst", _GENERALIST)
_TEAM_PARTS = 3
"""Least number of subjects or questions for which a team is worth its cost."""
_MAX_STEPS = 8
_MAX_ID_CHARS = 44
_FALLBACK = "Write the parts that have a source, and name the gaps."
_NOT_ITS_FIELD = re.compile(r"\b(?:Not for|Never)\b.*", re.DOTALL)
"""The end of a description: the tasks that belong to other specialists."""
_SURE = 1.0
"""Least score of a specialist for a request. A word that occurs in only one description scores
2.
"""


def choose_route(conversation: RequestParts) -> dict[str, Any]:
    """Choose a team for a request with three or more subjects or questions, otherwise one
    specialist.
    """
    names = _get_property(conversation.schema, "specialist")["enum"]
    brief, _, request = conversation.task.partition("\nRequest:\n")
    is_answerable = explain_unanswerable(request) is None
    specialist_lines: list[dict[str, Any]] = []
    if is_answerable:
        specialist_lines = parse_json_lines(brief)
    specialist = _choose_specialist(request, specialist_lines, names)
    asking = understand(request)
    parts = asking.subjects or asking.topics
    if not is_answerable or len(parts) < _TEAM_PARTS:
        return {"route": "single", "specialist": specialist, "why": "One agent can do this alone."}
    why = f"{len(parts)} parts can be researched side by side: {join_with_and(parts)}."
    return {"route": "team", "specialist": specialist, "why": why}


def plan(conversation: RequestParts) -> dict[str, Any]:
    """Plan research steps for the subjects or questions, and a step that writes the answer. If
    the number of steps is too small, a research step takes several subjects or questions.
    """
    step_fields = _get_property(conversation.schema, "steps")["items"]
    offered_names = _get_property(step_fields, "specialist")["enum"]
    names = [name for name in offered_names if name != CHILD_JOB_SPECIALIST] or [_GENERALIST]
    brief, _, request = conversation.task.partition("\nRequest:\n")
    request = request[:MAX_CHARS]
    earlier_ids: list[Any] = []
    for line in parse_json_lines(brief):
        if "about" in line:
            earlier_ids.append(line["id"])
    cap = _MAX_STEPS
    limit = re.search(r"\bat most (\d+) steps\b", brief)
    if limit:
        cap = min(int(limit.group(1)), _MAX_STEPS)
    if earlier_ids and "\nRequest before:\n" in brief:
        steps = [_write_step(request, _choose_first(_WRITERS, names), earlier_ids)]
    elif cap == 1 or explain_unanswerable(request):
        step = _write_step(request, _choose_first(_RESEARCHERS, names), earlier_ids)
        steps = [{**step, "id": "answer"}]
    else:
        steps = _plan_research_and_write(request, names, cap, earlier_ids)
    planned = [only_properties(step, step_fields) for step in steps]
    return {"steps": planned, "synthesis": "merge"}


def resolve_needs(conversation: RequestParts) -> dict[str, Any]:
    """Give up on every missing input, because this model knows only the documents, and the
    steps have searched them.
    """
    item_schema = _get_property(conversation.schema, "resolutions")["items"]
    why = "The offline model knows nothing beyond the documents of this job."
    give_up = {"action": "give_up", "answer": why, "specialist": "", "task": ""}
    values = only_properties(give_up, item_schema)
    resolutions: list[dict[str, Any]] = []
    for step in _get_property(item_schema, "step")["enum"]:
        resolutions.append({"step": step, **values})
    return {"resolutions": resolutions}


def replan(conversation: RequestParts) -> dict[str, Any]:
    """Continue while a step runs or has not started, else finalize. Another search would find
    nothing new.
    """
    brief = conversation.task.partition("\nRequest:\n")[0]
    statuses: list[Any] = []
    for line in parse_json_lines(brief):
        if "step" in line:
            statuses.append(line.get("status"))
    if "under way" in statuses or "not begun" in statuses:
        return {"decision": "go_on", "why": "The next steps use the results so far."}
    return {"decision": "finalize", "why": "Everything in the documents was looked up."}


def _choose_specialist(
    request: str, specialist_lines: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> str:
    """Return the specialist whose description has the most words of the request. A word in few
    descriptions counts more.

    Only specialists with tools count. If the best score is below `_SURE`, return the
    generalist, or the first name in the alphabet.
    """
    fields: dict[str, frozenset[str]] = {}
    for line in specialist_lines:
        if line.get("name") in names and line.get("tools") and line["name"] != _GENERALIST:
            description = _NOT_ITS_FIELD.sub("", str(line.get("description", "")))
            fields[line["name"]] = find_content_stems(f"{line['name']} {description}")
    scores = {}
    for name, field in fields.items():
        score = 0.0
        for word in sorted(find_content_stems(request) & field):
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


def _plan_research_and_write(
    request: str, names: Sequence[str], cap: int, earlier_ids: list[str]
) -> list[dict[str, Any]]:
    """Return at most `cap` steps: research steps, and a step that writes the answer.

    Args:
        names: specialists of the job.
        earlier_ids: ids of earlier results, on which the research depends.
    """
    asking = understand(request)
    researcher = _choose_first(_RESEARCHERS, names)
    writer = None
    for name in _WRITERS:
        if name in names:
            writer = name
            break
    limit = cap
    if writer:
        limit = max(1, cap - 1)
    subjects = list(asking.subjects or asking.topics)
    steps: list[dict[str, Any]] = []
    ids: list[str] = []
    for start in range(min(limit, len(subjects))):
        group = subjects[start::limit]
        subject = join_with_and(group)
        step_id = _find_free_id(subject, ids)
        ids.append(step_id)
        step = _build_step(step_id, subject, researcher, _build_task(asking.aspects, group))
        steps.append({**step, "depends_on": earlier_ids})
    if writer and not (len(steps) == 1 and writer == researcher):
        steps.append(_write_step(request, writer, ids))
    return steps


def _build_task(aspects: Sequence[str], group: Sequence[str]) -> str:
    subject = join_with_and(list(group))
    if subject.endswith("?"):
        objective = f"Research the question: {subject}"
    elif len(group) > 1:
        objective = f"Research the subject: {subject}"
    else:
        by = ""
        if aspects:
            by = f" with regard to {join_with_and(list(aspects))}"
        objective = f"Research {subject}{by}."
    return f"{objective}\nQuote the documents for every statement. Name the open questions."


def _write_step(request: str, specialist: str, depends_on: list[str]) -> dict[str, Any]:
    task = (
        "Write the answer to the request from the results. Cite every statement.\nRequest:"
        f" {request}"
    )
    return {**_build_step("write", "Answer", specialist, task), "depends_on": depends_on}


def _build_step(name: str, title: str, specialist: str, task: str) -> dict[str, Any]:
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


def _find_free_id(subject: str, used_ids: Collection[str]) -> str:
    """Return an id for a research step from the first words of its subject. A number makes it
    unique.
    """
    words = re.findall(r"[a-z0-9]+", " ".join(find_content_words(subject)[:3]))
    first = "_".join(["research", *words])[:_MAX_ID_CHARS].rstrip("_")
    step_id, number = first, 2
    while step_id in used_ids:
        step_id = f"{first}_{number}"
        number += 1
    return step_id


def _choose_first(preferred_names: Sequence[str], names: Sequence[str]) -> str:
    """Return the first preferred name that is in `names`, or else the first of `names`."""
    for name in preferred_names:
        if name in names:
            return name
    return names[0]


def _get_property(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the schema of a property, or `{}`."""
    part: Mapping[str, Any] = schema.get("properties", {}).get(name, {})
    return part
