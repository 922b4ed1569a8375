"""The model that the canvas and LangGraph call: the function that all rows share, or the
provider's SDK, as its users call it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from typing import Any

import anthropic
import httpx2

from benchmarks.timed_model import SYNTHESIS, TimedModel, Way, make_model
from handoff_queue.shared.settings.settings import load_settings
from handoff_queue.shared.types.model import CallProgress, ModelCall, ModelReply
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.shared.types.usage import Usage

WAY = "BENCH_WAY"
"""Environment: how calls are made, one of `Way`."""
_CONNECTION_LIMITS = httpx2.Limits(max_connections=4_000, max_keepalive_connections=4_000)
"""The SDK's own limit of connections, 1,000, is less than there are calls at once."""


class SdkModel:
    """A model behind the SDK with one request and one reply. An event loop uses the faster of
    the SDK's two asynchronous clients, as its documentation advises for many calls at once.
    The server comes from ANTHROPIC_BASE_URL.
    """

    def __init__(self, synthesis: Synthesis, *, is_streamed: bool) -> None:
        self.synthesis = synthesis
        self._is_streamed = is_streamed

    def reply(self, call: ModelCall, _on_progress: Callable[[CallProgress], None]) -> ModelReply:
        arguments = _build_request_arguments(call)
        if not self._is_streamed:
            return _read(self._client.messages.create(**arguments))
        with self._client.messages.stream(**arguments) as stream:
            return _read(stream.get_final_message())

    async def reply_async(self, call: ModelCall) -> ModelReply:
        arguments = _build_request_arguments(call)
        if not self._is_streamed:
            return _read(await self._async_client.messages.create(**arguments))
        async with self._async_client.messages.stream(**arguments) as stream:
            return _read(await stream.get_final_message())

    @cached_property
    def _client(self) -> anthropic.Anthropic:
        return anthropic.Anthropic(
            http_client=anthropic.DefaultHttpxClient(limits=_CONNECTION_LIMITS), max_retries=0
        )

    @cached_property
    def _async_client(self) -> anthropic.AsyncAnthropic:
        return anthropic.AsyncAnthropic(
            http_client=anthropic.DefaultAioHttpClient(limits=_CONNECTION_LIMITS), max_retries=0
        )


def _build_request_arguments(call: ModelCall) -> dict[str, Any]:
    """Return the arguments of a request with a short prompt and the schema of the wanted
    answer. Prompts of this project are longer: 6 to 8 KB with a specialist's instructions and
    schema.
    """
    schema = {"type": "object", "properties": (call.output_schema or {}).get("properties", {})}
    return {
        "model": call.model,
        "max_tokens": call.max_output_tokens,
        "messages": [{"role": "user", "content": "Do the next part."}],
        "output_config": {"format": {"type": "json_schema", "schema": schema}},
    }


def _read(message: anthropic.types.Message) -> ModelReply:
    text = "".join(block.text for block in message.content if block.type == "text")
    usage = Usage(
        input_tokens=message.usage.input_tokens, output_tokens=message.usage.output_tokens
    )
    return ModelReply(
        ({"type": "text", "text": text},), str(message.stop_reason), usage, message.model
    )


def make_peers_model() -> TimedModel | SdkModel:
    way = Way(os.environ.get(WAY, Way.FUNCTION))
    if way is Way.FUNCTION:
        return make_model(load_settings())
    return SdkModel(
        Synthesis(os.environ.get(SYNTHESIS, Synthesis.MERGE)), is_streamed=way is Way.STREAMED
    )
