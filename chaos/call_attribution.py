"""Attribution of requests to calls, by the name of the job, which is part of every text, and by the
content of the request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from handoff_queue.chaos.expected_handoffs import JUDGED
from handoff_queue.chaos.plan import CallKey
from handoff_queue.shared.types.names import FACT_GATE
from handoff_queue.testing import Json, answer_properties, first_message_text

ASKED_OF = {
    "route": "router",
    "steps": "planner",
    "resolutions": "planner",
    "decision": "replanner",
    "settlements": "judge",
    "rulings": "judge",
    "verdict": "assessor",
}
"""Field that only one role's answer has -> the role. The synthesizer answers like a specialist."""
RESOLVER = "planner.needs"
"""The planner's handoff that says what steps need; its number depends on whether the plan was
the planner's.
"""
_STEP = re.compile(r"^<task>Do (\w+) of (?:chaos )?([\w-]+)\.")
_WHOLE = re.compile(r"^<task>chaos ([\w-]+)</task>")
_REQUEST = re.compile(r"Request:\s+chaos ([\w-]+)")
_CHECK = re.compile(r'^<task>Check the facts of an answer .*"chaos ([\w-]+)"</task>', re.S)
_CLAIMS = re.compile(r'"subject": "tower ([\w-]+)"|"reviewer": "Say it of ([\w-]+)\."')
_REJECTED = re.compile(r'^\{"note": ', re.M)
_STANDS_IN = '<feedback author="supervisor">'
_ROUND = re.compile(r"Judge the results of round (\d+)")


@dataclass(slots=True)
class Asked:
    """Says of each request whose it is."""

    looks: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Requests to the replanner or the fact-checker by role and job's name, each once, in order.
    Each request has other results.
    """

    def key_of(self, request: Json) -> CallKey:
        text = first_message_text(request)
        turn = 1 + sum(message["role"] == "assistant" for message in request["messages"])
        attempt = 1 + text.count("<feedback author=")
        if step := _STEP.search(text):
            return CallKey(step[2], f"{step[1]}.{attempt}", turn)
        if whole := _WHOLE.search(text):  # one step that is all of a request
            above, _, step_id = whole[1].rpartition("-")
            stands_in = _STANDS_IN in text  # for a team that has come to nothing
            if stands_in:
                return CallKey(above, f"{step_id}.{attempt}", turn)
            return CallKey(whole[1], f"answer.{attempt}", turn)
        if check := _CHECK.search(text):
            return CallKey(check[1], f"{FACT_GATE}.{self._look(FACT_GATE, check[1], text)}", turn)
        role = next(
            (role for mark, role in ASKED_OF.items() if mark in answer_properties(request)),
            "synthesizer",
        )
        if role == "judge":
            return CallKey("".join(_CLAIMS.findall(text)[0]), JUDGED, turn)
        return self._of_a_role(role, request, turn)

    def _of_a_role(self, role: str, request: Json, turn: int) -> CallKey:
        text, number = first_message_text(request), 1
        name = _REQUEST.findall(text)[-1]
        if role == "replanner":
            number = self._look(role, name, text)
        elif role == "planner":
            number += len(_REJECTED.findall(text))
        elif again := _ROUND.search(text):
            number = int(again[1])
        return CallKey(
            name,
            RESOLVER if "resolutions" in answer_properties(request) else f"{role}.{number}",
            turn,
        )

    def _look(self, who: str, name: str, text: str) -> int:
        """Return the number of this request for this job, from 1."""
        looks = self.looks.setdefault((who, name), [])
        if text not in looks:
            looks.append(text)
        return 1 + looks.index(text)
