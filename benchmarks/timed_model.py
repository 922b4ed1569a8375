"""A model without HTTP, whose script gives the answer and the duration of each call. The answers
for the jobs of the table come at once, or after a fixed time.

It stays next to `MessagesServer`: these benchmarks measure the processor time of the queue
alone, without the time of an HTTP call.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.model import (
    CallProgress,
    ModelCall,
    ModelReply,
    SystemPrompt,
    compute_progress_interval_s,
)
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.shared.types.usage import Usage


class Way(StrEnum):
    """Ways to make a call and to receive its reply."""

    FUNCTION = "function"
    """A function that waits, in the calling process: the rest of the time is the cost of the
    queue.
    """
    STREAMED = "streamed"
    """The provider's SDK over HTTP, with a server on loopback that streams the reply."""
    WHOLE = "whole"
    """Like `streamed`, but peers ask for the reply in one piece, which is cheaper and shows no
    progress. This project streams in any case.
    """


@dataclass(frozen=True, slots=True, order=True)
class TimedCall:
    """`1`, `1:streamed` or `1:whole` on the command line."""

    seconds: float
    way: Way = Way.FUNCTION

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the argument.

        Raises:
            argparse.ArgumentTypeError: the text is not a call.
        """
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(?::(\w+))?", text)
        if (
            not match
            or (match[2] and match[2] not in list(Way))
            or (match[2] and not float(match[1]))
        ):
            raise argparse.ArgumentTypeError(f"{text!r} is not like 0, 1, 1:streamed or 1:whole")
        return cls(float(match[1]), Way(match[2] or Way.FUNCTION))

    @property
    def is_over_http(self) -> bool:
        return self.way is not Way.FUNCTION

    def __str__(self) -> str:
        return f"{self.seconds:g} s" + (f" {self.way}" if self.is_over_http else "")


Script = Callable[[ModelCall], tuple[float, dict[str, Any]]]
"""A function that returns the seconds and the JSON answer of a call."""
_WAITING: set[int] = set()
"""Threads of this process that wait for a reply."""


class TimedModel:
    """A model that replies from a script."""

    def __init__(self, script: Script, synthesis: Synthesis = Synthesis.MERGE) -> None:
        self.synthesis = synthesis
        self._script = script

    def reply(self, call: ModelCall, on_progress: Callable[[CallProgress], None]) -> ModelReply:
        seconds, answer = self._script(call)
        _wait(seconds, on_progress)
        return _reply_with(answer)

    async def reply_async(self, call: ModelCall) -> ModelReply:
        """Reply in an event loop, without reports."""
        seconds, answer = self._script(call)
        if seconds:
            await asyncio.sleep(seconds)
        return _reply_with(answer)


def _reply_with(answer: dict[str, Any]) -> ModelReply:
    blocks = ({"type": "text", "text": json.dumps(answer)},)
    return ModelReply(blocks, "end_turn", Usage(input_tokens=500, output_tokens=100), "timed")


def _wait(seconds: float, on_progress: Callable[[CallProgress], None]) -> None:
    """Wait as for a real model."""
    until, thread = time.monotonic() + seconds, threading.get_ident()
    _WAITING.add(thread)
    try:
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, compute_progress_interval_s(len(_WAITING))))
            on_progress(CallProgress())
    finally:
        _WAITING.discard(thread)


DELAY = "BENCH_MODEL_S"
"""Environment: seconds that each call takes."""
SYNTHESIS = "BENCH_SYNTHESIS"
"""Environment: method of the synthesis: `merge` by code (the default), or `reconcile` by a call."""
STEPS = 3


def call_for(schema: dict[str, Any]) -> ModelCall:
    """Return a call with this schema and default values."""
    return ModelCall(
        model="instant",
        system=SystemPrompt(""),
        messages=(),
        max_output_tokens=100,
        output_schema={"properties": schema},
    )


def answer_to(schema: dict[str, Any], synthesis: Synthesis = Synthesis.MERGE) -> dict[str, Any]:
    """Return the answer that a schema asks for: a plan, a verdict or a result."""
    properties = schema.get("properties", {})
    if "steps" in properties:
        steps: list[dict[str, Any]] = []
        for n in range(STEPS):
            step = {
                "id": f"part_{n}",
                "specialist": "researcher",
                "task": f"Part {n}",
                "depends_on": [],
                "fallback": "-",
            }
            steps.append(step)
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
