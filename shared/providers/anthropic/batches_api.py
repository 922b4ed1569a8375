"""The `ProviderBatches` over the Message Batches API of the official SDK."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

import anthropic
import httpx2

from handoff_queue.shared.providers.anthropic.errors import (
    convert_error_event,
    get_settings,
    translate_errors,
)
from handoff_queue.shared.providers.anthropic.event_loop import EventLoop
from handoff_queue.shared.providers.anthropic.http_client import watch_request_progress
from handoff_queue.shared.providers.anthropic.request import Option, build_request
from handoff_queue.shared.providers.anthropic.stream import PartialReply, check_word
from handoff_queue.shared.types.batches import BatchOutcome, BatchState, BatchStatus
from handoff_queue.shared.types.errors import ModelError, ModelRejected, ModelUnreachable
from handoff_queue.shared.types.json_values import STRICT
from handoff_queue.shared.types.model import ModelCall
from handoff_queue.shared.types.rate_limits import NO_RATE_LIMITS

TIMEOUT_S = 60.0
"""Longest time of one request about a batch, in seconds."""
_PATH = "/v1/messages/batches"
_PAGE = 100
"""Batches of one page of the list. The API allows up to 1,000."""
MAX_LISTED = 100_000
"""Batches after which a list counts as one without an end."""
_Answer = TypeVar("_Answer")


class AnthropicBatches:
    """Batches behind the client of an `AnthropicModel`. All threads of a process share it."""

    def __init__(
        self,
        client: anthropic.AsyncAnthropic,
        loop: EventLoop,
        refused_options: Callable[[str], set[Option]],
    ) -> None:
        """Make the port.

        Args:
            loop: makes all requests.
            refused_options: returns the options that the server refuses for a model.
        """
        self._client = client
        self._loop = loop
        self._refused_options = refused_options

    def create(self, custom_id: str, call: ModelCall) -> BatchState:
        """See `shared.types.batches.ProviderBatches`."""
        params = build_request(call, without=self._refused_options(call.model))
        del params["stream"]  # a request of a batch cannot be streamed
        body = {"requests": [{"custom_id": custom_id, "params": params}]}
        request = self._client.post(_PATH, body=body, **self._build_options())
        return _parse_state(self._request_json(request))

    def retrieve(self, batch_id: str) -> BatchState:
        """See `shared.types.batches.ProviderBatches`."""
        request = self._client.get(_build_path(batch_id), **self._build_options())
        return _parse_state(self._request_json(request))

    def list_batches_since(self, since: float) -> Sequence[BatchState]:
        """See `shared.types.batches.ProviderBatches`. The API lists the newest batches first."""
        newer: list[BatchState] = []
        query: dict[str, object] = {"limit": _PAGE}
        while True:
            options = self._build_options()
            options["options"]["params"] = query
            page = self._request_json(self._client.get(_PATH, **options))
            states = [_parse_state(batch) for batch in _get_list(page)]
            newer += [state for state in states if state.created_at >= since]
            is_over = not states or states[-1].created_at < since
            if is_over or not page.get("has_more"):
                return newer
            if len(newer) > MAX_LISTED:
                raise ModelUnreachable(f"the server lists more than {MAX_LISTED:,} new batches")
            query = {"limit": _PAGE, "after_id": states[-1].batch_id}

    def fetch_outcome(self, batch_id: str, custom_id: str, model: str) -> BatchOutcome | None:
        """See `shared.types.batches.ProviderBatches`."""
        path = f"{_build_path(batch_id)}/results"
        for line in self._fetch_text(path).splitlines():
            if not line.strip():
                continue
            try:
                item = STRICT.decode(line)
                if item["custom_id"] == custom_id:
                    return _parse_outcome(item["result"], model)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise ModelUnreachable(
                    f"the result of batch {batch_id} could not be understood"
                    f" ({type(error).__name__})"
                ) from error
        return None

    def cancel(self, batch_id: str) -> None:
        """See `shared.types.batches.ProviderBatches`."""
        request = self._client.post(f"{_build_path(batch_id)}/cancel", **self._build_options())
        self._request_json(request)

    def _build_options(self) -> dict[str, Any]:
        timeout = anthropic.Timeout(TIMEOUT_S, connect=TIMEOUT_S / 6)
        return {"cast_to": object, "options": {"timeout": timeout}}

    def _request_json(self, request: Coroutine[Any, Any, Any]) -> dict[str, Any]:
        """Make a request, and return the JSON object of its answer."""
        answer = self._wait_for_answer(request)
        if not isinstance(answer, dict):
            raise ModelUnreachable("the server's answer about a batch is not a JSON object")
        return answer

    def _fetch_text(self, path: str) -> str:
        """Return the text of a file."""
        options = {**self._build_options(), "cast_to": httpx2.Response}
        options["options"]["headers"] = {"Accept": "application/binary"}
        response: httpx2.Response = self._wait_for_answer(self._client.get(path, **options))
        return response.text

    def _wait_for_answer(self, request: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Wait for the answer to a request. It ends by its own time-out."""
        answers: list[_Answer] = []
        errors: list[BaseException] = []

        async def ask() -> None:
            request_progress = watch_request_progress()
            try:
                with translate_errors(request_progress, get_settings(self._client)):
                    answers.append(await request)
            except Exception as error:  # noqa: BLE001 - the waiting thread raises it
                errors.append(error)

        self._loop.run(ask()).result()
        if errors:
            raise errors[0]
        return answers[0]


def _build_path(batch_id: str) -> str:
    """Return the path of a batch.

    Raises:
        ModelRejected: the id would name another path. A worker that was taken over has written it.
    """
    if batch_id in {"", ".", ".."}:
        raise ModelRejected(f"{batch_id!r} is not the id of a batch")
    return f"{_PATH}/{quote(batch_id, safe='')}"


def _get_list(page: dict[str, Any]) -> list[Any]:
    batches = page.get("data")
    if isinstance(batches, list):
        return batches
    raise ModelUnreachable("the server's list of batches could not be understood")


def _parse_state(batch: Any) -> BatchState:
    """Return the state in the JSON of a batch.

    Raises:
        ModelUnreachable: the JSON is not a batch.
    """
    try:
        requests = 0
        for count in batch["request_counts"].values():
            requests += int(count)
        created_at = datetime.fromisoformat(batch["created_at"])
        return BatchState(
            batch_id=_check_batch_id(batch["id"]),
            status=BatchStatus(batch["processing_status"]),
            created_at=created_at.timestamp(),
            requests=requests,
        )
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ModelUnreachable(
            f"the server's answer about a batch could not be understood ({type(error).__name__})"
        ) from error


def _check_batch_id(value: object) -> str:
    """Return the id of a batch. Raises ValueError for another value."""
    if isinstance(value, str) and value.isprintable() and 0 < len(value) <= 200:
        return value
    raise ValueError("the id of a batch was expected")


def _parse_outcome(result: dict[str, Any], model: str) -> BatchOutcome:
    """Return the outcome in the `result` of one request."""
    kind = check_word(result["type"])
    if kind != "succeeded":
        return BatchOutcome(why=f"{kind}{_describe_error(result)}")
    partial_reply = PartialReply(model, NO_RATE_LIMITS)
    partial_reply.take_whole(result["message"])
    return BatchOutcome(reply=partial_reply.reply(request_id=None))


def _describe_error(result: dict[str, Any]) -> str:
    """Return the provider's words about an error, with a colon in front, or ""."""
    if "error" not in result:
        return ""
    error: ModelError = convert_error_event(json.dumps(result["error"]))
    return f": {error}"
