"""Facts about models that the provider's endpoint `/v1/models` names, such as the retirement day
and the capabilities.

Only the provider has this endpoint. A server without it, or with another answer, gives no facts.
"""

from __future__ import annotations

import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

from handoff_queue.shared.settings.http_values import parse_headers, split_credentials
from handoff_queue.shared.settings.settings import DEFAULT_BASE_URL, MORE_HEADERS, Settings
from handoff_queue.shared.types.context_edits import build_beta_header, is_supported

API_VERSION = "2023-06-01"
"""The version header that the Messages API asks for."""
WITHIN_S = 5.0
"""Longest time of one request, in seconds, and longest wait for a part of its answer."""
_HAS_NO_MODELS = (400, 404, 405, 501)
"""HTTP status of servers without a Models API."""
MAX_ANSWER_BYTES = 8_000_000
"""Most bytes of an answer. The facts about a model take about 2,000 bytes, and the longest list has
1,000 models.
"""
_READ_BYTES = 65_536
"""Most bytes of one read of an answer."""
EFFORT, THINKING = ("effort",), ("thinking",)
CODE = ("server_tools", "code_execution")
"""Places of capabilities in the facts of a model."""
MAX_NAMED = 8
"""Most models that a message names."""


@dataclass(frozen=True, slots=True)
class ModelServer:
    """The server of the models, and the headers with the key."""

    base: str
    headers: Mapping[str, str] = field(repr=False)
    tls: ssl.SSLContext | None = None
    """Certificates of the client. None: those of the system."""

    def fetch_facts(self, model: str, betas: Sequence[str] = ()) -> Mapping[str, Any]:
        """Return the server's facts about a model; empty if it gives none.

        Args:
            betas: betas of the API whose facts are asked for.
        """
        try:
            return self.ask(model, betas)
        except NoAnswer:
            return {}

    def ask(self, model: str, betas: Sequence[str] = ()) -> Mapping[str, Any]:
        """Return the server's facts about a model; empty if it has none.

        Args:
            betas: see `fetch_facts`.

        Raises:
            NoAnswer: another request may have an answer.
        """
        return self._get(f"/v1/models/{quote(model, safe='')}", betas)

    def list_models_with(self, place: tuple[str, ...]) -> list[str]:
        """Return the models that are in use and have a capability. Empty: none, or unknown."""
        try:
            model_list = self._get("/v1/models?limit=1000", ()).get("data")
        except NoAnswer:
            return []
        if not isinstance(model_list, list):
            return []
        names: list[str] = []
        for facts in model_list:
            is_active = isinstance(facts, dict) and facts.get("lifecycle") != "retired"
            if is_active and is_supported(facts, place) and isinstance(facts.get("id"), str):
                names.append(facts["id"])
        return names

    def _get(self, path: str, betas: Sequence[str]) -> Mapping[str, Any]:
        """Return the JSON object at a path; empty for another answer.

        Raises:
            NoAnswer: see `ask`.
        """
        headers = dict(self.headers)
        if betas:
            headers |= build_beta_header(headers, betas)
        request = urllib.request.Request(f"{self.base}{path}", headers=headers)  # noqa: S310 (http and https only)
        try:
            with open_without_redirects(request, self.tls) as response:
                value = json.loads(_read(response))
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in _HAS_NO_MODELS:
                return {}
            raise NoAnswer from error
        except (OSError, HTTPException) as error:
            raise NoAnswer from error
        except ValueError:  # the answer is not JSON
            return {}
        if isinstance(value, dict):
            return value
        return {}


class NoAnswer(Exception):
    """The server cannot be reached, refuses the request or does not answer in time."""


def _read(response: Any) -> bytes:
    """Return the body of an answer.

    Raises:
        OSError: the body does not end within `WITHIN_S`, or is too long.
    """
    until = time.monotonic() + WITHIN_S
    body = bytearray()
    while part := response.read1(_READ_BYTES):
        body += part
        if time.monotonic() > until or len(body) > MAX_ANSWER_BYTES:
            raise OSError
    return bytes(body)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: the key would go to the other address."""

    def redirect_request(self, *_: Any) -> None:
        return None


def open_without_redirects(
    request: urllib.request.Request, tls: ssl.SSLContext | None = None
) -> Any:
    """Send a request with the key, and return the response, which is a context manager.

    Args:
        tls: see `ModelServer`.

    Raises:
        HTTPError: the server answers with an error, or with a redirect.
        URLError: the server cannot be reached.
    """
    https = urllib.request.HTTPSHandler(context=tls)
    return urllib.request.build_opener(_NoRedirects, https).open(request, timeout=WITHIN_S)


def create_model_server(settings: Settings, tls: ssl.SSLContext | None = None) -> ModelServer:
    """Return the server of the settings, for the provider `anthropic`. Its headers include those of
    the environment, as the SDK sends them.
    """
    url = settings.anthropic_base_url or DEFAULT_BASE_URL
    base, of_url = split_credentials(url.rstrip("/"))
    headers = {"anthropic-version": API_VERSION}
    if settings.anthropic_api_key:
        headers["x-api-key"] = settings.anthropic_api_key.get_secret_value()
    elif settings.anthropic_auth_token:
        headers["Authorization"] = f"Bearer {settings.anthropic_auth_token.get_secret_value()}"
    more = parse_headers(os.environ.get(MORE_HEADERS, ""))
    return ModelServer(base, {**headers, **more, **of_url}, tls)


def lacks(facts: Mapping[str, Any], place: tuple[str, ...]) -> bool:
    """Return whether the server says that the model does not support a capability."""
    return is_supported(facts, place) is False


def without_code(server: ModelServer, models: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each model that lacks the provider's code execution, and a remedy.

    Args:
        models: names of the models of a specialist with `sandbox: provider`.
    """
    for model in models:
        if not lacks(server.fetch_facts(model), CODE):
            continue
        remedy = "write `sandbox: local`, or name another model"
        if able := server.list_models_with(CODE):
            remedy += f": {', '.join(able[:MAX_NAMED])}"
        yield model, remedy
