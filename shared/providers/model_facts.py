"""Facts about models that the provider's endpoint `/v1/models` names, such as the retirement day
and the capabilities.

Only the provider has this endpoint. A server without it, or with another answer, gives no facts.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

from handoff_queue.shared.settings.http_values import split_credentials
from handoff_queue.shared.settings.settings import DEFAULT_BASE_URL, Settings
from handoff_queue.shared.types.context_edits import is_supported

API_VERSION = "2023-06-01"
"""The version header that the Messages API asks for."""
WITHIN_S = 5.0
"""Longest time of one request, in seconds."""
EFFORT, THINKING = ("effort",), ("thinking",)
CODE = ("server_tools", "code_execution")
"""Places of capabilities in the facts of a model."""
MAX_NAMED = 8
"""Most models that a message names."""


@dataclass(frozen=True, slots=True)
class ModelServer:
    """The server of the models, and the headers with the key."""

    base: str
    headers: Mapping[str, str]

    def facts(self, model: str, headers: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        """Return the server's facts about a model; empty if it gives none. `headers`: more headers
        of the request.
        """
        return self._get(f"/v1/models/{quote(model, safe='')}", headers or {})

    def models_with(self, place: tuple[str, ...]) -> list[str]:
        """Return the models that are in use and have a capability. Empty: none, or unknown."""
        listed = self._get("/v1/models?limit=1000", {}).get("data")
        if not isinstance(listed, list):
            return []
        names: list[str] = []
        for facts in listed:
            is_active = isinstance(facts, dict) and facts.get("lifecycle") != "retired"
            if is_active and is_supported(facts, place) and isinstance(facts.get("id"), str):
                names.append(facts["id"])
        return names

    def _get(self, path: str, more: Mapping[str, str]) -> Mapping[str, Any]:
        headers = {**self.headers, **more}
        request = urllib.request.Request(f"{self.base}{path}", headers=headers)  # noqa: S310 (http and https only)
        try:
            with open_without_redirects(request) as response:
                value = json.loads(response.read())
        except (OSError, ValueError, HTTPException):
            return {}
        if isinstance(value, dict):
            return value
        return {}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: the key would go to the other address."""

    def redirect_request(self, *_: Any) -> None:
        return None


def open_without_redirects(request: urllib.request.Request) -> Any:
    """Send a request with the key, and return the response, which is a context manager.

    Raises:
        HTTPError: the server answers with an error, or with a redirect.
        URLError: the server cannot be reached.
    """
    return urllib.request.build_opener(_NoRedirects).open(request, timeout=WITHIN_S)


def server_of(settings: Settings) -> ModelServer:
    """Return the server of the settings, for the provider `anthropic`."""
    url = settings.anthropic_base_url or DEFAULT_BASE_URL
    base, of_url = split_credentials(url.rstrip("/"))
    headers = {"anthropic-version": API_VERSION}
    if settings.anthropic_api_key:
        headers["x-api-key"] = settings.anthropic_api_key.get_secret_value()
    elif settings.anthropic_auth_token:
        headers["Authorization"] = f"Bearer {settings.anthropic_auth_token.get_secret_value()}"
    return ModelServer(base, {**headers, **of_url})


def lacks(facts: Mapping[str, Any], place: tuple[str, ...]) -> bool:
    """Return whether the server says that the model does not support a capability."""
    return is_supported(facts, place) is False


def without_code(server: ModelServer, models: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each model that lacks the provider's code execution, and a remedy.

    Args:
        models: names of the models of a specialist with `sandbox: provider`.
    """
    for model in models:
        if not lacks(server.facts(model), CODE):
            continue
        remedy = "write `sandbox: local`, or name another model"
        if able := server.models_with(CODE):
            remedy += f": {', '.join(able[:MAX_NAMED])}"
        yield model, remedy
