"""A model that repeats a secret in every text. The request chooses the course of the job.

`plan talk` leads to an answer with gaps, after a second round and a synthesis. `plan fail` leads
to no answer. In `plan mute`, the assessor and the synthesizer refuse to answer.
"""

from __future__ import annotations

import re
import threading
from typing import Any

from handoff_queue.testing import (
    Json,
    Reply,
    answer_properties,
    first_message_text,
    json_reply,
    text_reply,
    tool_call_reply,
)

SECRET = "canary-of-a-model-9920"
STEPS = {
    "talk": ("look", "ask", "give", "fail", "part"),
    "fail": ("fail",),
    "mute": ("look", "part"),
}


class SecretRepeatingModel:
    """Model with the secret. The synthesizer of `talk` ends its answer after `release` is set."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def __call__(self, request: Json) -> Reply:
        message = first_message_text(request)
        properties = answer_properties(request)
        plan_name = (re.search(r"Request:\s+plan (\w+)", message) or ["", ""])[1]
        if "steps" in properties:
            return (
                json_reply(_plan(plan_name))
                if plan_name != "fail"
                else text_reply(f"I won't: {SECRET}.", stop_reason="refusal")
            )
        if "resolutions" in properties:
            # The answer names a step that was given up without a model's words.
            answers = [("ask", "answer"), ("give", "give_up")]
            return json_reply(
                {
                    "resolutions": [
                        {"step": step, "action": action, "answer": SECRET}
                        for step, action in answers
                    ]
                }
            )
        if "verdict" in properties:
            return (
                json_reply(_REVISE)
                if plan_name == "talk"
                else text_reply(f"I won't: {SECRET}.", stop_reason="refusal")
            )
        if "rulings" in properties:
            return json_reply({"rulings": [{"point": "look", "why": SECRET, "right": "undecided"}]})
        if "Write one answer" in message:
            draft = _envelope("partial", output=f"All in all, {SECRET}. " * 20)
            return (
                json_reply(draft, stall=self.release)
                if plan_name == "talk"
                else text_reply(f"I won't: {SECRET}.", stop_reason="refusal")
            )
        return self._work(message, len(request["messages"]) > 1)

    def _work(self, message: str, has_looked: bool) -> Reply:
        step = (re.search(r"<task>Do (\w+)\.", message) or ["", "fail"])[1]
        is_again = "<feedback" in message
        match step:
            case "look" if not has_looked:
                return tool_call_reply(
                    (SECRET, {}), ("search_documents", {"query": "password"}), text=SECRET
                )
            case "ask" | "give" if not is_again:
                return json_reply(_envelope("needs_input", output=None))
            case "part":
                return json_reply(_envelope("partial"))
            case "look" | "ask" if not (step == "look" and is_again):
                return json_reply(_envelope("ok"))
            case _:
                return json_reply(_envelope("failed", output=None))


def _plan(name: str) -> Json:
    """The secret follows the first words of each task, because the first words are its title."""
    task = (
        "Do {}."
        + " It is a long way to the end of this task, and what stands there is nobody's affair:"
        + f" {SECRET}"
    )
    steps = [
        {
            "id": step,
            "specialist": "generalist",
            "task": task.format(step),
            "depends_on": [],
            "fallback": SECRET,
        }
        for step in STEPS[name]
    ]
    return {"steps": steps, "synthesis": "reconcile", "why": SECRET}


def _envelope(status: str, output: Any = f"So it is: {SECRET} [c1].") -> Json:
    claims = (
        [{"id": "c1", "text": SECRET, "sources": [{"source": "notes.md", "quote": SECRET}]}]
        if output
        else []
    )
    needs, problem = (
        (SECRET if status == "needs_input" else None),
        (SECRET if status in ("partial", "failed") else None),
    )
    return {
        "status": status,
        "output": output,
        "claims": claims,
        "confidence": 0.5,
        "needs": needs,
        "problem": problem,
    }


_REVISE: Json = {
    "verdict": "REVISE",
    "revisions": [{"step": "look", "problem": f"Not good enough: {SECRET}."}],
    "open_points": [f"Nobody knows {SECRET}."],
}
