"""Redaction: removes secrets from log lines, Flower's columns and error messages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from pydantic import SecretStr

from handoff_queue.shared.settings.settings import Settings

HIDDEN: Final = "[redacted]"
SHORTEST_CONTAINED = 6
"""A secret shorter than this is hidden only where it is the whole value: "1" inside a text
means nothing.
"""

_SECRET_NAME = re.compile(
    r"(?:^|[_\-.])(?:(?:api_?|access_?|private_?|secret_?)?keys?|token|secrets?|passw(?:or)?ds?|passphrase|credentials?|authorization|cookies?)$",
    re.IGNORECASE,
)
_SECRET_VARIABLE = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|BASIC_AUTH", re.IGNORECASE
)
_HEADERS = re.compile(r"_HEADERS$")
"""OTEL_EXPORTER_OTLP_HEADERS and its like: `name=value,name=value`, and a collector's key
among them.
"""
_HARMLESS_NAMES = frozenset({"routing_key", "keys"})
_SHAPES = (
    (re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"), HIDDEN),  # user:password of any URL
    (re.compile(r"\bsk-[A-Za-z0-9_\-]{12,}"), HIDDEN),  # the model provider's keys
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=\-]{12,}"), rf"\1 {HIDDEN}"),
)
_MOST_DEPTH = 6


class Redactor:
    """Hides given values, texts that look like credentials, and all values under a name of a
    secret.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        given = {secret for secret in secrets if secret}
        self._whole = frozenset(given)
        spelled = {
            form
            for secret in given
            if len(secret) >= SHORTEST_CONTAINED
            for form in (secret, quote(secret, safe=""), unquote(secret))
        }
        # The longest first: a secret that contains another must not leave its tail behind.
        pattern = "|".join(re.escape(form) for form in sorted(spelled, key=len, reverse=True))
        self._contained = re.compile(pattern) if pattern else None

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        if text in self._whole:
            return HIDDEN
        if self._contained is not None:
            text = self._contained.sub(HIDDEN, text)
        return without_credentials(text)

    def value(self, value: Any, name: str = "", depth: int = 0) -> Any:
        """Return plain data without secrets; a value under the name of a secret is replaced.
        Figures and flags are never secrets.

        A value that is not plain data becomes its text, as a renderer would show it.
        """
        if isinstance(value, bool | int | float) or value is None:
            return value
        if _SECRET_NAME.search(name) and name not in _HARMLESS_NAMES:
            return HIDDEN
        if depth < _MOST_DEPTH:
            if isinstance(value, Mapping):
                return {
                    self.text(str(key)): self.value(item, str(key), depth + 1)
                    for key, item in value.items()
                }
            if isinstance(value, list | tuple | set | frozenset):
                return [self.value(item, depth=depth + 1) for item in value]
        return self.text(value if isinstance(value, str) else repr(value))


def without_credentials(text: str) -> str:
    """Return the text without any part that looks like a credential."""
    for shape, shown in _SHAPES:
        text = shape.sub(shown, text)
    return text


def secrets_of(settings: Settings, environment: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the values of environment variables with names of secrets, every secret setting, and
    the passwords of all URLs in both.
    """
    variables = os.environ if environment is None else environment
    secrets = {value for name, value in variables.items() if _SECRET_VARIABLE.search(name)}
    settled = {value.get_secret_value() for _, value in settings if isinstance(value, SecretStr)}
    urls = {
        part
        for value in (*variables.values(), *settled)
        if "://" in value
        for part in value.split(";")
    }
    passwords = {password for url in urls for password in _passwords_in(url)}
    secrets |= {
        secret
        for name, value in variables.items()
        if _HEADERS.search(name)
        for secret in _values_of_headers(value)
    }
    basic_auth = {
        part.partition(":")[2]
        for value in secrets
        for part in value.split(",")
        if ":" in part and "://" not in part
    }
    return frozenset(secrets | settled | passwords | basic_auth) - {""}


def _values_of_headers(headers: str) -> Iterator[str]:
    """Yield each value of `name=value,...`, and of `Name: value` lines. In a part without `=` each
    word may be the key.
    """
    for line in headers.split("\n"):
        yield line.partition(":")[2].strip()
    for part in headers.split(","):
        name, equals, value = part.partition("=")
        if equals:
            yield value.strip()
        else:
            yield from (
                name.strip(),
                *(word for word in re.split(r"[\s:]+", name) if len(word) >= SHORTEST_CONTAINED),
            )


def _passwords_in(url: str) -> set[str]:
    try:
        parts = urlsplit(url)
        passwords = {
            unquote(parts.password or ""),
            *(value for name, value in parse_qsl(parts.query) if _SECRET_NAME.search(name)),
        }
    except ValueError:
        return set()
    return passwords - {""}
