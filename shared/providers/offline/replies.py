"""Selects the role that the offline model plays, by the schema of the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from handoff_queue.shared.providers.offline import judging, planning
from handoff_queue.shared.providers.offline.conversation import Conversation, RefusedRequest
from handoff_queue.shared.providers.offline.specialist import answer, next_calls

Block = dict[str, Any]
_ROLES: Mapping[frozenset[str], Callable[[Conversation], dict[str, Any]]] = {
    frozenset({"route", "specialist"}): planning.route,
    frozenset({"steps", "synthesis"}): planning.plan,
    frozenset({"resolutions"}): planning.resolve_needs,
    frozenset({"decision", "why"}): planning.replan,
    frozenset({"verdict", "revisions"}): judging.assess,
    frozenset({"settlements"}): judging.settle_conflicts,
    frozenset({"rulings"}): judging.rule_on_points,
}
"""Functions of the supervisor's roles, by fields that only the answers of the role have."""
_ENVELOPE = frozenset({"status", "output", "claims"})
_FACT_CHECK = frozenset({"verdict", "wrong", "why"})


def reply_to(conversation: Conversation) -> list[Block]:
    """Return the content blocks of the reply: tool calls, or the final text.

    Raises:
        RefusedRequest: the schema of the answer belongs to no role and to no specialist.
    """
    fields = frozenset(conversation.schema.get("properties", {}))
    for marks, role in _ROLES.items():
        if marks <= fields:
            return [_text(role(conversation))]
    if conversation.schema and not fields >= _ENVELOPE:
        names = ", ".join(sorted(fields)) or "no fields"
        raise RefusedRequest(f"the offline model has no answer in the form with {names}")
    output_fields = frozenset(conversation.output_format.get("properties", {}))
    if output_fields == _FACT_CHECK:
        return [_text(judging.check_facts(conversation))]
    if "scores" in output_fields and '\n{"answer":' in conversation.task:
        return [_text(judging.grade(conversation))]
    if calls := next_calls(conversation):
        return calls
    envelope = answer(conversation)
    if not conversation.schema:
        return [{"type": "text", "text": envelope["output"]}]
    return [_text(envelope)]


def _text(value: dict[str, Any]) -> Block:
    return {"type": "text", "text": json.dumps(value, ensure_ascii=False, indent=1)}
