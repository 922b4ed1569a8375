"""Check whether a model can be reached, with one free request to its server."""

from __future__ import annotations

import urllib.error
import urllib.request
from http import HTTPStatus
from http.client import HTTPException

from handoff_queue.shared.providers.anthropic.base_url import split_credentials
from handoff_queue.shared.settings.optional_packages import check_extra
from handoff_queue.shared.settings.settings import DEFAULT_BASE_URL, Settings
from handoff_queue.shared.types.errors import UserError

WITHIN_S = 5.0
API_VERSION = "2023-06-01"
"""The version header that the Messages API asks for."""
_CHECK = "check the network, proxies and ANTHROPIC_BASE_URL"
_PROXY_REFUSES = (
    "the proxy needs a user and a password (407): HTTPS_PROXY (or HTTP_PROXY for an http:// server) "
    "looks like http://user:password@proxy.example:3128"
)
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


def model_access(settings: Settings) -> tuple[str, str, str]:
    """Return `ok`, `warn` or `fail`, the state of the model's server, and how to fix it.

    The offline model is a warning.
    """
    if settings.is_offline:
        found = "the offline model: it only quotes and arranges documents"
        fix = "set ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL for a server of your own"
        return "warn", found, fix
    names = f"{settings.supervisor_model}, {settings.specialist_model}"
    if settings.model_provider != "anthropic":
        return _of_provider(settings, names)
    base, headers = split_credentials((settings.anthropic_base_url or DEFAULT_BASE_URL).rstrip("/"))
    return _ask(base, {**_headers(settings), **headers}, names)


def _of_provider(settings: Settings, names: str) -> tuple[str, str, str]:
    """Check that a client can be made. No free request works with all providers."""
    try:
        check_extra("worker", "a worker", "worker")
        from handoff_queue.shared.runtime.models import provider_models  # imports the SDK

        provider_models(settings)
    except UserError as error:
        return "fail", str(error), "a worker started from here would refuse to start"
    found = f"{settings.model_provider} ({names}); its first call checks the credentials"
    return "ok", found, ""


def _ask(base: str, headers: dict[str, str], names: str) -> tuple[str, str, str]:
    try:
        request = urllib.request.Request(f"{base}/v1/models?limit=1", headers=headers)  # noqa: S310 (http and https only)
        with urllib.request.urlopen(request, timeout=WITHIN_S):  # noqa: S310
            return "ok", f"{base} accepts the key ({names})", ""
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            return "fail", f"{base} cannot be reached (407)", _PROXY_REFUSES
        if error.code in _REFUSED:
            return "fail", f"{base} refuses the key ({error.code})", "check ANTHROPIC_API_KEY"
        if error.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return "warn", f"{base} answers {error.code}", "try again later"
        return "ok", f"{base} answers ({error.code} to a list of models; {names})", ""
    except (OSError, ValueError, HTTPException) as error:
        fix = _CHECK
        if "Tunnel connection failed: 407" in str(error):
            fix = _PROXY_REFUSES
        return "fail", f"{base} cannot be reached ({_reason_of(error)})", fix


def _reason_of(error: Exception) -> str:
    """Return the operating system's text for a failed connection, or else the type of the
    error.

    Other texts may quote the request, which contains the key.
    """
    reason = getattr(error, "reason", error)
    if isinstance(reason, OSError):
        return str(reason)
    return type(reason).__name__


def _headers(settings: Settings) -> dict[str, str]:
    headers = {"anthropic-version": API_VERSION}
    if settings.anthropic_api_key:
        headers["x-api-key"] = settings.anthropic_api_key.get_secret_value()
    elif settings.anthropic_auth_token:
        headers["Authorization"] = f"Bearer {settings.anthropic_auth_token.get_secret_value()}"
    return headers
