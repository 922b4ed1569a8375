"""The replanner's tools: one for each specialist that can get a new step, and two for steps
that have not begun.

The tools never run. All calls of one reply together are the patch
(`supervisor.roles.replanner`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from handoff_queue.shared.agent.tool import Tool, ToolContext, ToolFailed
from handoff_queue.supervisor.roles.planner import TITLE_HELP, failure_policies

HAND_OFF = "hand_off_to_"
CHANGE = "change_step"
DROP = "drop_step"

_TEXT: dict[str, Any] = {"type": "string"}
_WHY = {**_TEXT, "description": "one sentence for readers of the plan"}
_IDS = {"type": "array", "items": _TEXT}


def tools_for(
    specialists: Collection[str], unbegun: Collection[str], *, may_ask: bool
) -> tuple[Tool, ...]:
    """Return the tools for these specialists, and for the steps that have not begun.

    Args:
        may_ask: True if the user asked for approvals, so that a new step may be `on_failure: ask`.
    """
    policies = failure_policies(may_ask=may_ask)
    tools = [_hand_off_to(name, policies) for name in sorted(specialists)]
    if unbegun:
        tools += [_change(specialists, unbegun), _drop(unbegun)]
    return tuple(tools)


def is_handoff_tool(name: str) -> bool:
    """Return whether a tool of this name changes the plan, even if no worker serves its specialist."""
    return name.startswith(HAND_OFF) or name in (CHANGE, DROP)


def _hand_off_to(name: str, policies: Collection[str]) -> Tool:
    arguments = {
        "id": {**_TEXT, "description": "short, lower case, new in this plan: check_config"},
        "title": {**_TEXT, "description": TITLE_HELP},
        "task": {**_TEXT, "description": "objective, output, what to work from, boundaries"},
        "depends_on": {
            **_IDS,
            "description": "ids of the steps whose results it needs, old or new; [] for no step",
        },
        "on_failure": {
            **_TEXT,
            "enum": list(policies),
            "description": "drop: the answer can do without it",
        },
        "why": _WHY,
    }
    return _tool(
        f"{HAND_OFF}{name}",
        f"Adds a step to the plan, and gives it to {name}.",
        arguments,
        optional=("title", "on_failure"),
    )


def _change(specialists: Collection[str], unbegun: Collection[str]) -> Tool:
    arguments = {
        "step": {**_TEXT, "enum": list(unbegun)},
        "specialist": {**_TEXT, "enum": sorted(specialists)},
        "title": {**_TEXT, "description": TITLE_HELP},
        "task": {**_TEXT, "description": "the whole new text"},
        "depends_on": {**_IDS, "description": "the whole new list"},
        "why": _WHY,
    }
    about = "Changes a step that has not begun. Fields that are left out stay unchanged."
    return _tool(CHANGE, about, arguments, optional=("specialist", "title", "task", "depends_on"))


def _drop(unbegun: Collection[str]) -> Tool:
    return _tool(
        DROP,
        "Drops a step that has not begun.",
        {"step": {**_TEXT, "enum": list(unbegun)}, "why": _WHY},
    )


def _tool(
    name: str, description: str, arguments: dict[str, Any], optional: tuple[str, ...] = ()
) -> Tool:
    required: list[str] = []
    for argument in arguments:
        if argument not in optional:
            required.append(argument)
    schema = {
        "type": "object",
        "properties": arguments,
        "required": required,
        "additionalProperties": False,
    }
    return Tool(name, description, schema, _not_now)


def _not_now(_arguments: dict[str, Any], _context: ToolContext) -> str:
    """Refuse a call that came in one reply with calls of other tools, which run first.

    Raises:
        ToolFailed: always.
    """
    raise ToolFailed("not executed: read first, and then decide with calls of your decision only")
