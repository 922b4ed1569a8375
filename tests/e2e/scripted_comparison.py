"""A scripted model that answers correctly, wrongly, as one agent or as a team, and a grader that a
test can bias.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from dataclasses import dataclass, field

from handoff_queue.testing import Json, Reply, answer_properties, first_message_text, json_reply

SINGLE, TEAM = "One agent says so.", "A team says so, at length."


@dataclass(slots=True)
class ComparisonModel:
    """Model that does the work, plans, reviews and grades.

    The planner makes one step for each request. A request that contains `wrong` gets a wrong
    answer.
    """

    grader: str = "team"
    """Preference of the grader: `team`, or the name of the answer that it always prefers."""
    calls: Counter[str] = field(default_factory=Counter)
    """Number of calls by role: `work`, `planner`, `assessor`, `grader`."""
    briefs: list[str] = field(default_factory=list)
    """Briefs that the grader got."""
    models: set[tuple[str, str]] = field(default_factory=set)
    """(role, requested model)."""
    release: threading.Event = field(default_factory=threading.Event)
    """Work on a request that contains `slow` waits for this event."""

    def __call__(self, request: Json) -> Reply:
        message, properties = first_message_text(request), answer_properties(request)
        role = "work"
        if "steps" in properties:
            role = "planner"
        elif "verdict" in properties:
            role = "assessor"
        elif '{"criterion":' in message:
            role = "grader"
        self.calls[role] += 1
        self.models.add((role, request["model"]))
        match role:
            case "planner":
                request_text = message.rpartition("Request:\n")[2].partition("</task>")[0]
                step = {
                    "id": "do",
                    "specialist": "generalist",
                    "task": f"As a team: {request_text}",
                    "depends_on": [],
                    "fallback": "-",
                }
                return json_reply({"steps": [step], "synthesis": "merge", "why": ""})
            case "assessor":
                return json_reply(
                    {"scores": {}, "verdict": "PASS", "revisions": [], "open_points": []}
                )
            case "grader":
                self.briefs.append(message)
                return json_reply(_envelope(self._graded(message)))
            case _:
                return self._work(message)

    def _work(self, message: str) -> Reply:
        task = (re.search(r"<task>(.*?)</task>", message, re.DOTALL) or ["", ""])[1]
        output = TEAM if task.startswith("As a team") else SINGLE
        output = "I could not say." if "wrong" in task else output
        return json_reply(_envelope(output), stall=None if "slow" not in task else self.release)

    def _graded(self, message: str) -> Json:
        candidates = [
            json.loads(line) for line in message.splitlines() if line.startswith('{"answer":')
        ]
        names = [candidate["answer"] for candidate in candidates]
        if names == ["the answer"]:
            return {
                "scores": [
                    {
                        "criterion": "accuracy",
                        "why": "So it is.",
                        "score": 2 if "could not" in candidates[0]["text"] else 4,
                    }
                ]
            }
        best = (
            next(
                (
                    candidate["answer"]
                    for candidate in candidates
                    if candidate["text"].startswith(TEAM)
                ),
                "neither",
            )
            if self.grader == "team"
            else self.grader
        )
        scores = [
            {
                "answer": name,
                "criterion": "accuracy",
                "why": "So.",
                "score": 5 if name == best else 3,
            }
            for name in names
        ]
        return {"scores": scores, "why": "It says more.", "better": best}


def _envelope(output: object) -> Json:
    return {
        "status": "ok",
        "output": output,
        "claims": [],
        "confidence": 0.9,
        "needs": None,
        "problem": None,
    }
