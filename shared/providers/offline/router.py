"""The router's part: a team for what can be worked on side by side or needs different experts,
otherwise one, and which.
"""

from __future__ import annotations

from typing import Any

from handoff_queue.shared.providers.offline.conversation import Conversation
from handoff_queue.shared.providers.offline.request_questions import joined, request_in
from handoff_queue.shared.providers.offline.request_shape import (
    clauses,
    documents_in,
    is_fixed,
    names_files,
    plain,
    questions_in,
    things_in,
)
from handoff_queue.shared.providers.offline.schema_parts import property_schema, resolve
from handoff_queue.shared.providers.offline.specialist_fields import Field, best, fields_in

_GENERALIST = "generalist"
_CRAFTS = frozenset({"researcher", "analyst", "writer", "reviewer", "coder"})
"""They stand for a way of working: two of them make a plan, not two experts."""
_MANY = 3
"""Things or questions from which a team is worth its cost."""
_MOST_CHARS = 4_000
"""Of a request that are looked at: what is wanted stands at its beginning, and reading stays fast.
"""


def route(conversation: Conversation) -> dict[str, Any]:
    """Who gets the request: one of the schema's specialists, or a team."""
    schema = conversation.schema or {}
    names = resolve(property_schema(schema, "specialist"), schema).get("enum") or [_GENERALIST]
    above, _, below = conversation.task.partition("\nRequest:\n")
    request = (below or request_in(conversation.task)).strip()[:_MOST_CHARS]
    fields = [field for field in fields_in(above, names) if field.name != _GENERALIST]
    reason = _why_a_team(request, fields)
    who, why = _alone(request, fields, names)
    return {"route": "team" if reason else "single", "specialist": who, "why": reason or why}


def _alone(request: str, fields: list[Field], names: list[str]) -> tuple[str, str]:
    generalist = _GENERALIST if _GENERALIST in names else min(names)
    if is_fixed(request):
        return generalist, "The form of the answer is given: one agent writes it from start to end."
    able = [field for field in fields if field.has_tools or not names_files(request)]
    found = best(plain(request), able)
    if found is None:
        return generalist, "One agent can do this from start to end."
    return found.name, f"One specialist can do this alone, in whose field it lies: {found.name}."


def _why_a_team(request: str, fields: list[Field]) -> str | None:
    documents = documents_in(request)
    if documents:
        return f"There are {documents} documents to go through, which can be shared out."
    if is_fixed(request):
        return None
    experts = [field for field in fields if field.name not in _CRAFTS]
    needed = list(
        dict.fromkeys(found.name for clause in clauses(request) if (found := best(clause, experts)))
    )
    if len(needed) > 1:
        return f"Its questions lie in the fields of different experts: {joined(needed)}."
    things = things_in(request)
    if len(things) >= _MANY:
        return f"{len(things)} things can be looked into side by side: {joined(things)}."
    questions = questions_in(request)
    return f"{questions} questions can be looked into side by side." if questions >= _MANY else None
