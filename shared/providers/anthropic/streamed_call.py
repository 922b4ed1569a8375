"""One streamed call of the Messages API. The event loop reads the reply, and the caller's thread
waits. A stream that stalls ends with an error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from queue import Empty, SimpleQueue
from typing import Any

import anthropic
from pydantic_core import to_json

from handoff_queue.shared.providers.anthropic.errors import (
    convert_error_event,
    get_settings,
    is_error,
    translate_errors,
)
from handoff_queue.shared.providers.anthropic.event_loop import MAX_POLL_DELAY_S
from handoff_queue.shared.providers.anthropic.http_client import watch_request_progress
from handoff_queue.shared.providers.anthropic.rate_limit_headers import parse_rate_limits
from handoff_queue.shared.providers.anthropic.request import is_cached_for_1h, list_betas
from handoff_queue.shared.providers.anthropic.stream import PartialReply, iterate_events
from handoff_queue.shared.types.context_edits import build_beta_header
from handoff_queue.shared.types.errors import (
    HandoffError,
    ModelUnreachable,
)
from handoff_queue.shared.types.json_values import STRICT
from handoff_queue.shared.types.model import CallProgress, ModelCall, ModelReply

CONNECT_TIMEOUT_S = 10.0
REST_WITHIN_S = 2 * MAX_POLL_DELAY_S
"""Longest time in seconds between a complete reply and the end of its body. Only after its end
the connection can serve another call. Usually the end has arrived already.
"""
_EVENTS_WITH_USAGE = ("message_start", "message_delta")
"""Events that report usage."""

Client = (
    anthropic.AsyncAnthropic
    | anthropic.AsyncAnthropicBedrock
    | anthropic.AsyncAnthropicVertex
    | anthropic.AsyncAnthropicFoundry
)


class StreamedCall:
    """A request and its answer. The event loop reads the answer, and the caller's thread waits."""

    def __init__(self, call: ModelCall, request: dict[str, Any]) -> None:
        self._timeout = anthropic.Timeout(
            call.timeout_s, connect=min(CONNECT_TIMEOUT_S, call.timeout_s)
        )
        self._progress_s = call.progress_s
        self._request = request
        self._partial_reply: PartialReply | None = None
        self._reply: ModelReply | None = None
        self._end: ModelReply | BaseException | None = None
        self._awake: SimpleQueue[None] = SimpleQueue()
        """Gets an item when the waiting thread must check the state of the call."""

    def wait(
        self, on_progress: Callable[[CallProgress], None], every_s: Callable[[], float]
    ) -> ModelReply:
        """Wait for the complete reply and return it. Until then, report the progress.

        Args:
            on_progress: receives each report. See `shared.types.model.Model.reply`.
            every_s: returns the seconds between two reports while nothing arrives.

        Raises:
            ModelError: there is no reply.
        """
        progress = CallProgress()
        reported_events = -1  # events of the reply that the last report has
        came_at = time.monotonic()
        while True:
            with suppress(Empty):
                self._awake.get(timeout=every_s())
            end = self._end
            partial_reply = self._partial_reply
            if isinstance(end, ModelReply):
                return end
            is_new = partial_reply is not None and partial_reply.event_count != reported_events
            if partial_reply is not None and is_new:
                reported_events = partial_reply.event_count
                progress = partial_reply.get_progress()
                came_at = time.monotonic()
            if is_new or end is None:
                try:
                    on_progress(progress)
                except HandoffError:
                    if self._reply is not None:
                        return self._reply  # it is complete and paid
                    raise
            if end is not None:
                raise end
            if time.monotonic() - came_at > self._progress_s:
                raise ModelUnreachable(
                    f"the model's server has made no progress for {self._progress_s:.0f} s"
                )

    def give_up(self) -> None:
        """End the call with the reply, if it is complete, or else with an error."""
        self._end_with(self._reply or ModelUnreachable("the process ends"))

    def _end_with(self, end: ModelReply | BaseException) -> None:
        self._end = end
        self._awake.put(None)

    async def read(self, client: Client) -> None:
        """Make the request, and pass the reply or the error to the waiting thread. If this is
        cancelled, it closes the connection.
        """
        request_progress = watch_request_progress()
        try:
            with translate_errors(request_progress, get_settings(client)):
                stream = await _post(client, self._request, self._timeout)
                request_progress.has_begun = True
                try:
                    self._reply = await self._gather(stream)
                finally:
                    await stream.close()
            self._end_with(self._reply)
        except asyncio.CancelledError:
            self.give_up()  # the caller has stopped, or the process ends
            raise
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it: a defect must not end as silence
            self._end_with(error)

    async def _gather(self, stream: Any) -> ModelReply:
        """Read the whole reply, as a stream of events or as one JSON object.

        Raises:
            ModelError: the server sent something else, or the reply is not complete.
        """
        response = stream.response
        partial_reply = PartialReply(
            self._request["model"],
            parse_rate_limits(response.headers),
            is_cached_for_1h=is_cached_for_1h(self._request),
        )
        self._partial_reply = partial_reply
        self._awake.put(None)
        request_id = response.headers.get("request-id")
        kind = response.headers.get("content-type", "")
        if "html" in kind:
            raise ModelUnreachable(
                "the server answered with a web page instead of a model's answer: check"
                " ANTHROPIC_BASE_URL"
            )
        if "json" in kind:
            await response.aread()
            message = STRICT.decode(response.text)
            if is_error(message) or (isinstance(message, dict) and "content" not in message):
                raise convert_error_event(response.text)
            partial_reply.take_whole(message)
            return partial_reply.reply(request_id)
        async with aclosing(iterate_events(stream)) as events:
            await self._take_all(events, partial_reply)
            self._reply = partial_reply.reply(request_id)
            with suppress(Exception):  # the reply is complete, so later errors do not matter
                async with asyncio.timeout(REST_WITHIN_S):
                    async for _ in events:
                        pass
        return self._reply

    async def _take_all(
        self, events: AsyncIterator[dict[str, Any]], partial_reply: PartialReply
    ) -> None:
        """Take all events up to the end of the reply. Only an event with usage wakes the
        waiting thread. The thread reads all other events at its next report, because a wake-up
        costs as much as an event.
        """
        async for event in events:
            partial_reply.take(event)
            if partial_reply.is_over:
                break
            if event.get("type") in _EVENTS_WITH_USAGE:
                self._awake.put(None)


async def _post(client: Client, request: dict[str, Any], timeout: anthropic.Timeout) -> Any:
    """Send the request, and return the stream of the reply.

    Anthropic's own client and Foundry's get the request as text. Otherwise they would first
    copy each part of the request. Bedrock's and Vertex's clients need the parts, because they
    change them.
    """
    if not isinstance(client, anthropic.AsyncAnthropic):
        return await client.messages.create(**request, timeout=timeout)
    options: anthropic.RequestOptions = {"timeout": timeout}
    if betas := list_betas(request):
        options["headers"] = build_beta_header(client.default_headers, betas)
    return await client.post(
        "/v1/messages",
        content=to_json(request, inf_nan_mode="null"),
        cast_to=Any,
        options=options,
        stream=True,
        stream_cls=anthropic.AsyncStream[Any],
    )
