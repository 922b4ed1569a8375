"""Attribution of requests to model calls: by the name of the job, which is part of every text,
and by the content of the request.
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
"""Placeholder for the id of the planner's handoff that answers questions of steps. Its number
depends on the job (`expected_handoffs.resolver_of`).
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
class CallAttribution:
    """Attributes requests to calls, and remembers the requests to the replanner and the
    fact-checker.
    """

    looks: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Texts of the requests, each once, in the order of arrival, by role and job's name. A
    repeated call has the same text, and the next call has another one.
    """

    def key_of(self, request: Json) -> CallKey:
        """Return the call that this request makes or repeats."""
        text = first_message_text(request)
        turn = 1 + sum(message["role"] == "assistant" for message in request["messages"])
        attempt = 1 + text.count("<feedback author=")
        if step := _STEP.search(text):
            return CallKey(step[2], f"{step[1]}.{attempt}", turn)
        if whole := _WHOLE.search(text):  # one step that does the whole request
            above, _, step_id = whole[1].rpartition("-")
            replaces_team = _STANDS_IN in text  # the child job of this step has failed
            if replaces_team:
                return CallKey(above, f"{step_id}.{attempt}", turn)
            return CallKey(whole[1], f"answer.{attempt}", turn)
        if check := _CHECK.search(text):
            number = self._number_of(FACT_GATE, check[1], text)
            return CallKey(check[1], f"{FACT_GATE}.{number}", turn)
        role = _role_of(request)
        if role == "judge":
            return CallKey("".join(_CLAIMS.findall(text)[0]), JUDGED, turn)
        return self._key_of_role(role, request, turn)

    def _key_of_role(self, role: str, request: Json, turn: int) -> CallKey:
        text, number = first_message_text(request), 1
        name = _REQUEST.findall(text)[-1]
        if role == "replanner":
            number = self._number_of(role, name, text)
        elif role == "planner":
            number += len(_REJECTED.findall(text))
        elif again := _ROUND.search(text):
            number = int(again[1])
        if "resolutions" in answer_properties(request):
            return CallKey(name, RESOLVER, turn)
        return CallKey(name, f"{role}.{number}", turn)

    def _number_of(self, role: str, name: str, text: str) -> int:
        """Return the number of this request to the role for this job, from 1."""
        texts = self.looks.setdefault((role, name), [])
        if text not in texts:
            texts.append(text)
        return 1 + texts.index(text)


def _role_of(request: Json) -> str:
    """Return the role of the supervisor that makes this request."""
    properties = answer_properties(request)
    for field_name, role in ASKED_OF.items():
        if field_name in properties:
            return role
    return "synthesizer"
