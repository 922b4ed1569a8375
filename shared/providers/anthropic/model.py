"""The `Model` over the official SDK. It streams each reply and never retries. The caller can
cut a call at any time.
"""

from __future__ import annotations

import asyncio
import atexit
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from queue import Empty, SimpleQueue
from typing import Any

import anthropic
from pydantic_core import to_json

from handoff_queue.shared.providers.anthropic.batches import AnthropicBatches
from handoff_queue.shared.providers.anthropic.errors import (
    error_of_event,
    is_error,
    limits_of,
    settings_of,
    translated_errors,
)
from handoff_queue.shared.providers.anthropic.event_loop import LONGEST_POLL_DELAY_S, EventLoop
from handoff_queue.shared.providers.anthropic.http_client import watch_sending
from handoff_queue.shared.providers.anthropic.request import Option, request_of
from handoff_queue.shared.providers.anthropic.stream import PartialReply, events_of
from handoff_queue.shared.types.batches import Batches
from handoff_queue.shared.types.errors import (
    HandoffError,
    ModelRejected,
    ModelUnreachable,
    SchemaRejected,
)
from handoff_queue.shared.types.json_values import STRICT
from handoff_queue.shared.types.model import ModelCall, ModelReply, Pulse, pulse_every_s

CONNECT_TIMEOUT_S = 10.0
REST_WITHIN_S = 2 * LONGEST_POLL_DELAY_S
"""Longest time in seconds between a complete reply and the end of its body. Only after its end
the connection can serve another call. Usually the end has arrived already.
"""
CLOSE_WITHIN_S = 5.0
"""Seconds that the end of a process waits until the client has closed its connections."""
READ_LOOP = EventLoop("model-calls")
"""The loop that reads all replies of this process."""
_PAID = ("message_start", "message_delta")
"""Events that report usage."""
_WORDS = {
    Option.EFFORT: ("effort",),
    Option.THINKING: ("thinking",),
    Option.CACHE_1H: ("cache_control",),
    Option.STRICT: ("output_config", "output_format", "strict", "json_schema", "schema"),
}
"""Words in the 400 of a server that refuses an option."""

Client = (
    anthropic.AsyncAnthropic
    | anthropic.AsyncAnthropicBedrock
    | anthropic.AsyncAnthropicVertex
    | anthropic.AsyncAnthropicFoundry
)


class AnthropicModel:
    """A model behind one client. All threads of a process share it, because a client costs
    tens of megabytes, a connection pool and a TLS context.

    One event loop reads all replies, while each caller's thread sends pulses. A reader thread
    for each stream would wake up for each word and cost several times as much. It also could
    not interrupt a blocked read.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._refused: defaultdict[str, set[Option]] = defaultdict(set)
        """Options that the server refuses, by model."""
        self._exchanges: set[_Exchange] = set()
        self._is_open = False

    def reply(self, call: ModelCall, on_pulse: Callable[[Pulse], None]) -> ModelReply:
        """See `shared.types.model.Model`."""
        exchange = _Exchange(call, request_of(call, without=self._refused[call.model]))
        reading = READ_LOOP.run(exchange.read(self._client))
        self._exchanges.add(exchange)
        self._open()
        try:
            return exchange.wait(on_pulse, lambda: pulse_every_s(len(self._exchanges)))
        except ModelRejected as error:
            option = self._refused_by(error, call)
            if option is None:
                raise
            self._refused[call.model].add(option)
            raise SchemaRejected(
                f"{error}; trying without {option.value}", status=400, retry_after_s=0
            ) from error
        finally:
            reading.cancel()
            self._exchanges.discard(exchange)

    def _refused_by(self, error: ModelRejected, call: ModelCall) -> Option | None:
        """Return the option of the call that the server has refused, or None for another error."""
        if error.status != 400:
            return None
        sent = {
            Option.EFFORT: call.effort,
            Option.THINKING: call.thinking,
            Option.CACHE_1H: call.caches_for_1h,
            Option.STRICT: True,
        }
        for option, words in _WORDS.items():
            is_sent = sent[option] and option not in self._refused[call.model]
            if is_sent and any(word in str(error) for word in words):
                return option
        return None

    @property
    def batches(self) -> Batches | None:
        """Return the batches of the account. None: the provider has none for this client."""
        if type(self._client) is not anthropic.AsyncAnthropic:  # not Bedrock, Vertex and Foundry
            return None
        self._open()
        return AnthropicBatches(self._client, READ_LOOP, lambda name: self._refused[name])

    def close(self) -> None:
        """End all waiting calls, and close the connections. A call whose reply has not arrived
        ends with `ModelUnreachable`.
        """
        for exchange in tuple(self._exchanges):
            exchange.give_up()
        is_open, self._is_open = self._is_open, False
        if is_open:
            atexit.unregister(self.close)
            with suppress(TimeoutError):
                READ_LOOP.run(self._client.close()).result(CLOSE_WITHIN_S)

    def _open(self) -> None:
        """Register `close` for the end of the process, before the end of the event loop."""
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
        self._partial_reply: PartialReply | None = None
        self._reply: ModelReply | None = None
        self._end: ModelReply | BaseException | None = None
        self._awake: SimpleQueue[None] = SimpleQueue()
        """Gets an item when the waiting thread must check the exchange."""

    def wait(self, on_pulse: Callable[[Pulse], None], every_s: Callable[[], float]) -> ModelReply:
        """Return the complete reply. Until then, send pulses.

        Args:
            on_pulse: receives each pulse. See `shared.types.model.Model.reply`.
            every_s: returns the seconds between two pulses while nothing arrives.

        Raises:
            ModelError: there is no reply.
        """
        pulse, taken, came_at = Pulse(), -1, time.monotonic()
        while True:
            with suppress(Empty):
                self._awake.get(timeout=every_s())
            end, partial_reply = self._end, self._partial_reply
            if isinstance(end, ModelReply):
                return end
            is_new = partial_reply is not None and partial_reply.taken != taken
            if partial_reply is not None and is_new:
                taken, pulse, came_at = partial_reply.taken, partial_reply.pulse(), time.monotonic()
            if is_new or end is None:
                try:
                    on_pulse(pulse)
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
        """End the exchange with the reply, if it is complete, or else with an error."""
        self._is_over(self._reply or ModelUnreachable("the process ends"))

    def _is_over(self, end: ModelReply | BaseException) -> None:
        self._end = end
        self._awake.put(None)

    async def read(self, client: Client) -> None:
        """Make the request, and pass the reply or the error to the waiting thread. If this is
        cancelled, it closes the connection.
        """
        sending = watch_sending()
        try:
            with translated_errors(sending, settings_of(client)):
                stream = await _post(client, self._request, self._timeout)
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
        self._partial_reply = partial_reply = PartialReply(
            self._request["model"], limits_of(response.headers)
        )
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
                raise error_of_event(response.text)
            partial_reply.take_whole(message)
            return partial_reply.reply(request_id)
        async with aclosing(events_of(stream)) as events:
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
        waiting thread. The thread reads all other events at its next pulse, because a wake-up
        costs as much as an event.
        """
        async for event in events:
            partial_reply.take(event)
            if partial_reply.is_over:
                break
            if event.get("type") in _PAID:
                self._awake.put(None)


async def _post(client: Client, request: dict[str, Any], timeout: anthropic.Timeout) -> Any:
    """Send the request, and return the stream of the reply.

    Anthropic's own client and Foundry's get the request as text. Otherwise they would first
    copy each part of the request. Bedrock's and Vertex's clients need the parts, because they
    change them.
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
