"""The `Model` over the official client: always streamed, never retried here, interruptible at
any moment.
"""

from __future__ import annotations

import asyncio
import atexit
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from queue import Empty, SimpleQueue
from typing import Any

import anthropic
from pydantic_core import to_json

from handoff_queue.shared.providers.anthropic.errors import (
    as_ours,
    error_of_event,
    is_error,
    limits_of,
)
from handoff_queue.shared.providers.anthropic.event_loop import LONGEST_BREATH_S, EventLoop
from handoff_queue.shared.providers.anthropic.http_client import watch_sending
from handoff_queue.shared.providers.anthropic.request import request_of
from handoff_queue.shared.providers.anthropic.stream import PartialReply, events_of
from handoff_queue.shared.providers.anthropic.unsent_calls import settings_of
from handoff_queue.shared.types.errors import (
    HandoffError,
    ModelRejected,
    ModelUnreachable,
    SchemaRejected,
)
from handoff_queue.shared.types.json_text import STRICT
from handoff_queue.shared.types.model import ModelCall, ModelReply, Pulse, pulse_every_s

CONNECT_TIMEOUT_S = 10.0
REST_WITHIN_S = 2 * LONGEST_BREATH_S
"""Seconds for which a complete reply waits for the end of its body. The connection is free for the
next call only after it. Usually the end is there already, and a new connection is not much
cheaper.
"""
CLOSE_WITHIN_S = 5.0
"""Seconds to wait until connections are given back."""
READING = EventLoop("model-calls")
"""The loop that reads all replies of this process."""
_PAID = ("message_start", "message_delta")
"""Events that report usage."""
_STRICTNESS = ("output_config", "output_format", "strict", "json_schema", "schema")
"""Words in a 400 of a server that takes no structured outputs."""

Client = (
    anthropic.AsyncAnthropic
    | anthropic.AsyncAnthropicBedrock
    | anthropic.AsyncAnthropicVertex
    | anthropic.AsyncAnthropicFoundry
)


class AnthropicModel:
    """The model behind one client, which all threads of a process share: a client costs tens of
    megabytes, a connection pool and a TLS context.

    One event loop reads all replies, while each caller's thread pulses. A reader thread for every
    stream, woken by every word, costs several times as much, and a blocked read cannot be
    interrupted.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._plainly: set[str] = set()
        self._at_work: set[_Exchange] = set()
        self._is_open = False

    def reply(self, call: ModelCall, on_pulse: Callable[[Pulse], None]) -> ModelReply:
        """See `shared.types.model.Model`."""
        exchange = _Exchange(call, request_of(call, plainly=call.model in self._plainly))
        reading = READING.run(exchange.read(self._client))
        self._at_work.add(exchange)
        self._open()
        try:
            return exchange.wait(on_pulse, lambda: pulse_every_s(len(self._at_work)))
        except ModelRejected as error:
            if (
                error.status == 400
                and call.model not in self._plainly
                and any(word in str(error) for word in _STRICTNESS)
            ):
                self._plainly.add(call.model)
                raise SchemaRejected(
                    f"{error}; trying without strict schemas", status=400, retry_after_s=0
                ) from error
            raise
        finally:
            reading.cancel()
            self._at_work.discard(exchange)

    def close(self) -> None:
        """End all waiting calls with an error."""
        for exchange in tuple(self._at_work):
            exchange.give_up()
        is_open, self._is_open = self._is_open, False
        if is_open:
            atexit.unregister(self.close)
            with suppress(TimeoutError):
                READING.run(self._client.close()).result(CLOSE_WITHIN_S)

    def _open(self) -> None:
        """Open the client, and close its connections at the end of the process, before the event
        loop ends.
        """
        if not self._is_open:
            self._is_open = True
            atexit.register(self.close)


class _Exchange:
    """A request and its answer. The event loop reads the answer, and the caller's thread waits."""

    def __init__(self, call: ModelCall, request: dict[str, Any]) -> None:
        self._timeout = anthropic.Timeout(
            call.timeout_s, connect=min(CONNECT_TIMEOUT_S, call.timeout_s)
        )
        self._progress_s = call.progress_s
        self._request = request
        self._gathering: PartialReply | None = None
        self._reply: ModelReply | None = None
        self._end: ModelReply | BaseException | None = None
        self._awake: SimpleQueue[None] = SimpleQueue()
        """Wakes who waits: there is something to see."""

    def wait(self, on_pulse: Callable[[Pulse], None], every_s: Callable[[], float]) -> ModelReply:
        """Pulse until the reply is complete. The interval of the pulses is `every_s`."""
        pulse, taken, came_at = Pulse(), -1, time.monotonic()
        while True:
            with suppress(Empty):
                self._awake.get(timeout=every_s())
            end, gathering = self._end, self._gathering
            if isinstance(end, ModelReply):
                return end
            is_new = gathering is not None and gathering.taken != taken
            if gathering is not None and is_new:
                taken, pulse, came_at = gathering.taken, gathering.pulse(), time.monotonic()
            if is_new or end is None:
                try:
                    on_pulse(pulse)
                except HandoffError:
                    if self._reply is not None:
                        return self._reply  # whole, and paid
                    raise
            if end is not None:
                raise end
            if time.monotonic() - came_at > self._progress_s:
                raise ModelUnreachable(
                    f"the model's server has made no progress for {self._progress_s:.0f} s"
                )

    def give_up(self) -> None:
        self._is_over(self._reply or ModelUnreachable("the process ends"))

    def _is_over(self, end: ModelReply | BaseException) -> None:
        self._end = end
        self._awake.put(None)

    async def read(self, client: Client) -> None:
        """Pass the reply or the error on to the thread that waits. A cancelled call closes its
        connection.
        """
        sending = watch_sending()
        try:
            with as_ours(sending, settings_of(client)):
                stream = await _posted(client, self._request, self._timeout)
                sending.has_begun = True
                try:
                    self._reply = await self._gather(stream)
                finally:
                    await stream.close()
            self._is_over(self._reply)
        except asyncio.CancelledError:
            self.give_up()  # the caller has stopped, or the process ends
            raise
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it: a defect must not end as silence
            self._is_over(error)

    async def _gather(self, stream: Any) -> ModelReply:
        response = stream.response
        self._gathering = gathering = PartialReply(
            self._request["model"], limits_of(response.headers)
        )
        self._awake.put(None)
        request_id = response.headers.get("request-id")
        kind = response.headers.get("content-type", "")
        if "html" in kind:
            raise ModelUnreachable(
                "a web page came in place of the model's answer: check ANTHROPIC_BASE_URL"
            )
        if "json" in kind:
            await response.aread()
            message = STRICT.decode(response.text)
            if is_error(message) or (isinstance(message, dict) and "content" not in message):
                raise error_of_event(response.text)
            gathering.take_whole(message)
            return gathering.reply(request_id)
        async with aclosing(events_of(stream)) as events:
            await self._take_all(events, gathering)
            self._reply = gathering.reply(request_id)
            with suppress(
                Exception
            ):  # the reply is there: nothing that goes wrong from here on is heard of
                async with asyncio.timeout(REST_WITHIN_S):
                    async for _ in events:
                        pass
        return self._reply

    async def _take_all(
        self, events: AsyncIterator[dict[str, Any]], gathering: PartialReply
    ) -> None:
        """Take all events. A waiting thread is woken for paid usage, and sees words at its next
        pulse: a wake-up costs as much as a word.
        """
        async for event in events:
            gathering.take(event)
            if gathering.is_over:
                break
            if event.get("type") in _PAID:
                self._awake.put(None)


async def _posted(client: Client, request: dict[str, Any], timeout: anthropic.Timeout) -> Any:
    """Return the stream of the reply.

    Anthropic's own client and Foundry's get the request as text, because they copy each part of a
    request first. Bedrock's and Vertex's clients change the parts.
    """
    if not isinstance(client, anthropic.AsyncAnthropic):
        return await client.messages.create(**request, timeout=timeout)
    kind, text = anthropic.AsyncStream[Any], to_json(request, inf_nan_mode="null")
    return await client.post(
        "/v1/messages",
        content=text,
        cast_to=Any,
        options={"timeout": timeout},
        stream=True,
        stream_cls=kind,
    )
