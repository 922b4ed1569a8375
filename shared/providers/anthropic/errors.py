"""Errors of the Messages API, the rate limits that its replies report, and errors for model
calls that were never sent.

Each message is one line and names the setting to change. No message quotes the text of an
exception, which may contain a key or the password of a proxy.
"""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import anthropic
import httpx2

from handoff_queue.shared.observability.redaction import HIDDEN, without_credentials
from handoff_queue.shared.providers.anthropic.http_client import RequestProgress
from handoff_queue.shared.providers.anthropic.rate_limit_headers import (
    parse_rate_limits,
    parse_retry_after_s,
)
from handoff_queue.shared.settings.http_values import find_proxy
from handoff_queue.shared.text.unicode_text import replace_lone_surrogates, replace_unprintable
from handoff_queue.shared.types.errors import (
    HandoffError,
    ModelBusy,
    ModelError,
    ModelRejected,
    ModelUnreachable,
    NeverSent,
    ServerFailed,
    Unsendable,
)
from handoff_queue.shared.types.limits import MAX_MODEL_ERROR_CHARS

_NAME_MISMATCHES = (62, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL's x509_vfy.h."""
_DATES = (9, 10)
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""
_PASSING_PROXY_STATUSES = (408, 425, 429)
_NETWORK_ERRORS = frozenset(
    {"ConnectionError", "TimeoutError", "HTTPClientError", "TransportError", "gaierror"}
)
"""Names of the classes of errors that may pass with a retry: Python's, botocore's,
google-auth's and httpx's.
"""
_UNUSABLE_REQUESTS = (
    httpx2.UnsupportedProtocol,
    httpx2.LocalProtocolError,
    aiohttp.InvalidURL,
    aiohttp.NonHttpUrlClientError,
)


@dataclass(frozen=True)
class ClientSettings:
    """Names of the settings of one kind of client, for error messages."""

    address: str
    """Environment variable with the URL of the model's server."""
    credentials: str
    """Environment variables and commands that set the credentials."""


_SETTINGS = {
    anthropic.AsyncAnthropicBedrock: ClientSettings(
        "ANTHROPIC_BEDROCK_BASE_URL",
        "the AWS credentials (AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) and"
        " AWS_REGION",
    ),
    anthropic.AsyncAnthropicVertex: ClientSettings(
        "ANTHROPIC_VERTEX_BASE_URL",
        "the Google credentials (GOOGLE_APPLICATION_CREDENTIALS, or"
        " `gcloud auth application-default login`)",
    ),
    anthropic.AsyncAnthropicFoundry: ClientSettings(
        "ANTHROPIC_FOUNDRY_BASE_URL", "ANTHROPIC_FOUNDRY_API_KEY"
    ),
}
_ANTHROPIC = ClientSettings("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY and ANTHROPIC_CUSTOM_HEADERS")


def get_settings(client: object) -> ClientSettings:
    """Return the names of the settings of an Anthropic client."""
    return _SETTINGS.get(type(client), _ANTHROPIC)


def convert_unsent_error(error: Exception, settings: ClientSettings) -> ModelError:
    """Return the error for an exception that was raised before the first byte of the request
    was sent.
    """
    causes = tuple(_iterate_causes(error))
    for cause in causes:
        if isinstance(cause, aiohttp.ClientHttpProxyError):
            return _build_proxy_error(cause.status)
        if isinstance(cause, aiohttp.ClientConnectorError):
            return _convert_connector_error(cause, settings)
    name = type(causes[0]).__name__
    if isinstance(causes[0], httpx2.HTTPError | aiohttp.ClientError) and _may_pass(causes):
        return NeverSent(
            f"no connection to the model's server ({name}): check {_describe_way(settings)}"
        )
    message = (
        f"the request to the model's server could not be made ({name}): "
        f"check {settings.credentials}, and {settings.address}"
    )
    if _may_pass(causes):
        return NeverSent(message)
    return Unsendable(message)


def _convert_connector_error(
    error: aiohttp.ClientConnectorError, settings: ClientSettings
) -> ModelError:
    """Return the error for a connection that aiohttp could not open."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _convert_certificate_error(error, settings)
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return _convert_tls_error(error, settings)
    place = f"{error.host}:{error.port} ({_get_system_words(error)})"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        variable = _find_address_variable(error, settings)
        return NeverSent(f"no connection to the proxy {place}: check {variable}")
    return NeverSent(
        f"no connection to the model's server {place}: check {_describe_way(settings)}"
    )


def describe_proxy_refusal(scheme: str) -> str:
    """Return the message for a proxy's 407 to a request for a server of this scheme."""
    variable, host = _find_proxy(scheme)
    return (
        f"the proxy {host} needs a user and a password (407): "
        f"correct {variable}, which looks like http://user:password@proxy.example:3128"
    )


def _build_proxy_error(status: int) -> ModelError:
    if status == 407:
        return Unsendable(describe_proxy_refusal("https"), status=status)
    variable, host = _find_proxy("https")
    if status < 500 and status not in _PASSING_PROXY_STATUSES:
        return Unsendable(
            f"the proxy {host} refuses a connection to the model's server ({status}): "
            f"change its rules, or correct {variable} or NO_PROXY",
            status=status,
        )
    return NeverSent(
        f"the proxy {host} has no connection to the model's server ({status}): check {variable}",
        status=status,
    )


def _convert_certificate_error(
    error: aiohttp.ClientConnectorCertificateError, settings: ClientSettings
) -> ModelError:
    reason = error.certificate_error
    code = getattr(reason, "verify_code", 0)
    words = str(getattr(reason, "verify_message", "") or type(reason).__name__).rstrip(".")
    if code in _NAME_MISMATCHES:
        advice = f"correct the host in {_find_address_variable(error, settings)}"
    elif code in _DATES:
        advice = "have the certificate renewed, or correct the clock of this machine"
    else:
        advice = "name a file with the certificate of its authority in SSL_CERT_FILE"
    return Unsendable(
        f"the certificate of {error.host}:{error.port} was refused ({words}): {advice}"
    )


def _convert_tls_error(
    error: aiohttp.ClientConnectorSSLError, settings: ClientSettings
) -> ModelError:
    reason = error.os_error
    words = getattr(reason, "reason", None) or type(reason).__name__
    message = (
        f"no TLS connection to {error.host}:{error.port} ({words}): "
        f"check the scheme and the port in {_find_address_variable(error, settings)}"
    )
    is_cut = isinstance(reason, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError)
    if is_cut:
        return NeverSent(message)
    return Unsendable(message)


def _may_pass(causes: tuple[BaseException, ...]) -> bool:
    """Return whether a retry may help, because the network caused the error or google-auth
    calls it retryable.
    """
    may_pass = False
    for cause in causes:
        if isinstance(cause, _UNUSABLE_REQUESTS):
            return False
        is_of_network = any(kind.__name__ in _NETWORK_ERRORS for kind in type(cause).__mro__)
        if is_of_network or getattr(cause, "retryable", False) is True:
            may_pass = True
    return may_pass


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and its causes, without the SDK's wrapper `APIConnectionError`."""
    cause: BaseException | None = error
    if isinstance(error, anthropic.APIConnectionError) and error.__cause__ is not None:
        cause = error.__cause__
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _get_system_words(error: aiohttp.ClientConnectorError) -> str:
    return error.os_error.strerror or type(error.os_error).__name__


def _describe_way(settings: ClientSettings) -> str:
    """Return what the user must check if there is no connection: the network and the settings."""
    proxy = find_proxy("https", os.environ) or find_proxy("http", os.environ)
    if proxy:
        return f"the network, {proxy.variable} and {settings.address}"
    return f"the network, and {settings.address}"


def _find_address_variable(error: aiohttp.ClientConnectorError, settings: ClientSettings) -> str:
    """Return the environment variable with the address of a failed connection: of a proxy, or
    of the model's server.
    """
    for scheme in ("https", "http"):
        variable, host = _find_proxy(scheme)
        if host == f"{error.host}:{error.port}":
            return variable
    return settings.address


def _find_proxy(scheme: str) -> tuple[str, str]:
    """Return the environment variable of the proxy for servers of this scheme, and the proxy's
    host and port.
    """
    variable, url = find_proxy(scheme, os.environ) or (f"{scheme.upper()}_PROXY", "")
    if "://" not in url:
        url = f"http://{url}"
    parts = urlsplit(url)
    default_port = 80
    if parts.scheme == "https":
        default_port = 443
    return variable, f"{parts.hostname or ''}:{parts.port or default_port}"


_KEY = re.compile(r"(sk-[A-Za-z0-9_-]{6,}|Bearer\s+\S+|[A-Za-z0-9_-]{40,})")
_REMEDIES = {
    401: "the key was refused (401): set ANTHROPIC_API_KEY to a valid one",
    402: "the account cannot pay (402): check its credit",
    403: (
        "the key may not use this model (403): check its permissions, or choose another model"
        " for the job or in the specialist's file"
    ),
    404: (
        "the server does not know this model or address (404): check the model of the job or"
        " of the specialist's file, and ANTHROPIC_BASE_URL"
    ),
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
def translate_errors(progress: RequestProgress, settings: ClientSettings) -> Iterator[None]:
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
        raise _convert_status_error(error) from error
    except Exception as error:
        if not progress.has_begun:
            raise convert_unsent_error(error, settings) from error
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


def _convert_status_error(error: anthropic.APIStatusError) -> ModelError:
    """Return the error for a reply with an error status."""
    status = error.status_code
    message = _get_message(error.body)
    if status < 400:
        return _convert_unexpected_status(error, message)
    match status:
        case 429 | 529:
            reason = "rate limit of the model's server"
            if status == 529:
                reason = "the model's server is overloaded"
            headers = error.response.headers
            return ModelBusy(
                f"{reason} ({status}){message}",
                status=status,
                retry_after_s=parse_retry_after_s(headers),
                limits=parse_rate_limits(headers),
            )
        case 407:
            return ModelRejected(describe_proxy_refusal(error.request.url.scheme), status=status)
        case 408 | 409 | 425:
            return ModelUnreachable(
                f"the model's server gave up on the request ({status}){message}", status=status
            )
        case _ if status >= 500:
            kind = ModelUnreachable
            if status == 500 and _is_api_error(error.body):
                kind = ServerFailed
            return kind(
                f"the model's server failed ({status}){message}",
                status=status,
                retry_after_s=parse_retry_after_s(error.response.headers),
            )
        case _:
            meaning = _REMEDIES.get(status, f"the model's server refused the request ({status})")
            return ModelRejected(f"{meaning}{message}", status=status)


def _is_api_error(body: Any) -> bool:
    """Return whether the body of a reply with status 500 is the error of the Messages API itself.
    A gateway, which may have lost a complete reply, sends 502 or 504, or another body.
    """
    if not isinstance(body, dict) or body.get("type") != "error":
        return False
    inner = body.get("error")
    return isinstance(inner, dict) and inner.get("type") == "api_error"


def _convert_unexpected_status(error: anthropic.APIStatusError, message: str) -> ModelError:
    """Return the error for a redirect or for an error event of a successful reply."""
    if 300 <= error.status_code < 400 and "location" in error.response.headers:
        return ModelRejected(
            f"the model's server redirects to another address ({error.status_code}): "
            "set ANTHROPIC_BASE_URL to the address that it redirects to",
            status=error.status_code,
        )
    return _convert_stream_event_error(str(error.type or ""), message)


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
    if isinstance(value.get("type"), str):
        return False
    return any(isinstance(value.get(name), str) for name in _WORDS)


def convert_error_event(data: str) -> ModelError:
    """Return the `ModelError` for the text of an error event, or of an error in place of a
    reply.
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = data
    inner = body.get("error") if isinstance(body, dict) else None
    kind = ""
    if isinstance(inner, dict):
        kind = str(inner.get("type") or inner.get("code") or "")
    kind = replace_unprintable(replace_lone_surrogates(" ".join(kind.split())))
    return _convert_stream_event_error(kind, _get_message(body))


def _convert_stream_event_error(kind: str, message: str) -> ModelError:
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
        shown_kind = f" ({redact(kind)[:60]})" if kind else ""
        return ModelRejected(f"the model's server refused the request{shown_kind}{message}")
    return ModelUnreachable(f"the model's server failed in the middle of its answer{message}")


def _get_message(body: Any) -> str:
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
            message = _find_first_message(message)
    if not isinstance(message, str) or not message.strip() or "<html" in message.lower():
        return ""
    line = replace_lone_surrogates(" ".join(message.split()))
    return ": " + replace_unprintable(redact(line)[:MAX_MODEL_ERROR_CHARS])


def _find_first_message(error: Mapping[str, Any]) -> Any:
    """Return the first field of `_WORDS` that has a value, or None."""
    for name in _WORDS:
        if error.get(name):
            return error[name]
    return None


def redact(text: str) -> str:
    """Return the text with each likely key or password hidden."""
    return _KEY.sub(HIDDEN, without_credentials(text))
