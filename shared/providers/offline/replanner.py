"""The replanner's part: one more step where a specialist came back without what it was to
find, and somebody else can search for it too.
"""

from __future__ import annotations

import json
from typing import Any

from handoff_queue.shared.providers.offline.conversation import Conversation, Result
from handoff_queue.shared.providers.offline.researcher import SEARCH, ToolCall
from handoff_queue.shared.providers.offline.statements import gaps_in

_HAND_OFF = "hand_off_to_"
_FURTHER = "_further"
_UNDER_WAY = ("under way", "not begun")


def next_step(conversation: Conversation) -> ToolCall | None:
    """A handoff; None: the plan needs none."""
    plan, specialists = _told(conversation, "step"), _told(conversation, "name")
    for result in conversation.results:
        step = plan.get(result.step)
        if (
            step is None
            or result.status == "ok"
            or result.step.endswith(_FURTHER)
            or f"{result.step}{_FURTHER}" in plan
        ):
            continue
        able = [
            name
            for name, one in specialists.items()
            if SEARCH in one["tools"] and name != step["specialist"]
        ]
        able = [name for name in able if f"{_HAND_OFF}{name}" in conversation.tools]
        if able:
            return ToolCall(
                f"{_HAND_OFF}{'generalist' if 'generalist' in able else min(able)}",
                _handoff(result, step["task"]),
            )
    return None


def decide(conversation: Conversation) -> dict[str, Any]:
    """The plan goes on, or there is nothing left of it."""
    if any(step["status"] in _UNDER_WAY for step in _told(conversation, "step").values()):
        return {"decision": "go_on", "why": "What is still to come was planned for what was found."}
    return {"decision": "finalize", "why": "All that the documents have for this was looked up."}


def _handoff(result: Result, task: str) -> dict[str, Any]:
    missing = "; ".join(gaps_in(result.text)) or task
    return {
        "id": f"{result.step[: 48 - len(_FURTHER)]}{_FURTHER}",
        "task": f"Research {missing.rstrip('.')}.\nQuote the documents for every statement, and say what they do not tell.",
        "depends_on": [],
        "on_failure": "drop",
        "why": f"{result.step} did not find it.",
    }


def _told(conversation: Conversation, key: str) -> dict[str, dict[str, Any]]:
    """The lines of the brief that are about this, by name."""
    above = conversation.task.partition("\nRequest:\n")[0]
    lines = (json.loads(line) for line in above.splitlines() if line.startswith(f'{{"{key}":'))
    return {line[key]: line for line in lines}
