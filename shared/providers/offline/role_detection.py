"""Which part to play, told by what the answer must look like and by what is there to work with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from handoff_queue.shared.providers.offline import fact_checker as checking
from handoff_queue.shared.providers.offline import grader as grading
from handoff_queue.shared.providers.offline import judge as judging
from handoff_queue.shared.providers.offline import planner, replanner, router
from handoff_queue.shared.providers.offline import researcher as research
from handoff_queue.shared.providers.offline import reviewer as review
from handoff_queue.shared.providers.offline import synthesizer as synthesis
from handoff_queue.shared.providers.offline import writer as writing
from handoff_queue.shared.providers.offline.conversation import Conversation
from handoff_queue.shared.providers.offline.request_questions import joined
from handoff_queue.shared.providers.offline.schema_forms import Filled, fill_in
from handoff_queue.shared.providers.offline.schema_parts import property_schema, resolve
from handoff_queue.shared.providers.offline.schema_placeholders import placeholder

Block = dict[str, Any]
_MOST_NAMED = 20
"""Of the places in a form that documents do not speak of."""
_ROLES: Mapping[tuple[str, ...], Callable[[Conversation], dict[str, Any]]] = {
    ("steps",): planner.plan,
    ("resolutions",): planner.give_up,
    ("verdict",): review.review,
    ("settlements",): judging.judge,
    ("rulings",): judging.rule,
    ("route", "specialist"): router.route,
}
"""The supervisor's roles, by fields that only their answers have."""


def reply_to(conversation: Conversation) -> list[Block]:
    """The content blocks of the reply: tool calls while something is to be found out,
    otherwise the final text.
    """
    schema = conversation.schema or {}
    has = resolve(schema, schema).get("properties", {})
    for marks, role in _ROLES.items():
        if all(mark in has for mark in marks):
            return [_text(role(conversation))]
    if {"decision", "why"} <= set(has):
        further = replanner.next_step(conversation)
        return [
            _tool_use(further.name, dict(further.input))
            if further
            else _text(replanner.decide(conversation))
        ]
    if grading.is_asked_to_score(conversation):
        return [_text(grading.grades(conversation))]
    if checking.is_asked_to_check(conversation):
        return [_text(checking.checks(conversation))]
    if conversation.results and not _goes_on_searching(conversation):
        write = synthesis.envelope if _is_synthesizer(conversation) else writing.envelope
        return [_final(conversation, write(conversation))]
    calls = research.next_calls(conversation)
    if not calls and conversation.must_call:
        arguments = placeholder(conversation.tools[conversation.must_call], text=conversation.task)
        calls = [research.ToolCall(conversation.must_call, arguments)]
    return [_tool_use(call.name, dict(call.input)) for call in calls] or [
        _final(conversation, research.envelope(conversation))
    ]


def _is_synthesizer(conversation: Conversation) -> bool:
    """Told by its instructions: it answers like a specialist, but merges results instead of
    drafting from claims.
    """
    return re.search(
        r"\bsynthesi[sz](?:er|e the)\b", conversation.system[:400], re.IGNORECASE
    ) is not None or conversation.task.startswith("Write the one answer to the request")


def _goes_on_searching(conversation: Conversation) -> bool:
    """A researcher may be given results to go on from; whoever can search and is told to
    research does that.
    """
    can_search = research.SEARCH in conversation.tools or any(
        call.name == research.SEARCH for call in conversation.calls
    )
    return (
        can_search
        and re.match(
            r"(?:research|find|look up|search|investigate)\b", conversation.task, re.IGNORECASE
        )
        is not None
    )


def _final(conversation: Conversation, envelope: dict[str, Any]) -> Block:
    """The envelope with its output in the form that is wanted; or, if the schema is none of
    ours, the form alone, and valid.
    """
    schema = conversation.schema
    if schema is None:
        return {"type": "text", "text": envelope["output"]}
    has = resolve(schema, schema).get("properties", {})
    if not {"status", "output", "claims"} <= set(has):
        filled = _filled(conversation, envelope, schema, schema)
        return _text(placeholder(schema) if filled.missing else filled.value)
    wanted, root = (
        (conversation.output_format, None)
        if conversation.output_format
        else (property_schema(schema, "output"), schema)
    )
    if wanted and not _is_free_text(wanted):
        envelope = _in_form(envelope, _filled(conversation, envelope, wanted, root))
    return _text({key: value for key, value in envelope.items() if key in has})


def _filled(
    conversation: Conversation,
    envelope: dict[str, Any],
    form: Mapping[str, Any],
    root: Mapping[str, Any] | None,
) -> Filled:
    claims, subjects = writing.subjects_of(conversation, envelope["claims"])
    return fill_in(form, claims, subjects, root=root)


def _in_form(envelope: dict[str, Any], filled: Filled) -> dict[str, Any]:
    """With the claims that the form was filled from, since a number has no place for a marker;
    what they do not say makes it partial.
    """
    own = {claim["id"]: claim for claim in envelope["claims"]}
    claims = [own.get(used, {"id": used, "text": used, "sources": []}) for used in filled.used]
    changed = {**envelope, "output": filled.value, "claims": claims}
    if not filled.missing or envelope["status"] == "needs_input":
        return changed
    places = [
        *filled.missing[:_MOST_NAMED],
        *(
            [f"{len(filled.missing) - _MOST_NAMED} more"]
            if len(filled.missing) > _MOST_NAMED
            else []
        ),
    ]
    status = "failed" if filled.value is None else "partial"
    return {
        **changed,
        "status": status,
        "problem": f"the documents do not say: {joined(places)}",
        "confidence": 0.5 if claims else 0.0,
    }


def _is_free_text(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type", "string")
    constraints = {"enum", "const", "pattern", "format", "minLength", "maxLength", "anyOf", "oneOf"}
    return (
        "string" in (kinds if isinstance(kinds, list) else [kinds])
        and not constraints & set(schema)
        and "properties" not in schema
    )


def _text(value: Any) -> Block:
    return {
        "type": "text",
        "text": value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, indent=1),
    }


def _tool_use(name: str, arguments: dict[str, Any]) -> Block:
    return {"type": "tool_use", "id": "", "name": name, "input": arguments}
