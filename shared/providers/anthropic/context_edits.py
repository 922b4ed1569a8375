"""The ways to shorten requests that a server has for each model, by its Models API."""

from __future__ import annotations

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


class OfferedEdits:
    """The edits that a server offers. Each model is asked about once. All threads of a process
    share it.
    """

    def __init__(self, client: anthropic.AsyncAnthropic, loop: EventLoop) -> None:
        self._client = client
        self._loop = loop
        self._known: dict[str, frozenset[ContextEdit]] = {}

    def of(self, model: str) -> frozenset[ContextEdit]:
        """Return the edits for a model. There are none if the server does not answer, or has no
        Models API, as most gateways.
        """
        if model in self._known:
            return self._known[model]
        facts: Any = {}
        try:
            facts = self._loop.run(self._facts(model)).result()
        except anthropic.APIStatusError as error:
            if error.status_code not in (400, 404, 405, 501):
                return NO_EDITS  # a later handoff asks again
        except anthropic.AnthropicError:
            return NO_EDITS
        self._known[model] = edits_in(facts)
        return self._known[model]

    async def _facts(self, model: str) -> Any:
        """Return the server's facts about a model.

        Raises:
            AnthropicError: the server gives none.
        """
        timeout = anthropic.Timeout(WITHIN_S, connect=WITHIN_S)
        headers = beta_header(self._client, [COMPACTION_BETA])
        path = f"/v1/models/{quote(model, safe='')}"
        return await self._client.get(
            path, cast_to=object, options={"timeout": timeout, "headers": headers}
        )
