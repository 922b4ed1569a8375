"""A model without HTTP, whose script gives the answer and the duration of each call.

It stays next to `MessagesServer`: these benchmarks measure the processor time of the queue
alone, without the time of an HTTP call.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from handoff_queue.shared.types.model import ModelCall, ModelReply, Pulse, pulse_every_s
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.shared.types.usage import Usage

Script = Callable[[ModelCall], tuple[float, dict[str, Any]]]
"""A function that returns the seconds and the JSON answer of a call."""
_WAITING: set[int] = set()
"""Threads of this process that wait for a reply."""


class TimedModel:
    """A model that replies from a script."""

    def __init__(self, script: Script, synthesis: Synthesis = Synthesis.MERGE) -> None:
        self.synthesis = synthesis
        self._script = script

    def reply(self, call: ModelCall, on_pulse: Callable[[Pulse], None]) -> ModelReply:
        seconds, answer = self._script(call)
        _wait(seconds, on_pulse)
        return _reply_with(answer)

    async def reply_async(self, call: ModelCall) -> ModelReply:
        """Reply in an event loop, without pulses."""
        seconds, answer = self._script(call)
        if seconds:
            await asyncio.sleep(seconds)
        return _reply_with(answer)


def _reply_with(answer: dict[str, Any]) -> ModelReply:
    blocks = ({"type": "text", "text": json.dumps(answer)},)
    return ModelReply(blocks, "end_turn", Usage(input_tokens=500, output_tokens=100), "timed")


def _wait(seconds: float, on_pulse: Callable[[Pulse], None]) -> None:
    """Wait as for a real model."""
    until, thread = time.monotonic() + seconds, threading.get_ident()
    _WAITING.add(thread)
    try:
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, pulse_every_s(len(_WAITING))))
            on_pulse(Pulse())
    finally:
        _WAITING.discard(thread)
