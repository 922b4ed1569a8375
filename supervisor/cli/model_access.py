"""Whether a model can be reached from here: one free request to its server, no tokens."""

from __future__ import annotations

import urllib.error
import urllib.request
from http import HTTPStatus

from shared.agent.base_url import parted
from shared.config import Settings

WITHIN_S = 5.0
DEFAULT_BASE_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"
"""The version header that the Messages API asks for."""
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


def model_access(settings: Settings) -> tuple[str, str, str]:
    """(ok | warn | fail, what was found, how to mend it)."""
    if settings.is_offline:
        found = "the offline model: it quotes and arranges documents, and understands nothing"
        return (
            "warn",
            found,
            "set ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL for a server of your own",
        )
    names = f"{settings.supervisor_model}, {settings.specialist_model}"
    if settings.model_provider != "anthropic":
        return (
            "ok",
            f"{settings.model_provider} ({names}); its credentials are looked at when a worker starts",
            "",
        )
    base, headers = parted((settings.anthropic_base_url or DEFAULT_BASE_URL).rstrip("/"))
    if not base.startswith(("http://", "https://")):
        return (
            "fail",
            f"ANTHROPIC_BASE_URL is no http(s) URL: {base}",
            "it looks like https://gateway.example",
        )
    return _ask(base, {**_headers(settings), **headers}, names)


def _ask(base: str, headers: dict[str, str], names: str) -> tuple[str, str, str]:
    try:
        asked = urllib.request.Request(f"{base}/v1/models?limit=1", headers=headers)  # noqa: S310 (http and https only)
        with urllib.request.urlopen(asked, timeout=WITHIN_S):  # noqa: S310
            return "ok", f"{base} takes the key ({names})", ""
    except urllib.error.HTTPError as error:
        if error.code in _REFUSED:
            return "fail", f"{base} refuses the key ({error.code})", "check ANTHROPIC_API_KEY"
        if error.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return "warn", f"{base} answers {error.code}", "try again later"
        return "ok", f"{base} answers ({error.code} to a list of models; {names})", ""
    except (OSError, ValueError) as error:
        return (
            "fail",
            f"{base} cannot be reached ({getattr(error, 'reason', error)})",
            "check the network, proxies and ANTHROPIC_BASE_URL",
        )


def _headers(settings: Settings) -> dict[str, str]:
    headers = {"anthropic-version": API_VERSION}
    if settings.anthropic_api_key:
        headers["x-api-key"] = settings.anthropic_api_key.get_secret_value()
    elif settings.anthropic_auth_token:
        headers["Authorization"] = f"Bearer {settings.anthropic_auth_token.get_secret_value()}"
    return headers
