"""Errors for model calls that were never sent. Each message is one line and names the setting
to change.

No message quotes the text of an exception, which may contain a key or the password of a proxy.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp
import anthropic
import httpx2

from handoff_queue.shared.settings.http_values import proxy_of
from handoff_queue.shared.types.errors import ModelError, NeverSent, Unsendable

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
        "the AWS credentials (AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) and AWS_REGION",
    ),
    anthropic.AsyncAnthropicVertex: ClientSettings(
        "ANTHROPIC_VERTEX_BASE_URL",
        "the Google credentials (GOOGLE_APPLICATION_CREDENTIALS, or `gcloud auth application-default login`)",
    ),
    anthropic.AsyncAnthropicFoundry: ClientSettings(
        "ANTHROPIC_FOUNDRY_BASE_URL", "ANTHROPIC_FOUNDRY_API_KEY"
    ),
}
_ANTHROPIC = ClientSettings("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY and ANTHROPIC_CUSTOM_HEADERS")


def settings_of(client: object) -> ClientSettings:
    """Return the names of the settings of an Anthropic client."""
    return _SETTINGS.get(type(client), _ANTHROPIC)


def unsent_error(error: Exception, settings: ClientSettings) -> ModelError:
    """Return the error for an exception that was raised before the first byte of the request
    was sent.
    """
    causes = tuple(_causes(error))
    for cause in causes:
        if isinstance(cause, aiohttp.ClientHttpProxyError):
            return _of_proxy_status(cause.status)
        if isinstance(cause, aiohttp.ClientConnectorError):
            return _of_connector(cause, settings)
    name = type(causes[0]).__name__
    if isinstance(causes[0], httpx2.HTTPError | aiohttp.ClientError) and _may_pass(causes):
        return NeverSent(f"no connection to the model's server ({name}): check {_way(settings)}")
    message = (
        f"the request to the model's server could not be made ({name}): "
        f"check {settings.credentials}, and {settings.address}"
    )
    if _may_pass(causes):
        return NeverSent(message)
    return Unsendable(message)


def _of_connector(error: aiohttp.ClientConnectorError, settings: ClientSettings) -> ModelError:
    """Return the error for a connection that aiohttp could not open."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _of_certificate(error, settings)
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return _of_tls(error, settings)
    place = f"{error.host}:{error.port} ({_system_words(error)})"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        variable = _address_variable(error, settings)
        return NeverSent(f"no connection to the proxy {place}: check {variable}")
    return NeverSent(f"no connection to the model's server {place}: check {_way(settings)}")


def proxy_refuses(scheme: str) -> str:
    """Return the message for a proxy's 407 to a request for a server of this scheme."""
    name, host = _proxy(scheme)
    return (
        f"the proxy {host} needs a user and a password (407): "
        f"correct {name}, which looks like http://user:password@proxy.example:3128"
    )


def _of_proxy_status(status: int) -> ModelError:
    if status == 407:
        return Unsendable(proxy_refuses("https"), status=status)
    name, host = _proxy("https")
    if status < 500 and status not in _PASSING_PROXY_STATUSES:
        return Unsendable(
            f"the proxy {host} refuses a connection to the model's server ({status}): "
            f"change its rules, or correct {name} or NO_PROXY",
            status=status,
        )
    return NeverSent(
        f"the proxy {host} has no connection to the model's server ({status}): check {name}",
        status=status,
    )


def _of_certificate(
    error: aiohttp.ClientConnectorCertificateError, settings: ClientSettings
) -> ModelError:
    reason = error.certificate_error
    code = getattr(reason, "verify_code", 0)
    words = str(getattr(reason, "verify_message", "") or type(reason).__name__).rstrip(".")
    if code in _NAME_MISMATCHES:
        advice = f"correct the host in {_address_variable(error, settings)}"
    elif code in _DATES:
        advice = "have the certificate renewed, or correct the clock of this machine"
    else:
        advice = "name a file with the certificate of its authority in SSL_CERT_FILE"
    return Unsendable(
        f"the certificate of {error.host}:{error.port} was refused ({words}): {advice}"
    )


def _of_tls(error: aiohttp.ClientConnectorSSLError, settings: ClientSettings) -> ModelError:
    reason = error.os_error
    words = getattr(reason, "reason", None) or type(reason).__name__
    message = (
        f"no TLS connection to {error.host}:{error.port} ({words}): "
        f"check the scheme and the port in {_address_variable(error, settings)}"
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


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and its causes, without the SDK's wrapper `APIConnectionError`."""
    cause: BaseException | None = error
    if isinstance(error, anthropic.APIConnectionError) and error.__cause__ is not None:
        cause = error.__cause__
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _system_words(error: aiohttp.ClientConnectorError) -> str:
    return error.os_error.strerror or type(error.os_error).__name__


def _way(settings: ClientSettings) -> str:
    """Return what the user must check if there is no connection: the network and the settings."""
    proxy = proxy_of("https", os.environ) or proxy_of("http", os.environ)
    if proxy:
        return f"the network, {proxy[0]} and {settings.address}"
    return f"the network, and {settings.address}"


def _address_variable(error: aiohttp.ClientConnectorError, settings: ClientSettings) -> str:
    """Return the environment variable with the address of a failed connection: of a proxy, or
    of the model's server.
    """
    for scheme in ("https", "http"):
        name, host = _proxy(scheme)
        if host == f"{error.host}:{error.port}":
            return name
    return settings.address


def _proxy(scheme: str) -> tuple[str, str]:
    """Return the environment variable of the proxy for servers of this scheme, and the proxy's
    host and port.
    """
    name, url = proxy_of(scheme, os.environ) or (f"{scheme.upper()}_PROXY", "")
    if "://" not in url:
        url = f"http://{url}"
    parts = urlsplit(url)
    default_port = 80
    if parts.scheme == "https":
        default_port = 443
    return name, f"{parts.hostname or ''}:{parts.port or default_port}"
