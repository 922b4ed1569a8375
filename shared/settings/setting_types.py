"""Types of settings: numbers with bounds, header values, names, folders and URLs.

No error text of these types holds a value, which may be a secret. `load_settings` adds the
value of a setting that is no secret.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import NoDecode

from handoff_queue.shared.settings.http_values import (
    MOST_URL_CHARS,
    check_header_value,
    check_server_url,
)
from handoff_queue.shared.settings.redis_address import read_address
from handoff_queue.shared.text.durations import seconds_in, whole_seconds_in

DAY_S = 86_400
YEAR_S = 365 * DAY_S
MOST_NAME_CHARS = 200
MOST_PATH_CHARS = 4_096
"""PATH_MAX of Linux."""
MOST_FOLDERS = 100
MOST_PATTERNS = 100

_BROKER_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


def _header_value(value: SecretStr) -> SecretStr:
    check_header_value(value.get_secret_value())
    return value


def _server_url(value: str) -> str:
    check_server_url(value)
    return value


def _redis_url(value: SecretStr) -> SecretStr:
    read_address(value.get_secret_value())
    return value


def _broker_url(value: SecretStr) -> SecretStr:
    if not is_broker_url(value.get_secret_value()):
        raise ValueError("must be the URL of a broker, such as redis://host:6379/0")
    return value


def _result_url(value: SecretStr) -> SecretStr:
    if not is_broker_url(value.get_secret_value()):
        raise ValueError("must be the URL of a result backend, such as redis://host:6379/0")
    return value


def is_broker_url(text: str) -> bool:
    """Return whether a text has the form of a broker's URL. Kombu decides whether it knows the
    broker.
    """
    try:
        parts = urlsplit(text)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        return False
    is_plain = text.isprintable() and " " not in text and "://" in text
    is_web = parts.scheme in ("http", "https")
    return (
        is_plain
        and has_port
        and not is_web
        and len(text) <= MOST_URL_CHARS
        and bool(_BROKER_SCHEME.fullmatch(parts.scheme))
    )


def check_name(value: str, most: int = MOST_NAME_CHARS) -> str:
    """Return the text if it is a line of 1 to `most` characters, without spaces around it.

    Raises:
        ValueError: the text has another form.
    """
    if not (value and value == value.strip() and value.isprintable() and len(value) <= most):
        raise ValueError(f"must be 1 to {most:,} characters on one line, without spaces around it")
    return value


def check_path(value: object) -> object:
    """Return a text if it can be a path, and any other value unchanged.

    Raises:
        ValueError: the text is empty, too long, or has a control character.
    """
    if isinstance(value, str):
        check_name(value, MOST_PATH_CHARS)
    return value


def _folders_in(value: Any) -> Any:
    """Return the folders in a text: a list with the separator of PATH, or a JSON list. Another
    value is returned unchanged.
    """
    if not isinstance(value, str):
        return value
    if not value.lstrip().startswith("["):
        return list(filter(None, value.split(os.pathsep)))
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError(
            f"must be folders separated by {os.pathsep}, or a JSON list of texts"
        ) from None


def _patterns_in(value: Any) -> Any:
    """Return the patterns in a list with commas. Another value is returned unchanged."""
    if not isinstance(value, str):
        return value
    return list(filter(None, map(str.strip, value.split(","))))


Duration = Annotated[float, BeforeValidator(seconds_in)]
"""Seconds. A text may have units, as `shared.text.durations` reads them: 500ms, 45s, 10m, 1h30m."""
Interval = Annotated[Duration, Field(ge=0.01, le=DAY_S, allow_inf_nan=False)]
"""Seconds between two actions, or until an action times out."""
WholeSeconds = Annotated[int, BeforeValidator(whole_seconds_in)]
HeaderValue = Annotated[SecretStr, AfterValidator(_header_value)]
"""A secret that is sent in an HTTP header."""
ServerUrl = Annotated[str, AfterValidator(_server_url)]
RedisUrl = Annotated[SecretStr, AfterValidator(_redis_url)]
BrokerUrl = Annotated[SecretStr, AfterValidator(_broker_url)]
ResultUrl = Annotated[SecretStr, AfterValidator(_result_url)]
Name = Annotated[str, AfterValidator(check_name)]
PlainPath = Annotated[Path, BeforeValidator(check_path)]
Folders = Annotated[
    tuple[PlainPath, ...],
    NoDecode,
    BeforeValidator(_folders_in),
    Field(max_length=MOST_FOLDERS),
]
Patterns = Annotated[
    Annotated[tuple[Name, ...], Field(max_length=MOST_PATTERNS)] | None,
    NoDecode,
    BeforeValidator(_patterns_in),
]
"""Patterns of names, as `fnmatch` reads them, or None."""
