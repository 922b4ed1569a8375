"""Answers of the model for the jobs of the table: at once, or after a fixed time."""

from __future__ import annotations

import os
from typing import Any

from benchmarks.timed_model import TimedModel
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.model import ModelCall
from handoff_queue.shared.types.plan import Synthesis

DELAY = "BENCH_MODEL_S"
"""Environment: seconds that each call takes."""
SYNTHESIS = "BENCH_SYNTHESIS"
"""Environment: method of the synthesis: `merge` by code (the default), or `reconcile` by a call."""
STEPS = 3


def call_for(schema: dict[str, Any]) -> ModelCall:
    """Return a call with this schema and default values."""
    return ModelCall(
        model="instant",
        system="",
        messages=(),
        max_output_tokens=100,
        output_schema={"properties": schema},
    )


def answer_to(schema: dict[str, Any], synthesis: Synthesis = Synthesis.MERGE) -> dict[str, Any]:
    """Return the answer that a schema asks for: a plan, a verdict or a result."""
    properties = schema.get("properties", {})
    if "steps" in properties:
        steps = [
            {
                "id": f"part_{n}",
                "specialist": "researcher",
                "task": f"Part {n}",
                "depends_on": [],
                "fallback": "-",
            }
            for n in range(STEPS)
        ]
        return {"steps": steps, "synthesis": synthesis.value, "why": "three parts"}
    if "verdict" in properties:
        return {"verdict": "PASS", "revisions": [], "open_points": []}
    return {
        "status": "ok",
        "output": "## A part\n\nIt says what it says.",
        "claims": [],
        "confidence": 0.9,
        "needs": None,
        "problem": None,
    }


def make_model(_settings: Settings) -> TimedModel:
    """Return a model that plans three parallel steps, does them and passes the review."""
    delay_s = float(os.environ.get(DELAY, "0"))
    synthesis = Synthesis(os.environ.get(SYNTHESIS, Synthesis.MERGE))
    return TimedModel(
        lambda call: (delay_s, answer_to(call.output_schema or {}, synthesis)), synthesis
    )
