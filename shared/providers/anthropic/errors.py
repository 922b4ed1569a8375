"""Errors of the Messages API, and the rate limits that its replies report."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

import aiohttp
import anthropic
import httpx2

from handoff_queue.shared.observability.redaction import HIDDEN, without_credentials
from handoff_queue.shared.providers.anthropic.http_client import RequestProgress
from handoff_queue.shared.providers.anthropic.unsent_calls import (
    ClientSettings,
    proxy_refuses,
    unsent_error,
)
from handoff_queue.shared.types.characters import in_whole_characters
from handoff_queue.shared.types.errors import (
    HandoffError,
    ModelBusy,
    ModelError,
    ModelRejected,
    ModelUnreachable,
)
from handoff_queue.shared.types.rate_limits import Allowance, RateLimits

_PREFIX = "anthropic-ratelimit-"


def limits_of(headers: Mapping[str, str]) -> RateLimits:
    """Return the rate limits in the headers
    `anthropic-ratelimit-{requests,input-tokens,output-tokens}-{limit,remaining}`.

    The `-reset` headers are not used, because the provider refills its buckets continuously.
    """
    return RateLimits(
        _allowance(headers, "requests"),
        _allowance(headers, "input-tokens"),
        _allowance(headers, "output-tokens"),
    )


def _allowance(headers: Mapping[str, str], kind: str) -> Allowance | None:
    limit = headers.get(f"{_PREFIX}{kind}-limit", "")
    remaining = headers.get(f"{_PREFIX}{kind}-remaining", "")
    if not (limit.isdecimal() and remaining.isdecimal()) or int(limit) == 0:
        return None
    return Allowance(int(limit), min(int(remaining), int(limit)))


_MOST_CHARS = 300
_KEY = re.compile(r"(sk-[A-Za-z0-9_-]{6,}|Bearer\s+\S+|[A-Za-z0-9_-]{40,})")
_MENDING = {
    401: "the key was refused (401): set ANTHROPIC_API_KEY to a valid one",
    402: "the account cannot pay (402): check its credit",
    403: "the key may not use this model (403): check its permissions, or choose another model (--model)",
    404: "the server does not know this model or address (404): check model (--model) and ANTHROPIC_BASE_URL",
    413: "the request is too large for the server (413): use fewer or shorter documents",
}
_BUSY_TYPES = ("overloaded_error", "rate_limit_error")
_MAY_PASS = re.compile(
    r"api_error|overload|rate_?limit|time_?d?_?out|unavailable|server|internal|busy|capacity|^(408|409|429|5\d\d)$",
    re.IGNORECASE,
)
"""Types or codes of errors that may pass with a retry: of the provider, of OpenAI's protocol
and of llama.cpp.
"""
_WORDS = ("message", "detail", "msg")
"""Fields of an error that servers use for their message."""
_BROKEN = (anthropic.APIConnectionError, httpx2.HTTPError, aiohttp.ClientError)
_NOT_UNDERSTOOD = (
    anthropic.AnthropicError,
    ValueError,
    LookupError,
    AttributeError,
    TypeError,
    RuntimeError,
)


@contextmanager
def translated_errors(sending: RequestProgress, settings: ClientSettings) -> Iterator[None]:
    """Raise a `ModelError` in place of each exception of the SDK and its HTTP client in the
    block.

    An invalid stream causes many kinds of exceptions in the SDK's decoder (JSON, lookups,
    attributes). Each exception becomes `ModelUnreachable`, because a retry may help. An
    exception before the first byte was sent is about credentials, the request or the
    connection.
    """
    try:
        yield
    except HandoffError:
        raise
    except anthropic.APIStatusError as error:
        raise _of_status(error) from error
    except Exception as error:
        if not sending.has_begun:
            raise unsent_error(error, settings) from error
        if isinstance(error, _BROKEN):
            cause: BaseException = error
            if isinstance(error, anthropic.APIError) and error.__cause__ is not None:
                cause = error.__cause__
            raise ModelUnreachable(
                f"the connection to the model's server broke ({type(cause).__name__})"
            ) from error
        if isinstance(error, _NOT_UNDERSTOOD):
            raise ModelUnreachable(
                f"the server's answer could not be understood ({type(error).__name__})"
            ) from error
        raise


def _of_status(error: anthropic.APIStatusError) -> ModelError:
    status, message = error.status_code, _message_of(error.body)
    if status < 400:
        return _of_no_error_status(error, message)
    match status:
        case 429 | 529:
            reason = "rate limit of the model's server"
            if status == 529:
                reason = "the model's server is overloaded"
            headers = error.response.headers
            return ModelBusy(
                f"{reason} ({status}){message}",
                status=status,
                retry_after_s=_retry_after_s(headers),
                limits=limits_of(headers),
            )
        case 407:
            return ModelRejected(proxy_refuses(error.request.url.scheme), status=status)
        case 408 | 409 | 425:
            return ModelUnreachable(
                f"the model's server gave up on the request ({status}){message}", status=status
            )
        case _ if status >= 500:
            return ModelUnreachable(
                f"the model's server failed ({status}){message}",
                status=status,
                retry_after_s=_retry_after_s(error.response.headers),
            )
        case _:
            return ModelRejected(
                _MENDING.get(status, f"the model's server refused the request ({status})")
                + message,
                status=status,
            )


def _of_no_error_status(error: anthropic.APIStatusError, message: str) -> ModelError:
    """Return the error for a redirect or for an error event of a successful reply."""
    if 300 <= error.status_code < 400 and "location" in error.response.headers:
        return ModelRejected(
            f"the model's server redirects to another address ({error.status_code}): "
            "set ANTHROPIC_BASE_URL to the address that it redirects to",
            status=error.status_code,
        )
    return _of_stream_event(str(error.type or ""), message)


def is_error(value: Any) -> bool:
    """Return whether a JSON value is an error that the server sent in place of a reply or an
    event.

    An error has the type "error", or it has a field `error` or `errors`, or it has a message
    and no type. The last two do not hold for a value with the content of a reply.
    """
    if not isinstance(value, dict):
        return False
    if value.get("type") == "error":
        return True
    for name in ("content", "message", "delta"):
        if isinstance(value.get(name), dict | list):
            return False
    if value.get("error") or value.get("errors"):
        return True
    has_message = any(isinstance(value.get(name), str) for name in _WORDS)
    return has_message and not isinstance(value.get("type"), str)


def error_of_event(data: str) -> ModelError:
    """Return the `ModelError` for the text of an error event, or of an error in place of a reply."""
    try:
        body = json.loads(data)
    except ValueError:
        body = data
    inner = None
    if isinstance(body, dict):
        inner = body.get("error")
    kind = None
    if isinstance(inner, dict):
        kind = inner.get("type") or inner.get("code")
    return _of_stream_event(
        in_whole_characters(" ".join(str(kind or "").split())), _message_of(body)
    )


def _of_stream_event(kind: str, message: str) -> ModelError:
    """Return the error of a reply with status 200. Only its type or code tells whether another
    try may help.

    An error with a message and another type or no type, such as "model not loaded" of a local
    server, would come again.

    Args:
        kind: type or code of the error, or "".
        message: the server's message, with a colon in front, or "".
    """
    if kind in _BUSY_TYPES:
        return ModelBusy(f"the model's server is overloaded ({kind}){message}")
    if message and not _MAY_PASS.search(kind):
        return ModelRejected(
            f"the model's server refused the request{kind and f' ({redact(kind)[:60]})'}{message}"
        )
    return ModelUnreachable(f"the model's server failed in the middle of its answer{message}")


def _message_of(body: Any) -> str:
    """Return the server's message in one line, redacted, with a colon in front, or "" if there
    is none. Some servers leave out the outer object, and some send text.
    """
    message = body
    if isinstance(body, dict):
        message = body.get("error") or body.get("errors") or body
    for _ in range(3):  # such as {"detail": [{"msg": "..."}]} of FastAPI
        if isinstance(message, list):
            message = next(iter(message), None)
        if isinstance(message, dict):
            message = _first_message(message)
    if not isinstance(message, str) or not message.strip() or "<html" in message.lower():
        return ""
    return ": " + redact(in_whole_characters(" ".join(message.split())))[:_MOST_CHARS]


def _first_message(error: Mapping[str, Any]) -> Any:
    """Return the first field of `_WORDS` that has a value, or None."""
    for name in _WORDS:
        if error.get(name):
            return error[name]
    return None


def redact(text: str) -> str:
    """Return the text with each likely key or password hidden."""
    return _KEY.sub(HIDDEN, without_credentials(text))


def _retry_after_s(headers: Any) -> float | None:
    """Return the seconds to wait by the header `retry-after-ms` or `retry-after`, or None.
    `retry-after` is a number of seconds or a date (RFC 9110, section 10.2.3).
    """
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            wait_s = float(headers[name]) * unit_s
        except (KeyError, ValueError):
            continue
        if isfinite(wait_s):  # `nan` and `inf` are floats, too
            return wait_s
    try:
        at = parsedate_to_datetime(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return max(0.0, at.timestamp() - time.time())
