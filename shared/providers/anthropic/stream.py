"""Collects the events of one streamed reply. It accepts missing fields, because servers other
than the provider's leave fields out. The SDK's own code does not.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from typing import Any

from handoff_queue.shared.agent.prices import CONTAINER_MICROUSD, WEB_SEARCH_MICROUSD
from handoff_queue.shared.providers.anthropic.errors import convert_error_event, is_error
from handoff_queue.shared.text.unicode_text import (
    replace_all_lone_surrogates,
    replace_lone_surrogates,
    replace_unprintable,
)
from handoff_queue.shared.types.context_edits import CLEAR_TOOL_USES
from handoff_queue.shared.types.errors import ModelUnreachable
from handoff_queue.shared.types.json_values import STRICT, check_storable
from handoff_queue.shared.types.model import Block, CallProgress, ModelReply
from handoff_queue.shared.types.rate_limits import RateLimits
from handoff_queue.shared.types.usage import Usage

_AWS = "amazon.eventstream"
"""Content type of Bedrock's streams. Their framing differs from server-sent events."""
_DONE = "[DONE]"
"""Last data of a stream from some servers that also implement OpenAI's protocol."""
_MAX_ERROR_BYTES = 16_000
"""Bytes of a body without events that are searched for an error. The last piece may exceed it."""
_MAX_BLOCKS = 10_000
"""Most blocks of a reply. Each report of the progress reads all blocks."""
_MAX_WORD_CHARS = 200
"""Most characters of the name of a model, and of the reason of an end. The journal has them."""
_MAX_TOKENS = 10**9
"""Largest number that counts as a number of tokens."""


async def iterate_events(stream: Any) -> AsyncGenerator[dict[str, Any]]:
    """Yield the events of a stream that the SDK has opened, as the server sent them.

    The SDK's own parser is not used. It costs more than reading the stream, and copies an event
    of many lines once for each line. The type of an event is taken from its data, because some
    servers send no `event:` line.

    Raises:
        ModelError: the server sent an error in place of an event or of the whole stream.
    """
    if _AWS in stream.response.headers.get("content-type", ""):
        async for event in stream:
            yield event.to_dict(warnings=False)
        return
    body = _Remembered(stream.response)
    has_events = False
    async for kind, data in _iterate_sent_events(body.aiter_bytes()):
        if kind == "error":
            raise convert_error_event(data)
        if kind == "ping" or not data or data.strip() == _DONE:
            continue
        has_events = True
        event = STRICT.decode(data)
        if is_error(event):
            raise convert_error_event(data)
        if kind and "type" not in event:
            event["type"] = kind
        yield event
    if not has_events:
        _check_no_error(body.beginning)


async def _iterate_sent_events(parts: AsyncIterator[bytes]) -> AsyncGenerator[tuple[str, str]]:
    """Yield the kind, which may be '', and the data of each server-sent event.

    Raises:
        UnicodeDecodeError: the stream is not UTF-8.
    """
    kind = ""
    data: list[str] = []
    async for line in _iterate_lines(parts):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line and (kind or data):
            yield kind, "\n".join(data)
            kind, data = "", []
        elif field == "event":
            kind = value
        elif field == "data":
            data.append(value)


async def _iterate_lines(parts: AsyncIterator[bytes]) -> AsyncGenerator[str]:
    """Yield the lines of a stream that end with a line break of any kind."""
    line_parts: list[bytes] = []
    ends_with_cr = False
    async for part in parts:
        rest = part.removeprefix(b"\n") if ends_with_cr else part
        for line in rest.splitlines(keepends=True):
            line_parts.append(line)
            if line.endswith((b"\n", b"\r")):
                yield b"".join(line_parts).rstrip(b"\r\n").decode()
                line_parts = []
        ends_with_cr = part.endswith(b"\r")


class _Remembered:
    """A response that keeps the beginning of its body while it is read."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self.beginning = b""

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        async for part in self._response.aiter_bytes():
            if len(self.beginning) < _MAX_ERROR_BYTES:
                self.beginning += part
            yield part


def _check_no_error(body: bytes) -> None:
    """Raise the error in a body without events, such as a JSON error that was sent as plain
    text.
    """
    text = body.decode(errors="replace").strip().removeprefix("data:")
    try:
        value = STRICT.decode(text)
    except ValueError:
        return
    if is_error(value):
        raise convert_error_event(text)


_RESULT_OF_CODE = "code_execution_tool_result"
"""End of the types of the blocks with a result of the provider's code execution."""


class PartialReply:
    """The part of a reply that has arrived. One thread writes it, and another reads it.

    Blocks stay as the server wrote them, also blocks of unknown types, because the next turn
    sends them back. Each piece is checked when it arrives, so a reader finds texts where texts
    belong.
    """

    def __init__(self, model: str, limits: RateLimits, *, is_cached_for_1h: bool = False) -> None:
        """Make an empty reply.

        Args:
            is_cached_for_1h: True if the request asks for a cache of one hour. If the server does
                not report for how long it caches the tokens, they count as cached for one hour.
        """
        self.model = model
        self.limits = limits
        self._is_cached_for_1h = is_cached_for_1h
        self.blocks: dict[int, Block] = {}
        self.usage: dict[str, Any] = {}
        self.context: dict[str, Any] = {}
        """The provider's report about edits of the request."""
        self.stop_reason: str | None = None
        self.has_started = False
        self.is_over = False
        self._texts: dict[int, list[str]] = {}
        self._inputs: dict[int, list[str]] = {}
        self._thinking: dict[int, list[str]] = {}
        self._citations: dict[int, list[Any]] = {}
        self._lock = threading.Lock()
        self.event_count = 0
        """Number of events so far. A reader compares it to detect new events."""

    def take(self, event: dict[str, Any]) -> None:
        """Add one event.

        Raises:
            LookupError, TypeError, ValueError: the event is not valid.
        """
        with self._lock:
            self.event_count += 1
            self._add(event)

    def _add(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "message_start":
                message = event.get("message") or {}
                self.has_started = True
                self.model = check_word(message.get("model")) or self.model
                self._update_usage(message)
                # It is not final, and the end of the reply may have no usage.
                self.usage.pop("output_tokens", None)
            case "content_block_start":
                self.blocks[self._check_place(event["index"])] = dict(event["content_block"])
            case "content_block_delta":
                self._apply_delta(self._check_place(event["index"]), event["delta"])
            case "message_delta":
                delta = event.get("delta") or {}
                self.stop_reason = check_word(delta.get("stop_reason")) or self.stop_reason
                self._update_usage(event)
            case "message_stop":
                self.is_over = True
            case _:
                pass

    def _update_usage(self, values: dict[str, Any]) -> None:
        """Take the usage and the edits of the context that an event or a whole reply names."""
        self.usage.update(_drop_null_fields(values.get("usage")))
        self.context.update(_drop_null_fields(values.get("context_management")))
        if self._is_cached_for_1h and "cache_creation" not in self.usage:
            written_tokens = _count(self.usage, "cache_creation_input_tokens")
            self.usage["cache_creation"] = {"ephemeral_1h_input_tokens": written_tokens}

    def take_whole(self, message: dict[str, Any]) -> None:
        """Take a reply that came as one JSON object although a stream was requested.

        Raises:
            LookupError, TypeError, ValueError: the reply is not valid.
        """
        if len(message["content"]) > _MAX_BLOCKS:
            raise ValueError("too many blocks")
        with self._lock:
            self.event_count += 1
            self.has_started = self.is_over = True
            self.model = check_word(message.get("model")) or self.model
            self.stop_reason = check_word(message.get("stop_reason"))
            self._update_usage(message)
            self.blocks = dict(enumerate(map(dict, message["content"])))

    def get_progress(self) -> CallProgress:
        """Return the text and the usage so far."""
        with self._lock:
            texts: list[str] = []
            for index in sorted(self.blocks):
                if self.blocks[index].get("type") == "text":
                    texts.append(self._get_text(index))
            text = "".join(texts)
            if "\ud800" <= text[-1:] <= "\udbff":
                text = text[:-1]  # half of a character, whose other half comes next
            return CallProgress(
                replace_lone_surrogates(text),
                parse_usage(self.usage, self.blocks.values()),
                is_usage_final=self.stop_reason is not None and "output_tokens" in self.usage,
                limits=self.limits,
            )

    def reply(self, request_id: str | None) -> ModelReply:
        """Return the complete reply.

        Raises:
            ModelUnreachable: the stream ended before the reply did.
            ValueError: the reply contains a value that cannot be stored.
        """
        if not self.has_started:
            raise ModelUnreachable("the server sent no answer")
        if self.stop_reason is None and not self.is_over:
            raise ModelUnreachable("the model's answer was cut in the middle")
        with self._lock:
            blocks = [self._build_block(index) for index in sorted(self.blocks)]
            content = _make_storable(tuple(blocks))
        stop_reason = self.stop_reason or "end_turn"
        has_calls = any(block.get("type") == "tool_use" for block in content)
        if has_calls and not self.stop_reason:
            stop_reason = "tool_use"
        cleared_calls, cleared_tokens = _count_cleared_results(self.context)
        return ModelReply(
            content=content,
            stop_reason=stop_reason,
            usage=parse_usage(self.usage, content),
            model=self.model,
            request_id=request_id,
            limits=self.limits,
            cleared_calls=cleared_calls,
            cleared_tokens=cleared_tokens,
        )

    def _check_place(self, value: object) -> int:
        """Return the place of a block. Raises TypeError or ValueError for another value."""
        if not isinstance(value, int):
            raise TypeError("the place of a block was expected")
        if value not in self.blocks and len(self.blocks) >= _MAX_BLOCKS:
            raise ValueError("too many blocks")
        return value

    def _apply_delta(self, index: int, delta: dict[str, Any]) -> None:
        block = self.blocks.setdefault(index, {"type": "text", "text": ""})
        match delta.get("type"):
            case "text_delta":
                self._texts.setdefault(index, []).append(_check_text(delta["text"]))
            case "input_json_delta":
                self._inputs.setdefault(index, []).append(_check_text(delta["partial_json"]))
            case "thinking_delta":
                first = _check_text(block.get("thinking") or "")
                self._thinking.setdefault(index, [first]).append(_check_text(delta["thinking"]))
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "citations_delta":
                citations = block.get("citations") or []
                self._citations.setdefault(index, [*citations]).append(delta["citation"])
            case "compaction_delta":
                block.update(_drop_null_fields({**delta, "type": None}))
            case _:
                pass

    def _get_text(self, index: int) -> str:
        pieces = self._texts.get(index, [])
        if len(pieces) > 1:
            pieces[:] = ["".join(pieces)]
        return str(self.blocks[index].get("text") or "") + "".join(pieces)

    def _build_block(self, index: int) -> Block:
        block = self.blocks[index]
        if index in self._thinking:
            block = {**block, "thinking": "".join(self._thinking[index])}
        if index in self._citations:
            block = {**block, "citations": self._citations[index]}
        if block.get("type") == "text":
            return {**block, "text": self._get_text(index)}
        if index in self._inputs:
            return {**block, "input": _parse_arguments("".join(self._inputs[index]))}
        return block


def parse_usage(report: dict[str, Any], content: Iterable[Block] = ()) -> Usage:
    """Return the usage that the provider reported. The provider counts cached tokens
    separately; here they are part of the input tokens. Missing fields count as zero.

    The tokens of a compaction are only in `iterations`, so they are added.

    Args:
        content: blocks of the reply. No report counts the containers that ran code.
    """
    usage = _parse_call_usage(report, content)
    for iteration in _select_dicts(report.get("iterations")):
        if iteration.get("type") == "compaction":
            usage += _parse_call_usage(iteration, ())
    return usage


def _parse_call_usage(report: dict[str, Any], content: Iterable[Block]) -> Usage:
    """Return the usage that one part of a report has."""
    cache_read = _count(report, "cache_read_input_tokens")
    cache_written = _count(report, "cache_creation_input_tokens")
    cache_written_1h = _count(
        _drop_null_fields(report.get("cache_creation")), "ephemeral_1h_input_tokens"
    )
    searches = _count(_drop_null_fields(report.get("server_tool_use")), "web_search_requests")
    cost = searches * WEB_SEARCH_MICROUSD
    kinds = [str(block.get("type")) for block in content]
    if any(kind.endswith(_RESULT_OF_CODE) for kind in kinds):
        cost += CONTAINER_MICROUSD
    return Usage(
        input_tokens=_count(report, "input_tokens") + cache_read + cache_written,
        output_tokens=_count(report, "output_tokens"),
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_written,
        cache_write_1h_tokens=min(cache_written, cache_written_1h),
        cost_microusd=cost,
    )


def _count_cleared_results(context: dict[str, Any]) -> tuple[int, int]:
    """Return how many calls of tools lost their results, and the tokens of these results."""
    calls = tokens = 0
    for edit in _select_dicts(context.get("applied_edits")):
        if edit.get("type") == CLEAR_TOOL_USES:
            calls += _count(edit, "cleared_tool_uses")
            tokens += _count(edit, "cleared_input_tokens")
    return calls, tokens


def _select_dicts(values: object) -> list[dict[str, Any]]:
    """Return the JSON objects in a list, or an empty list."""
    if not isinstance(values, list):
        return []
    return [value for value in values if isinstance(value, dict)]


def _count(values: dict[str, Any], name: str) -> int:
    value = values.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MAX_TOKENS:
        return value
    return 0


def _check_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text was expected")
    return value


def check_word(value: object) -> str | None:
    """Return a word of the server in at most `_MAX_WORD_CHARS` characters that can be printed.

    Raises:
        TypeError: the value is not a text.
    """
    if value is None:
        return None
    return replace_unprintable(replace_lone_surrogates(_check_text(value)[:_MAX_WORD_CHARS]))


def _make_storable(content: tuple[Block, ...]) -> tuple[Block, ...]:
    """Return the blocks, with lone surrogates replaced if the store could not take them.

    Raises:
        ValueError: the store could not return a block.
    """
    try:
        _check_blocks(content)
    except ValueError:
        content = replace_all_lone_surrogates(content)
        _check_blocks(content)
    return content


def _check_blocks(content: tuple[Block, ...]) -> None:
    """Check each field of the blocks with `check_storable`.

    Raises:
        ValueError: the store could not return a field.
    """
    for block in content:
        for field in block.values():
            check_storable(field)


def _drop_null_fields(usage: object) -> dict[str, Any]:
    """Return the fields of a usage report that are not null. They are totals, so they replace
    the values of earlier events.
    """
    values: dict[str, Any] = {}
    if isinstance(usage, dict):
        for name, value in usage.items():
            if value is not None:
                values[name] = value
    return values


def _parse_arguments(text: str) -> Any:
    """Return the arguments of a call. Invalid JSON stays a string. The check of the arguments
    later refuses this string, so that the model gets an error.
    """
    if not text.strip():
        return {}
    try:
        return STRICT.decode(text)
    except ValueError:
        return text
