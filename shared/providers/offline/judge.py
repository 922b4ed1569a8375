"""The judge's part: of claims that contradict each other, the one with more sources stands;
where none has, it stays disputed.
"""

from __future__ import annotations

import json
from typing import Any

from handoff_queue.shared.providers.offline.conversation import Conversation


def judge(conversation: Conversation) -> dict[str, Any]:
    """One settlement for each conflict of the brief, which has one a line."""
    lines = [line for line in conversation.task.splitlines() if line.startswith("{")]
    return {"settlements": [_settled(json.loads(line)) for line in lines]}


def rule(conversation: Conversation) -> dict[str, Any]:
    """Who is right about a text takes a reader: every point of the brief, one a line, is left
    undecided.
    """
    points = [
        json.loads(line)["point"] for line in conversation.task.splitlines() if line.startswith("{")
    ]
    return {
        "rulings": [
            {"point": point, "why": "No model was asked.", "right": "undecided"} for point in points
        ]
    }


def _settled(conflict: dict[str, Any]) -> dict[str, Any]:
    sources = {
        claim["id"]: len({one["source"] for one in claim["evidence"]})
        for claim in conflict["claims"]
    }
    most = max(sources.values())
    best = [claim for claim, count in sources.items() if count == most]
    is_clear = len(best) == 1
    why = (
        "More sources say so."
        if is_clear
        else "None of the claims has more sources than the others."
    )
    return {"conflict": conflict["conflict"], "why": why, "stands": best if is_clear else []}
