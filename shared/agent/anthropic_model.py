"""The `Model` over the official client: always streamed, never retried here, interruptible at any moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from queue import Empty, SimpleQueue
from typing import Any

import anthropic

from shared.agent.anthropic_connection import Connection
from shared.agent.anthropic_errors import as_ours
from shared.agent.anthropic_limits import limits_of
from shared.agent.anthropic_request import request_of
from shared.agent.anthropic_stream import Gathering
from shared.agent.model import ModelCall, ModelReply, Pulse
from shared.wire.errors import ModelError, ModelRejected, ModelUnreachable, SchemaRejected

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
        threading.Thread(target=self._read, name="model-call", daemon=True).start()
        pulse, came_at = Pulse(), time.monotonic()
        try:
            while True:
                match self._newest(pulse):
                    case ModelReply() as reply:
                        self._connection.is_free.wait(REST_WITHIN_S)
                        return reply
                    case Pulse() as newest:
                        came_at = came_at if newest is pulse else time.monotonic()
                        pulse = newest
                        on_pulse(pulse)
                    case BaseException() as error:
                        raise error
                if time.monotonic() - came_at > self._progress_s:
                    raise ModelUnreachable(f"the model's server has made no progress for {self._progress_s:.0f} s")
        finally:
            self._connection.leave()

    def _newest(self, known: Pulse) -> Pulse | ModelReply | BaseException:
        """What came last; pieces that came meanwhile are already part of it."""
        newest: Pulse | ModelReply | BaseException = known
        with suppress(Empty):
            newest = self._arrived.get(timeout=PULSE_EVERY_S)
            while isinstance(newest, Pulse):
                newest = self._arrived.get_nowait()
        return newest

    def _read(self) -> None:
        try:
            with as_ours(), closing(self._client.messages.create(**self._request, timeout=self._timeout)) as stream:
                self._connection.carry(stream.response)
                self._arrived.put(self._gather(stream))
                self._connection.read_rest()  # who waits has the reply: nothing that goes wrong here is heard of
        except ModelError as error:
            self._arrived.put(error)
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it: a defect must not end as silence
            self._arrived.put(error)

    def _gather(self, stream: Any) -> ModelReply:
        gathering = Gathering(self._request["model"], limits_of(stream.response.headers))
        self._arrived.put(gathering.pulse())
        if "json" in stream.response.headers.get("content-type", ""):
            stream.response.read()
            gathering.take_whole(stream.response.json())
        else:
            for event in stream:
                gathering.take(event.to_dict(warnings=False))
                if self._connection.is_left.is_set() or gathering.is_over:
                    break
                self._arrived.put(gathering.pulse())
        return gathering.reply(stream.response.headers.get("request-id"))
