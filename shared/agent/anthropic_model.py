"""The `Model` over the official client: always streamed, never retried here, interruptible at any moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any

import anthropic

from shared.agent.anthropic_connection import Connection
from shared.agent.anthropic_errors import as_ours
from shared.agent.anthropic_limits import limits_of
from shared.agent.anthropic_request import request_of
from shared.agent.anthropic_stream import Gathering, events_of
from shared.agent.model import ModelCall, ModelReply, Pulse
from shared.wire.errors import ModelRejected, ModelUnreachable, SchemaRejected

PULSE_EVERY_S = 0.25
"""How often `on_pulse` is called while nothing arrives: bounds how late a cancel, a drain or a deadline is noticed."""
CONNECT_TIMEOUT_S = 10.0
REST_WITHIN_S = 0.2
"""How long a whole reply is kept back for the end of its body, which the next call's connection depends on: it is there already as a rule,
and a new connection is not much cheaper.
"""
_STRICTNESS = ("output_config", "output_format", "strict", "json_schema", "schema")
"""What a 400 speaks of when the server takes no structured outputs."""

Client = anthropic.Anthropic | anthropic.AnthropicBedrock | anthropic.AnthropicVertex | anthropic.AnthropicFoundry


class AnthropicModel:
    """One client, shared by all threads of a process: it costs tens of megabytes, a connection pool and a TLS context.

    Each call is read by a thread of its own, while the caller's thread pulses: a blocked read cannot be interrupted, but it can be left.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._plainly: set[str] = set()

    def reply(self, call: ModelCall, on_pulse: Callable[[Pulse], None]) -> ModelReply:
        """See `shared.agent.model.Model`."""
        exchange = _Exchange(self._client, call, request_of(call, plainly=call.model in self._plainly))
        try:
            return exchange.wait(on_pulse)
        except ModelRejected as error:
            if error.status == 400 and call.model not in self._plainly and any(word in str(error) for word in _STRICTNESS):
                self._plainly.add(call.model)
                raise SchemaRejected(f"{error}; trying without strict schemas", status=400, retry_after_s=0) from error
            raise

    def close(self) -> None:
        self._client.close()


class _Exchange:
    """One request and its answer: a reading thread, and the caller that waits for it."""

    def __init__(self, client: Client, call: ModelCall, request: dict[str, Any]) -> None:
        self._client = client
        self._timeout = anthropic.Timeout(call.timeout_s, connect=min(CONNECT_TIMEOUT_S, call.timeout_s))
        self._progress_s = call.progress_s
        self._request = request
        self._arrived: SimpleQueue[Pulse | ModelReply | BaseException] = SimpleQueue()
        self._connection = Connection()

    def wait(self, on_pulse: Callable[[Pulse], None]) -> ModelReply:
        """Pulse until the reply is whole."""
        threading.Thread(target=copy_context().run, args=(self._read,), name="model-call", daemon=True).start()
        pulse, came_at = Pulse(), time.monotonic()
        try:
            while True:
                newest, end = self._news()
                if isinstance(end, ModelReply):
                    self._connection.is_free.wait(REST_WITHIN_S)
                    return end
                if newest is not None:
                    pulse, came_at = newest, time.monotonic()
                if newest is not None or end is None:
                    on_pulse(pulse)
                if end is not None:
                    raise end
                if time.monotonic() - came_at > self._progress_s:
                    raise ModelUnreachable(f"the model's server has made no progress for {self._progress_s:.0f} s")
        finally:
            self._connection.leave()

    def _news(self) -> tuple[Pulse | None, ModelReply | BaseException | None]:
        """The last pulse that came, if one did: those before it are part of it. And what the call has come to, if it is over."""
        pulse: Pulse | None = None
        with suppress(Empty):
            one = self._arrived.get(timeout=PULSE_EVERY_S)
            while isinstance(one, Pulse):
                pulse = one
                one = self._arrived.get_nowait()
            return pulse, one
        return pulse, None

    def _read(self) -> None:
        try:
            with as_ours(), closing(self._client.messages.create(**self._request, timeout=self._timeout)) as stream:
                self._connection.carry(stream.response)
                events = events_of(stream)  # whoever drops it closes the connection
                self._arrived.put(self._gather(stream.response, events))
                self._connection.read_rest()  # who waits has the reply: nothing that goes wrong here is heard of
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it: a defect must not end as silence
            self._arrived.put(error)

    def _gather(self, response: Any, events: Iterable[dict[str, Any]]) -> ModelReply:
        gathering = Gathering(self._request["model"], limits_of(response.headers))
        self._arrived.put(gathering.pulse())
        if "json" in response.headers.get("content-type", ""):
            response.read()
            gathering.take_whole(response.json())
        else:
            self._take_all(events, gathering)
        return gathering.reply(response.headers.get("request-id"))

    def _take_all(self, events: Iterable[dict[str, Any]], gathering: Gathering) -> None:
        """Words are told of a few times a second, anything else at once: waking who waits costs as much as reading a word."""
        told_at = time.monotonic()
        try:
            for event in events:
                gathering.take(event)
                if self._connection.is_left.is_set() or gathering.is_over:
                    break
                if event.get("type") != "content_block_delta" or time.monotonic() - told_at >= PULSE_EVERY_S:
                    told_at = time.monotonic()
                    self._arrived.put(gathering.pulse())
        finally:
            if not gathering.is_over:
                self._arrived.put(gathering.pulse())  # what had come is known before it is known that no more will
