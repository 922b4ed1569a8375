"""The offline model as a transport of the SDK's HTTP client: a request of the Messages API in,
the API's own answer out, no socket.

anthropic.Anthropic(api_key="offline",
http_client=anthropic.DefaultHttpxClient(transport=OfflineTransport()))

or AsyncAnthropic, with DefaultAsyncHttpxClient.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2

from handoff_queue.shared.providers.offline import sse
from handoff_queue.shared.providers.offline.conversation import BadRequest, Conversation
from handoff_queue.shared.providers.offline.role_detection import reply_to
from handoff_queue.shared.providers.offline.token_estimate import cut_to, estimate, estimate_input
from handoff_queue.shared.settings.settings import OFFLINE_MODEL

_ERROR_TYPES = {400: "invalid_request_error", 404: "not_found_error", 405: "invalid_request_error"}


class OfflineTransport(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """Stateless and thread-safe: the same request always gives the same bytes. Awaited, it is
    computed where it is awaited.
    """

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return self._answer(request, request.read())

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return self._answer(request, await request.aread())

    def _answer(self, request: httpx2.Request, body: bytes) -> httpx2.Response:
        request_id = "req_offline_" + hashlib.sha256(body).hexdigest()[:16]
        headers = {"request-id": request_id}
        try:
            return self._route(request, body, headers)
        except _HttpError as error:
            content = {
                "type": "error",
                "error": {"type": _ERROR_TYPES[error.status], "message": str(error)},
                "request_id": request_id,
            }
            return httpx2.Response(error.status, headers=headers, json=content)

    def _route(
        self, request: httpx2.Request, body: bytes, headers: dict[str, str]
    ) -> httpx2.Response:
        path = request.url.path
        if path not in ("/v1/messages", "/v1/messages/count_tokens"):
            raise _HttpError(404, f"Not found: {path} (the offline model serves /v1/messages only)")
        if request.method != "POST":
            raise _HttpError(405, f"Method {request.method} not allowed")
        counting = path.endswith("count_tokens")
        conversation, asked = _parse(body, counting)
        if counting:
            return httpx2.Response(
                200, headers=headers, json={"input_tokens": estimate_input(asked)}
            )
        message = _message(conversation, asked, hashlib.sha256(body).hexdigest())
        if asked.get("stream"):
            return httpx2.Response(
                200,
                headers={**headers, "content-type": "text/event-stream"},
                stream=_Stream(message),
            )
        return httpx2.Response(200, headers=headers, json=message)


class _HttpError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Stream(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __init__(self, message: dict[str, Any]) -> None:
        self._message = message

    def __iter__(self) -> Iterator[bytes]:
        return sse.events(self._message)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for event in self:
            yield event


def _parse(body: bytes, counting: bool) -> tuple[Conversation, dict[str, Any]]:
    try:
        asked = json.loads(body)
    except ValueError as error:
        raise _HttpError(400, f"The request body is not valid JSON: {error}") from error
    if counting and isinstance(asked, dict):
        asked.setdefault("max_tokens", 1)
    try:
        return Conversation.from_request(asked), asked
    except BadRequest as error:
        raise _HttpError(400, str(error)) from error
    except (
        AttributeError,
        KeyError,
        TypeError,
    ) as error:  # a field of another type than the API's: only the commonest are named
        raise _HttpError(
            400, f"The request is malformed: {type(error).__name__}: {error}"
        ) from error


def _message(conversation: Conversation, asked: dict[str, Any], digest: str) -> dict[str, Any]:
    content = reply_to(conversation)
    for index, block in enumerate(content):
        if block["type"] == "tool_use":
            block["id"] = f"toolu_offline_{digest[:16]}_{index}"
    stop_reason = (
        "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn"
    )
    if estimate(content) > asked["max_tokens"]:
        content, stop_reason = cut_to(content, asked["max_tokens"]), "max_tokens"
    usage = {
        "input_tokens": estimate_input(asked),
        "output_tokens": min(estimate(content), asked["max_tokens"]),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    return {
        "id": f"msg_offline_{digest[:24]}",
        "type": "message",
        "role": "assistant",
        "model": OFFLINE_MODEL,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": usage,
    }
