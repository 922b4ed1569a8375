"""The ways to shorten requests that a server has for each model, by its Models API."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any
from urllib.parse import quote

import anthropic

from handoff_queue.shared.providers.anthropic.event_loop import EventLoop
from handoff_queue.shared.providers.anthropic.streamed_call import beta_header
from handoff_queue.shared.types.context_edits import (
    COMPACTION_BETA,
    NO_EDITS,
    ContextEdit,
    edits_in,
)

WITHIN_S = 5.0
"""Longest time of one request about a model, in seconds."""
AGAIN_AFTER_S = 300.0
"""Seconds from a request without an answer to the next request about the same model."""
_HAS_NO_MODELS = (400, 404, 405, 501)
"""HTTP status of servers without a Models API."""
_NO_ANSWER = (anthropic.AnthropicError, OSError, TypeError, RuntimeError)
"""Errors of a request without an answer, with those of the SDK about credentials that are missing
or cannot be read, and about a client that is closed. The call of the model says the remedy.
"""


class OfferedEdits:
    """The edits that a server offers. The server is asked about each model once, or again after
    `AGAIN_AFTER_S` without an answer. All threads of a process share it.
    """

    def __init__(self, client: anthropic.AsyncAnthropic, loop: EventLoop) -> None:
        self._client = client
        self._loop = loop
        self._known: dict[str, frozenset[ContextEdit]] = {}
        self._asking = threading.Lock()
        self._failed_at: dict[str, float] = {}
        """Time of the last request without an answer, by model, of the monotonic clock."""

    def of(self, model: str) -> frozenset[ContextEdit]:
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
            facts = self._loop.run(self._facts(model)).result()
        except _NO_ANSWER:
            self._failed_at[model] = time.monotonic()
            return NO_EDITS
        self._known[model] = edits_in(facts)
        return self._known[model]

    async def _facts(self, model: str) -> Any:
        """Return the server's facts about a model, or None if the server has none.

        Raises:
            AnthropicError, OSError, TypeError, RuntimeError: see `_NO_ANSWER`.
        """
        headers = beta_header(self._client, [COMPACTION_BETA])
        path = f"/v1/models/{quote(model, safe='')}"
        options: anthropic.RequestOptions = {"timeout": WITHIN_S, "headers": headers}
        try:
            async with asyncio.timeout(WITHIN_S):
                return await self._client.get(path, cast_to=object, options=options)
        except ValueError:  # the answer is not JSON
            return None
        except anthropic.APIStatusError as error:
            if error.status_code in _HAS_NO_MODELS:
                return None
            raise
