"""Which part to play, told by what the answer must look like and by what is there to work with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from shared.agent.offline import planner, research, review, synthesis, writing
from shared.agent.offline.conversation import Conversation
from shared.agent.offline.schema_filler import fill, property_schema, resolve
from shared.agent.offline.statements import marked

Block = dict[str, Any]
_ROLES: Mapping[str, Callable[[Conversation], dict[str, Any]]] = {
    "steps": planner.plan,
    "resolutions": planner.give_up,
    "verdict": review.review,
}
"""The supervisor's roles, by a field that only their answers have."""


def reply_to(conversation: Conversation) -> list[Block]:
    """The content blocks of the reply: tool calls while something is to be found out, otherwise the final text."""
    schema = conversation.schema or {}
    has = resolve(schema, schema).get("properties", {})
    for mark, role in _ROLES.items():
        if mark in has:
            return [_text(role(conversation))]
    if conversation.results and not _goes_on_searching(conversation):
        write = synthesis.envelope if _is_synthesizer(conversation) else writing.envelope
        return [_final(conversation, write(conversation))]
    calls = research.next_calls(conversation)
    if not calls and conversation.must_call:
        arguments = fill(conversation.tools[conversation.must_call], [conversation.task], text=conversation.task)
        calls = [research.ToolCall(conversation.must_call, arguments)]
    return [_tool_use(call.name, dict(call.input)) for call in calls] or [_final(conversation, research.envelope(conversation))]


def _is_synthesizer(conversation: Conversation) -> bool:
    """Told by its instructions: it answers like a specialist, but merges results instead of drafting from claims."""
    return re.search(r"\bsynthesi[sz](?:er|e the)\b", conversation.system[:400], re.IGNORECASE) is not None or conversation.task.startswith(
        "Write the one answer to the request"
    )


def _goes_on_searching(conversation: Conversation) -> bool:
    """A researcher may be given results to go on from; whoever can search and is told to research does that."""
    can_search = research.SEARCH in conversation.tools or any(call.name == research.SEARCH for call in conversation.calls)
    return can_search and re.match(r"(?:research|find|look up|search|investigate)\b", conversation.task, re.IGNORECASE) is not None


def _final(conversation: Conversation, envelope: dict[str, Any]) -> Block:
    """The envelope as the schema wants it: its output filled in, or the whole of it if the schema is none of ours."""
    schema = conversation.schema
    if schema is None:
        return {"type": "text", "text": envelope["output"]}
    facts = [marked(claim["text"], claim["id"]) for claim in envelope["claims"]]
    facts += [marked(claim.text, claim.id) for result in conversation.results for claim in result.claims]
    has = resolve(schema, schema).get("properties", {})
    if not {"status", "output", "claims"} <= set(has):
        return _text(fill(schema, facts, text=envelope["output"]))
    wanted, root = (conversation.output_format, None) if conversation.output_format else (property_schema(schema, "output"), schema)
    if wanted and not _is_free_text(wanted):
        envelope = {**envelope, "output": fill(wanted, facts, root=root, text=" ".join(facts[:3]) or envelope["output"])}
    return _text({key: value for key, value in envelope.items() if key in has})


def _is_free_text(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type", "string")
    constraints = {"enum", "const", "pattern", "format", "minLength", "maxLength", "anyOf", "oneOf"}
    return "string" in (kinds if isinstance(kinds, list) else [kinds]) and not constraints & set(schema) and "properties" not in schema


def _text(value: Any) -> Block:
    return {"type": "text", "text": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)}


def _tool_use(name: str, arguments: dict[str, Any]) -> Block:
    return {"type": "tool_use", "id": "", "name": name, "input": arguments}
