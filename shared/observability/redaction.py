"""Redaction: removes secrets from log lines, Flower's columns and error messages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import SecretStr

from handoff_queue.shared.observability.secret_spellings import (
    SHORTEST_CONTAINED,
    SecretSpellings,
)
from handoff_queue.shared.settings.settings import Settings

HIDDEN: Final = "[redacted]"

_SECRET_NAME = re.compile(
    r"(?:^|[_\-.])(?:(?:api_?|access_?|private_?|secret_?)?keys?|token|secrets?|passw(?:or)?ds?|passphrase|credentials?|authorization|cookies?)$",
    re.IGNORECASE,
)
_SECRET_VARIABLE = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|BASIC_AUTH", re.IGNORECASE
)
_HEADERS = re.compile(r"_HEADERS$")
"""Names of variables with HTTP headers, such as OTEL_EXPORTER_OTLP_HEADERS. Their value
`name=value,name=value` often holds a key.
"""
_HARMLESS_NAMES = frozenset({"routing_key", "keys"})
_SHAPES = (
    (re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"), HIDDEN),  # user:password of any URL
    (re.compile(r"\bsk-[A-Za-z0-9_\-]{12,}"), HIDDEN),  # the model provider's keys
    (re.compile(r"(hq_[0-9a-f]{12}_)[A-Za-z0-9_\-]{12,}"), rf"\1{HIDDEN}"),  # tokens of our API
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=\-]{12,}"), rf"\1 {HIDDEN}"),
)
_MAX_DEPTH = 6
"""Levels of nested data that are searched by name. Deeper data becomes text."""


class Redactor:
    """Hides given values in each of their spellings, texts that look like credentials, and all
    values under a name of a secret.

    A value with fewer than `SHORTEST_CONTAINED` characters is hidden only where it is the whole
    text.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._whole = frozenset(secrets) - {""}
        contained = {secret: HIDDEN for secret in self._whole if len(secret) >= SHORTEST_CONTAINED}
        self._contained = SecretSpellings(contained)

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        return without_credentials(self.without_values(text))

    def without_values(self, text: str) -> str:
        """Return the text without the given values. Other texts that look like credentials stay."""
        if text in self._whole:
            return HIDDEN
        return self._contained.replaced_in(text)

    def value(self, value: Any, name: str = "", depth: int = 0) -> Any:
        """Return plain data without secrets. A value under the name of a secret is replaced.
        Numbers, booleans and None are never secrets.

        A value that is not plain data, or is nested too deep, becomes its text without
        secrets.

        Args:
            name: name of the value, if it has one.
            depth: number of levels above the value.
        """
        if isinstance(value, bool | int | float) or value is None:
            return value
        if _SECRET_NAME.search(name) and name not in _HARMLESS_NAMES:
            return HIDDEN
        if depth < _MAX_DEPTH:
            if isinstance(value, Mapping):
                clean: dict[str, Any] = {}
                for key, item in value.items():
                    clean[self.text(str(key))] = self.value(item, str(key), depth + 1)
                return clean
            if isinstance(value, list | tuple | set | frozenset):
                return [self.value(item, depth=depth + 1) for item in value]
        return self.text(value if isinstance(value, str) else repr(value))


def without_credentials(text: str) -> str:
    """Return the text with each part that looks like a credential replaced by `[redacted]`."""
    for shape, shown in _SHAPES:
        text = shape.sub(shown, text)
    return text


def secrets_of(settings: Settings, environment: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the secrets of a process.

    They are the values of environment variables with names of secrets, the values of headers
    in variables, and every secret setting. The passwords of URLs in the variables and the
    settings are secrets, too.

    Args:
        environment: None for the environment of this process.
    """
    variables = os.environ if environment is None else environment
    secrets: set[str] = set()
    for name, value in variables.items():
        if _SECRET_VARIABLE.search(name):
            secrets.add(value)
        if _HEADERS.search(name):
            secrets.update(_values_of_headers(value))
    for value in tuple(secrets):
        secrets.update(_basic_auth_passwords(value))
    settled: set[str] = set()
    for _, setting in settings:
        if isinstance(setting, SecretStr):
            settled.add(setting.get_secret_value())
    for value in (*variables.values(), *settled):
        if "://" in value:
            for url in value.split(";"):
                secrets.update(_passwords_in(url))
    return frozenset(secrets | settled) - {""}


def secret_settings(settings: Settings) -> frozenset[str]:
    """Return the values of the secret settings. A URL gives its passwords only, because the address
    in it may be in a document, too.
    """
    secrets: set[str] = set()
    for _, setting in settings:
        if not isinstance(setting, SecretStr):
            continue
        value = setting.get_secret_value()
        if "://" not in value:
            secrets.add(value)
            continue
        for url in value.split(";"):
            secrets |= _passwords_in(url)
    return frozenset(secrets - {""})


def _basic_auth_passwords(value: str) -> Iterator[str]:
    """Yield the passwords of `user:password,user:password`."""
    for part in value.split(","):
        if ":" in part and "://" not in part:
            yield part.partition(":")[2]


def _values_of_headers(headers: str) -> Iterator[str]:
    """Yield each value of `name=value,...`, and of `Name: value` lines. In a part without `=`
    each word may be the key.
    """
    for line in headers.split("\n"):
        yield line.partition(":")[2].strip()
    for part in headers.split(","):
        name, equals, value = part.partition("=")
        if equals:
            yield value.strip()
            continue
        yield name.strip()
        for word in re.split(r"[\s:]+", name):
            if len(word) >= SHORTEST_CONTAINED:
                yield word


def _passwords_in(url: str) -> set[str]:
    """Return the password of a URL, and its query parameters with names of secrets. Return an
    empty set if the URL is invalid.
    """
    try:
        parts = urlsplit(url)
        passwords = {unquote(parts.password or "")}
        for name, value in parse_qsl(parts.query):
            if _SECRET_NAME.search(name):
                passwords.add(value)
    except ValueError:
        return set()
    return passwords
