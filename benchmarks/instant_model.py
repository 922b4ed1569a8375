"""A model that answers at once, or after a fixed time: the rest of the time is the cost of the
queue.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.model import ModelCall, ModelReply, Pulse, pulse_every_s
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.shared.types.usage import Usage

DELAY = "BENCH_MODEL_S"
"""Environment: seconds that each call takes."""
SYNTHESIS = "BENCH_SYNTHESIS"
"""Environment: how the parts become an answer: `merge`, by code, where nothing is said;
`reconcile`, by a call.
"""
STEPS = 3
_WAITING: set[int] = set()
"""The threads of this process that do."""


def wait(seconds: float, on_pulse: Callable[[Pulse], None]) -> None:
    """Wait as for a real model."""
    until, thread = time.monotonic() + seconds, threading.get_ident()
    _WAITING.add(thread)
    try:
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, pulse_every_s(len(_WAITING))))
            on_pulse(Pulse())
    finally:
        _WAITING.discard(thread)


class InstantModel:
    """Plans three parallel steps, does them, passes the review."""

    def __init__(self, delay_s: float, synthesis: Synthesis) -> None:
        self.synthesis = synthesis
        self._delay_s = delay_s

    def reply(self, call: ModelCall, on_pulse: Callable[[Pulse], None]) -> ModelReply:
        wait(self._delay_s, on_pulse)
        return self._answer(call)

    async def reply_async(self, call: ModelCall) -> ModelReply:
        """Reply in an event loop, without pulses."""
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        return self._answer(call)

    def _answer(self, call: ModelCall) -> ModelReply:
        text = json.dumps(answer_to(call.output_schema or {}, self.synthesis))
        usage = Usage(input_tokens=500, output_tokens=100)
        return ModelReply(({"type": "text", "text": text},), "end_turn", usage, "instant")


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


def make_model(_settings: Settings) -> InstantModel:
    return InstantModel(
        float(os.environ.get(DELAY, "0")), Synthesis(os.environ.get(SYNTHESIS, Synthesis.MERGE))
    )
