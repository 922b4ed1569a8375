"""Outcomes of the newest model calls of a process, for `handoff doctor`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from handoff_queue.shared.types.errors import ModelBusy, ModelError
from handoff_queue.shared.types.model import Model, ModelCall, ModelReply, Pulse
from handoff_queue.shared.types.presence import MOST_MODELS, MOST_WORDS, ModelCalls

MOST_NAME = 200
"""Characters of a model's name that are kept."""


@dataclass(slots=True)
class ModelCallLog:
    """Outcomes of the newest calls of each model. It keeps the `MOST_MODELS` models that were
    called last. All threads of a process share it.
    """

    now: Callable[[], float] = time.time
    """Function that returns Unix time in seconds."""
    _by_model: dict[str, ModelCalls] = field(default_factory=dict)
    """Outcomes by the name of the model. The model of the newest call comes last."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def newest(self) -> tuple[ModelCalls, ...]:
        """Return the outcomes of each model. The model of the newest call comes last."""
        with self._lock:
            return tuple(self._by_model.values())

    def succeeded(self, model: str) -> None:
        """Record that the server answered a call."""
        self._store(ModelCalls(model=model[:MOST_NAME], succeeded_at=self.now()))

    def failed(self, model: str, error: ModelError) -> None:
        """Record that a call gave no reply."""
        now = self.now()
        with self._lock:
            before = self._by_model.get(model[:MOST_NAME], ModelCalls(model=model[:MOST_NAME]))
        self._store(
            before.model_copy(
                update={
                    "failures": before.failures + 1,
                    "error": " ".join(str(error).split())[:MOST_WORDS],
                    "is_busy": isinstance(error, ModelBusy),
                    "failing_since": before.failing_since or now,
                    "failed_at": now,
                }
            )
        )

    def _store(self, calls: ModelCalls) -> None:
        with self._lock:
            self._by_model.pop(calls.model, None)
            self._by_model[calls.model] = calls
            while len(self._by_model) > MOST_MODELS:
                del self._by_model[next(iter(self._by_model))]


@dataclass(frozen=True, slots=True)
class RecordedModel:
    """A model that records the outcome of each call in a log."""

    model: Model
    log: ModelCallLog

    def reply(self, call: ModelCall, on_pulse: Callable[[Pulse], None]) -> ModelReply:
        """Make the call, and record its outcome. An error of `on_pulse` is not recorded,
        because it does not come from the server.

        Raises:
            ModelError: raised by the model.
        """
        try:
            reply = self.model.reply(call, on_pulse)
        except ModelError as error:
            self.log.failed(call.model, error)
            raise
        self.log.succeeded(call.model)
        return reply
