"""The replies of each system's agents. All systems read the same documents, and state the same
facts in their answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from typing import Any

from benchmarks.tokens.estimate import Json, list_system_texts
from benchmarks.tokens.jobs import Fact, Job, Part, find_job, find_parts, format_answer
from benchmarks.tokens.server import join_messages
from handoff_queue.shared.agent.markdown_answer import with_notes
from handoff_queue.testing.replies import (
    Reply,
    answer_properties,
    first_message_text,
    json_reply,
    specialist_result,
    text_reply,
    tool_call_reply,
)

WRITE = "Write the whole answer to the request from the results of the other steps:"
"""Beginning of the task of the step that writes the answer."""
READ = "read_document"
ABRIDGED = "to its first three and its last three"
"""Words of this project's rule for quotes."""
PARTS = "names subject, attribute, value"
"""Words of this project's rule for the parts of claims in Markdown."""
WORKER = "You report on one document."
"""Words in the system prompts of workers of the other systems."""
PASSED = "PASS"
"""The review of the team that is written by hand."""
TEAMS = (("worker", "author"), ("researcher", "writer"))
"""Specialists of this project that report on one document, and that write the answer."""
_RESULT = re.compile(r'<result step="([^"]+)"')
_WHY = "The parts are independent of each other."


def answer_as_this_project(request: Json) -> Reply:
    """Reply to a role or a specialist of this project."""
    properties = answer_properties(request)
    text = first_message_text(request)
    if "output" in properties or not properties:
        return _build_specialist_reply(request, text, properties)
    job = find_job(text)
    if "route" in properties:
        route = "team" if len(job.parts) > 1 else "single"
        return json_reply({"route": route, "specialist": "generalist", "why": _WHY})
    if "steps" in properties:
        return json_reply(_build_plan(job, properties))
    if "verdict" in properties:
        scores = _fill_schema(properties["scores"], _get_definitions(request))
        verdict = {"scores": scores, "verdict": "PASS", "revisions": [], "open_points": []}
        return json_reply(_select_values(verdict, _find_required_fields(request)))
    return json_reply({"decision": "go_on", "why": "The plan still fits."})


def answer_as_one_agent(request: Json) -> Reply:
    """Reply to an agent that does a whole job alone."""
    return _read_and_answer(request, find_parts(join_messages(request)))


def answer_with_claims(request: Json) -> Reply:
    """Reply to `by_hand.run_with_claims`."""
    parts = find_parts(join_messages(request))
    output, claims = _write_answer(request, parts)
    proofs: list[Json] = []
    for claim in claims:
        (source,) = claim["sources"]
        proofs.append({"id": claim["id"], **source})
    return json_reply({"status": "ok", "answer": output, "claims": proofs})


def answer_as_hand_written_team(request: Json) -> Reply:
    """Reply to the agents of `by_hand.run_team`."""
    (system,) = list_system_texts(request)
    text = join_messages(request)
    if system.startswith(WORKER):
        return _read_and_answer(request, find_parts(text))
    job = find_job(text)
    if PASSED in system:
        return text_reply(PASSED)
    if "tasks" in system:
        return json_reply([part.task for part in job.parts])
    return text_reply(format_answer(job.parts))


def answer_as_langgraph(request: Json) -> Reply:
    """Reply to the supervisor, or to the worker of the next part."""
    text = join_messages(request)
    job = find_job(text)
    left = _find_parts_not_in_text(job, text)
    transfers: list[str] = []
    for name in _list_tools(request):
        if name.startswith("transfer_to"):
            transfers.append(name)
    if not transfers:
        return _read_and_answer(request, left[:1])
    if left:
        return tool_call_reply((transfers[0], {}))
    return text_reply(format_answer(job.parts))


def answer_as_agent_sdk(request: Json) -> Reply:
    """Reply to the main agent or to a subagent of the Claude Agent SDK."""
    text = join_messages(request)
    try:
        job = find_job(text)
    except LookupError:  # a request of the program itself
        return text_reply("ok")
    agent = None
    for name in _list_tools(request):
        if name in ("Agent", "Task"):
            agent = name
    if agent is None or WORKER in "".join(list_system_texts(request)):
        return _read_and_answer(request, find_parts(text))
    left = _find_parts_not_in_text(job, text)
    if not left:
        return text_reply(format_answer(job.parts))
    calls: list[tuple[str, Json]] = []
    for part in left:
        arguments = {
            "description": part.title,
            "prompt": part.task,
            "subagent_type": "worker",
            "run_in_background": False,
        }
        calls.append((agent, arguments))
    return tool_call_reply(*calls)


def _list_tools(request: Json) -> list[str]:
    return [tool["name"] for tool in request.get("tools", ())]


def _find_parts_not_in_text(job: Job, text: str) -> list[Part]:
    """Return the parts of a job whose facts are not in a text."""
    unreported_parts: list[Part] = []
    for part in job.parts:
        if part.facts[0].statement not in text:
            unreported_parts.append(part)
    return unreported_parts


def _read_and_answer(request: Json, parts: Sequence[Part]) -> Reply:
    unread = _find_unread_parts(request, parts)
    if unread:
        return _build_reading_reply(request, unread)
    return text_reply(format_answer(parts))


def _build_specialist_reply(request: Json, text: str, properties: Json) -> Reply:
    """Reply to a specialist: the step that writes, a part, or the whole job."""
    if WRITE in text:
        job = find_job(text)
        sections: list[str] = []
        for step, part in zip(_RESULT.findall(text), job.parts, strict=True):
            sections.append(part.format_section(f"[{step}.c{{number}}]"))
        return _build_result("\n\n".join(sections), (), properties)
    parts = find_parts(text)
    unread = _find_unread_parts(request, parts)
    if unread:
        return _build_reading_reply(request, unread)
    output, claims = _write_answer(request, parts)
    return _build_result(output, claims, properties)


def _write_answer(request: Json, parts: Sequence[Part]) -> tuple[str, list[Json]]:
    """Return the answer about some parts with the marks of its claims, and the claims."""
    sections: list[str] = []
    claims: list[Json] = []
    for part in parts:
        first = len(claims)
        lines = [f"## {part.title}", ""]
        for number, fact in enumerate(part.facts, start=first + 1):
            lines.append(f"- {fact.statement} [c{number}]")
            claims.append(_build_claim(f"c{number}", part, fact, request))
        sections.append("\n".join(lines))
    return "\n\n".join(sections), claims


def _build_result(output: str, claims: Sequence[Json], properties: Json) -> Reply:
    """Return a specialist's answer without the fields that the schema does not have, and
    without null for a field that the schema does not require.
    """
    result = specialist_result(output, claims=claims)
    if not properties:
        return text_reply(with_notes({"output": output, "claims": claims}))
    fields: Json = {}
    for name, schema in properties.items():
        if name in result and _is_allowed(result[name], schema):
            fields[name] = result[name]
    if "claims" in properties:
        item = properties["claims"]["items"]
        fields["claims"] = [_select_fields(claim, item) for claim in claims]
    return json_reply(fields)


def _is_allowed(value: Any, schema: Json) -> bool:
    return value is not None or "null" in json.dumps(schema)


def _select_fields(claim: Json, schema: Json) -> Json:
    """Return the fields of a claim that a schema has. The text is left out unless the schema
    requires it, because a sentence of the output states it.
    """
    required = schema.get("required", ())
    fields: Json = {}
    for name in schema["properties"]:
        value = claim.get(name)
        is_useful = value is not None and name != "text"
        if is_useful or name in required:
            fields[name] = value
    return fields


def _build_claim(name: str, part: Part, fact: Fact, request: Json) -> Json:
    """Return a claim. It follows the rules in a request: about the parts of a statement with a
    figure, and about short quotes.
    """
    rules = "".join(list_system_texts(request))
    has_parts = PARTS in rules or bool(answer_properties(request))
    quote = _shorten_quote(fact.quote) if ABRIDGED in rules else fact.quote
    statement = fact.statement
    parts: dict[str, str | None] = dict.fromkeys(("subject", "attribute", "value", "unit", "date"))
    figure = re.search(r"(\d[\d,.]*) ?(\w+)?", statement)
    if figure and has_parts:
        attribute = " ".join(statement.split()[:3])
        parts |= {"subject": part.title, "attribute": attribute}
        parts |= {"value": figure[1].strip(",."), "unit": figure[2]}
    return {
        "id": name,
        "text": statement,
        **parts,
        "sources": [{"source": part.path, "quote": quote}],
    }


def _shorten_quote(sentence: str) -> str:
    words = sentence.split()
    if len(words) <= 8:
        return sentence
    return f"{' '.join(words[:3])} ... {' '.join(words[-3:])}"


def _build_plan(job: Job, properties: Json) -> Json:
    """Return one step that is repeated for each part, and with several parts a step that writes the
    answer. Optional fields that are not needed are left out.
    """
    offered_names = properties["steps"]["items"]["properties"]["specialist"]["enum"]
    specialists = next(pair for pair in TEAMS if pair[0] in offered_names)
    first, *others = job.parts
    report = {"id": "report", "specialist": specialists[0], "task": "{request}"}
    if not others:
        return {"steps": [report]}
    subjects = [part.subject for part in job.parts]
    task = first.task.replace(first.subject, "{item}")
    answer = {"id": "answer", "specialist": specialists[-1], "task": f"{WRITE} {{request}}"}
    return {
        "steps": [
            report | {"task": task, "for_each": subjects},
            answer | {"depends_on": ["report"]},
        ]
    }


def _select_values(values: Json, names: Collection[str]) -> Json:
    """Return the values with these names."""
    return {name: value for name, value in values.items() if name in names}


def _find_required_fields(request: Json) -> list[str]:
    """Return the fields that the schema of an answer requires."""
    required: list[str] = request["output_config"]["format"]["schema"]["required"]
    return required


def _get_definitions(request: Json) -> Json:
    """Return the definitions of the schema of the answer: reference -> schema."""
    schema = request["output_config"]["format"]["schema"]
    return {f"#/$defs/{name}": child for name, child in schema.get("$defs", {}).items()}


def _fill_schema(schema: Json, definitions: Json) -> Any:
    """Return a value of a schema: the highest number, and a sentence for each text."""
    schema = definitions.get(schema.get("$ref", ""), schema)
    if "properties" in schema:
        best: Json = {}
        for name in schema["required"]:
            best[name] = _fill_schema(schema["properties"][name], definitions)
        return best
    if "enum" in schema:
        return schema["enum"][-1]
    return "All bullet points quote the document."


def _find_unread_parts(request: Json, parts: Sequence[Part]) -> list[Part]:
    """Return the parts whose documents the request does not show."""
    text = join_messages(request)
    unread: list[Part] = []
    for part in parts:
        if not all(fact.quote in text for fact in part.facts):
            unread.append(part)
    return unread


def _build_reading_reply(request: Json, parts: Sequence[Part]) -> Reply:
    """Return the calls that read the documents of these parts."""
    tool = next(tool for tool in request["tools"] if tool["name"].endswith(READ))
    (argument, *_rest) = tool["input_schema"]["properties"]
    others = [name for name in tool["input_schema"].get("required", ()) if name != argument]
    calls: list[tuple[str, Json]] = []
    for part in parts:
        calls.append((tool["name"], {argument: part.path, **dict.fromkeys(others, 0)}))
    return tool_call_reply(*calls)
