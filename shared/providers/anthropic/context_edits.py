"""The ways to shorten requests that a server has for each model, by its Models API."""

from __future__ import annotations

import threading
import time

from handoff_queue.shared.providers.model_facts import ModelServer, NoAnswer
from handoff_queue.shared.types.context_edits import (
    COMPACTION_BETA,
    NO_EDITS,
    ContextEdit,
    read_edits,
)

AGAIN_AFTER_S = 300.0
"""Seconds from a request without an answer to the next request about the same model."""


class OfferedEdits:
    """The edits that a server offers. The server is asked about each model once, or again after
    `AGAIN_AFTER_S` without an answer. All threads of a process share it.
    """

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._known: dict[str, frozenset[ContextEdit]] = {}
        self._asking = threading.Lock()
        self._failed_at: dict[str, float] = {}
        """Time of the last request without an answer, by model, of the monotonic clock."""

    def find(self, model: str) -> frozenset[ContextEdit]:
        """Return the edits for a model. There are none if the server does not answer, or has no
        Models API, as most gateways.
        """
        if model in self._known:
            return self._known[model]
        with self._asking:  # another thread may ask about this model now
            return self._ask(model)

    def _ask(self, model: str) -> frozenset[ContextEdit]:
        if model in self._known:
            return self._known[model]
        failed_at = self._failed_at.get(model)
        if failed_at is not None and time.monotonic() - failed_at < AGAIN_AFTER_S:
            return NO_EDITS
        try:
            facts = self._server.ask(model, [COMPACTION_BETA])
        except NoAnswer:
            self._failed_at[model] = time.monotonic()
            return NO_EDITS
        self._known[model] = read_edits(facts)
        return self._known[model]
