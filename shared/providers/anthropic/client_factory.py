"""Builds the model of a process from its settings. Only this module builds clients of providers."""

from __future__ import annotations

import os
import resource
import ssl
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import anthropic
import httpx2
from pydantic import SecretStr

from handoff_queue.shared.providers.anthropic.http_client import WatchedClient
from handoff_queue.shared.providers.anthropic.model import AnthropicModel
from handoff_queue.shared.providers.anthropic.streamed_call import Client
from handoff_queue.shared.providers.model_facts import create_model_server
from handoff_queue.shared.settings.http_values import check_server_url, split_credentials
from handoff_queue.shared.settings.settings import DEFAULT_BASE_URL, Settings
from handoff_queue.shared.types.errors import MissingCredentials, UserError
from handoff_queue.shared.types.model import Model

_NO_KEY = "no-key-needed"
"""Key for a server of the user if no key is set. The SDK requires a key, and local servers
ignore it.
"""
_OTHER_FILES = 256
"""Files that a process opens in addition to its connections to the model: Redis, logs,
documents.
"""
_NO_LIMIT = 0
"""The value with which aiohttp does not limit connections."""
_PLACES = {
    "bedrock": "AWS_REGION",
    "vertex": "CLOUD_ML_REGION",
    "foundry": "ANTHROPIC_FOUNDRY_RESOURCE",
}
"""Environment variables from which the SDK builds the address of a provider's server."""
_EXTRAS = {"bedrock": ("botocore", "bedrock"), "vertex": ("google.auth", "vertex")}
"""Module that a provider needs, and the extra of the SDK that installs it."""


def create_model(settings: Settings) -> Model:
    """Return the model of this process.

    Raises:
        UserError: there is no key, or the provider's packages or settings are missing or invalid.
    """
    if settings.is_offline:
        return AnthropicModel(_create_offline_client())
    match settings.model_provider:
        case "anthropic":
            client = _create_anthropic_client(settings)
            return AnthropicModel(client, create_model_server(settings, load_certificates()))
        case "bedrock" | "vertex" | "foundry":
            return AnthropicModel(_make_cloud_client(settings.model_provider))


def _create_offline_client() -> anthropic.AsyncAnthropic:
    # Imported here, because a process with a real model does not need it.
    from handoff_queue.shared.providers.offline.transport import OfflineTransport

    http_client = anthropic.DefaultAsyncHttpxClient(transport=OfflineTransport())
    return anthropic.AsyncAnthropic(
        api_key="offline", base_url="http://offline.invalid", **_build_client_options(http_client)
    )


def _create_anthropic_client(settings: Settings) -> anthropic.AsyncAnthropic:
    """Return the client of Anthropic's API, or of a server that speaks it.

    Raises:
        MissingCredentials: there is no key, and no server of the user's own.
    """
    key = _get_secret(settings.anthropic_api_key)
    token = None
    if not key:
        token = _get_secret(settings.anthropic_auth_token)
    base_url, headers = _get_address(settings)
    if headers and key:
        headers["X-Api-Key"] = key  # the credentials of the URL take the SDK's usual header
    if not key and not token and settings.anthropic_base_url:
        key = _NO_KEY
    try:
        client = anthropic.AsyncAnthropic(
            api_key=key,
            auth_token=token,
            base_url=base_url,
            default_headers=headers,
            **_build_client_options(),
        )
    except (anthropic.AnthropicError, ValueError) as error:
        raise MissingCredentials(
            f"the credentials of the model cannot be loaded ({type(error).__name__}): set"
            " ANTHROPIC_API_KEY"
        ) from error
    if not (client.api_key or client.auth_token or client.credentials):
        raise MissingCredentials(
            "a real model needs a key: set ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL for a server of"
            " your own"
        )
    return client


def _get_secret(setting: SecretStr | None) -> str | None:
    """Return the text of a secret setting, or None if it is not set or empty."""
    return setting.get_secret_value() if setting else None


def _get_address(settings: Settings) -> tuple[str | None, dict[str, str]]:
    """Return the URL of the server, and the header with the credentials of the URL. None: the
    SDK takes its own URL.
    """
    url = settings.anthropic_base_url
    if url is None and "ANTHROPIC_BASE_URL" in os.environ:
        # Compose sets an empty variable, which the SDK would take for a URL.
        url = DEFAULT_BASE_URL
    if not url:
        return None, {}
    return split_credentials(url)


def _compute_max_connections() -> int:
    """Return the number of connections that a process may open: all files that the system
    allows, except `_OTHER_FILES`. The SDK's own limit of 1,000 could make a call wait.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return _NO_LIMIT
    return max(1, files - _OTHER_FILES)


def _create_http_client() -> httpx2.AsyncClient:
    """Return a client over aiohttp, whose compiled parser reads streams faster.

    The client follows no redirect: httpx would send the key to the other address, and a POST
    would become a GET.
    """
    limits = httpx2.Limits(max_connections=_compute_max_connections())
    return WatchedClient(limits=limits, follow_redirects=False, verify=load_certificates())


def load_certificates() -> ssl.SSLContext:
    """Return the TLS context of all clients. It takes about 40 ms to load the certificates of the
    system's authorities. A process that forks loads them once for its children.
    """
    certificates = os.environ.get("SSL_CERT_FILE")
    changed_ns = None
    if certificates:
        with suppress(OSError):  # the context reports it
            changed_ns = Path(certificates).stat().st_mtime_ns
    places = (certificates, os.environ.get("SSL_CERT_DIR"), os.environ.get("SSLKEYLOGFILE"))
    return _create_tls_context(places, changed_ns)


@cache
def _create_tls_context(_places: tuple[str | None, ...], _changed_ns: int | None) -> ssl.SSLContext:
    """Return the context that all clients share while these variables and this file stay the
    same.
    """
    return httpx2.create_ssl_context()


def _build_client_options(http_client: httpx2.AsyncClient | None = None) -> dict[str, Any]:
    """Return the options of every client."""
    return {
        "max_retries": 0,
        "open_telemetry": False,
        "http_client": http_client or _create_http_client(),
    }


def _make_cloud_client(name: str) -> Client:
    """Return the client of a cloud provider: bedrock, vertex or foundry. Its packages are imported
    now, so that a missing package is reported before the first call.

    Raises:
        UserError: packages or settings of the provider are missing or invalid.
    """
    module, extra = _EXTRAS.get(name, ("anthropic", name))
    try:
        __import__(module)
    except ImportError as error:
        raise UserError(
            f"HANDOFF_MODEL_PROVIDER={name} needs more packages: pip install 'anthropic[{extra}]'"
        ) from error
    try:
        client = _create_client(name)
    except httpx2.InvalidURL as error:
        raise _build_invalid_address_error(name) from error
    except (anthropic.AnthropicError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"HANDOFF_MODEL_PROVIDER={name} is not configured: {reason}") from error
    try:
        check_server_url(str(client.base_url))
    except ValueError as error:
        raise _build_invalid_address_error(name) from error
    return client


def _create_client(provider: str) -> Client:
    """Return a client of the SDK. It reads the provider's own environment variables."""
    if provider == "bedrock":
        return anthropic.AsyncAnthropicBedrock(**_build_client_options())
    if provider == "vertex":
        return anthropic.AsyncAnthropicVertex(**_build_client_options())
    return anthropic.AsyncAnthropicFoundry(**_build_client_options())


def _build_invalid_address_error(provider: str) -> UserError:
    """Return the error for a region or resource name that gives no valid address. The message
    does not quote the value.
    """
    return UserError(
        f"HANDOFF_MODEL_PROVIDER={provider}: its server has no valid address: correct"
        f" {_PLACES[provider]}"
    )
