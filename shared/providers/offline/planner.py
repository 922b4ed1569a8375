"""The planner's part: one research step per thing compared or question asked, and a writer who
has them all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from handoff_queue.shared.providers.offline.answerable_requests import why_not_answerable
from handoff_queue.shared.providers.offline.aspects import content_words
from handoff_queue.shared.providers.offline.conversation import Conversation
from handoff_queue.shared.providers.offline.findings import heading_of
from handoff_queue.shared.providers.offline.request_questions import (
    Asking,
    joined,
    request_in,
    understand,
)
from handoff_queue.shared.providers.offline.schema_parts import property_schema, resolve
from handoff_queue.shared.providers.offline.schema_placeholders import placeholder
from handoff_queue.shared.types.names import SUB_SUPERVISOR

_MOST_STEPS = 8
"""Unless the request says otherwise: more questions than that are put together."""
_FALLBACK = "Write what there is to say, and name what is missing."
_RESEARCHERS = ("researcher", "generalist", "analyst")
_WRITERS = ("writer", "analyst", "generalist")


def plan(conversation: Conversation) -> dict[str, Any]:
    """A plan that fits the schema: its specialists, its fields."""
    schema = conversation.schema or {}
    step_schema = resolve(property_schema(schema, "steps").get("items", {}), schema)
    offered = resolve(property_schema(step_schema, "specialist", schema), schema).get("enum") or ()
    names = [name for name in offered if name != SUB_SUPERVISOR] or [
        "generalist"
    ]  # nothing that it divides would be worth a team
    asking = understand(request_in(conversation.task))
    cannot = why_not_answerable(request_in(conversation.task)) is not None
    known = _known_in(conversation.task)
    follows = "\nRequest before:\n" in conversation.task.partition("\nRequest:\n")[0]
    steps = (
        _out_of(known, asking, names)
        if known and follows
        else _steps(asking, names, 1 if cannot else _cap(conversation, schema), known)
    )
    answer = {
        "steps": [_fit(step, step_schema, schema) for step in steps],
        "synthesis": "merge",
        "why": _why(asking, steps),
    }
    return _fit(answer, schema, schema)


def give_up(conversation: Conversation) -> dict[str, Any]:
    """The planner's second job: what steps lack cannot be had, since there are only the
    documents, and those they have searched. So no other step would find it either.
    """
    schema = conversation.schema or {}
    item = resolve(property_schema(schema, "resolutions").get("items", {}), schema)
    steps = property_schema(item, "step", schema).get("enum") or [
        result.step for result in conversation.results
    ]
    why = "The offline model knows nothing beyond the documents of this job."
    said = {"action": "give_up", "answer": why, "specialist": "", "task": ""}
    return {"resolutions": [_fit({"step": step, **said}, item, schema) for step in steps]}


def _steps(
    asking: Asking, names: list[str], cap: int, known: Sequence[str] = ()
) -> list[dict[str, Any]]:
    researcher = next((name for name in _RESEARCHERS if name in names), names[0])
    writer = next((name for name in _WRITERS if name in names), None)
    if cap == 1:
        return [
            {
                "id": "answer",
                "title": "Answer",
                "specialist": researcher,
                "task": asking.text,
                "depends_on": [*known],
                "fallback": _FALLBACK,
            }
        ]
    research = [
        {**step, "depends_on": [*known]}
        for step in _research(asking, researcher, cap - 1 if writer else cap)
    ]
    if writer is None or (len(research) == 1 and writer == researcher):
        return research
    task = f"Write the answer to the request out of the results, every statement with its marker.\nRequest: {asking.text}"
    ids = [step["id"] for step in research]
    return [
        *research,
        {
            "id": "write",
            "title": "Answer",
            "specialist": writer,
            "task": task,
            "depends_on": ids,
            "fallback": _FALLBACK,
        },
    ]


def _known_in(task: str) -> list[str]:
    """The ids of results that are there already."""
    above = task.partition("\nRequest:\n")[0]
    return re.findall(
        r'^{"id": "([a-z][a-z0-9_-]*)", "specialist": ',
        above.partition("\nKnown results:\n")[2],
        re.MULTILINE,
    )


def _out_of(known: list[str], asking: Asking, names: list[str]) -> list[dict[str, Any]]:
    """A request that follows on another is about what that one has found: nothing is looked
    for again.
    """
    writer = next((name for name in _WRITERS if name in names), names[0])
    return [
        {
            "id": "write",
            "title": "Answer",
            "specialist": writer,
            "task": asking.text,
            "depends_on": known,
            "fallback": _FALLBACK,
        }
    ]


def _research(asking: Asking, specialist: str, cap: int) -> list[dict[str, Any]]:
    subjects = _grouped(list(asking.things or asking.topics), max(1, cap))
    steps: list[dict[str, Any]] = []
    for subject in subjects:
        steps.append(
            {
                "id": _id_for(subject, {step["id"] for step in steps}),
                "title": subject if asking.things else heading_of(subject),
                "specialist": specialist,
                "task": f"{_objective(asking, subject)}\nQuote the documents for every statement, and say what they do not tell.",
                "depends_on": [],
                "fallback": f"Say that the documents tell nothing about {subject.rstrip('.?')}, and give what is nearest to it.",
            }
        )
    return steps


def _objective(asking: Asking, subject: str) -> str:
    if not asking.things:
        return f"Research the {'question' if subject.endswith('?') else 'subject'}: {subject}"
    return f"Research {subject}{f' with regard to {joined(asking.aspects)}' if asking.aspects else ''}."


def _grouped(subjects: list[str], cap: int) -> list[str]:
    """At most `cap` subjects of similar size: the surplus is put together evenly."""
    if len(subjects) <= cap:
        return subjects
    return [joined(subjects[start::cap]) for start in range(cap)]


def _id_for(subject: str, taken: set[str]) -> str:
    words = re.findall(r"[a-z0-9]+", " ".join(content_words(subject)[:3]))
    first = f"research_{'_'.join(words)}"[:44].rstrip("_") or "research"
    return next(
        name for name in (first, *(f"{first}_{n}" for n in range(2, 100))) if name not in taken
    )


def _cap(conversation: Conversation, schema: Mapping[str, Any]) -> int:
    said = re.search(r"\bat most (\d+) steps\b", conversation.task.partition("Request:")[0])
    limits = [
        property_schema(schema, "steps").get("maxItems"),
        int(said.group(1)) if said else None,
        _MOST_STEPS,
    ]
    return max(1, min(limit for limit in limits if limit is not None))


def _why(asking: Asking, steps: list[dict[str, Any]]) -> str:
    count = sum(1 for step in steps if not step["depends_on"])
    kind = "things to compare" if asking.things else "questions to answer"
    if count > 1:
        return f"{count} {kind}: each researched on its own, at the same time."
    return (
        "One step can answer this."
        if len(steps) == 1
        else "One question to research, then a writer."
    )


def _fit(
    value: dict[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any]
) -> dict[str, Any]:
    """Drop what the schema does not know, and fill in what it requires beyond what is here."""
    properties = schema.get("properties")
    if not properties:
        return value
    kept = {key: each for key, each in value.items() if key in properties}
    missing = [key for key in schema.get("required", ()) if key not in kept]
    return {**kept, **{key: placeholder(properties[key], root=root) for key in missing}}
