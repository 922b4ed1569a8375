"""Answers of a model in a job with one step: the plan, the result and the verdict."""

from __future__ import annotations

from typing import Any

PLAN: dict[str, Any] = {
    "steps": [
        {
            "id": "look",
            "specialist": "generalist",
            "task": "Look.",
            "depends_on": [],
            "fallback": "-",
        }
    ],
    "synthesis": "merge",
    "why": "",
}
ANSWER: dict[str, Any] = {
    "status": "ok",
    "output": "It is so.",
    "claims": [],
    "confidence": 0.9,
    "needs": None,
    "problem": None,
}
PASS: dict[str, Any] = {"verdict": "PASS", "revisions": [], "open_points": []}
