"""Checks of the OTEL_* variables whose bad values the SDK reports late, or without their name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from handoff_queue.shared.settings.file_permissions import read_private
from handoff_queue.shared.settings.http_values import check_server_url
from handoff_queue.shared.types.errors import UserError

MAX_TIMEOUT_S = 86_400.0
_UNREADABLE = "must name a file that this user can read"


def _check_timeout(value: str) -> None:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= MAX_TIMEOUT_S:
        raise ValueError(f"must be a number of seconds, > 0 and ≤ {MAX_TIMEOUT_S:,.0f}")


def _check_file(value: str) -> None:
    try:
        Path(value).open("rb").close()
    except (OSError, ValueError):
        raise ValueError(_UNREADABLE) from None


def _check_key(value: str) -> None:
    try:
        read_private(Path(value))
    except UserError:
        raise ValueError("must name a file that only its owner can read or replace") from None
    except (OSError, ValueError):
        raise ValueError(_UNREADABLE) from None


def _check_compression(value: str) -> None:
    if value not in ("none", "gzip", "deflate"):
        raise ValueError("must be none, gzip or deflate")


def _check_protocol(value: str) -> None:
    if value != "http/protobuf":
        raise ValueError("must be http/protobuf, the only protocol that is supported")


_CHECKS: Mapping[str, Callable[[str], None]] = {
    "ENDPOINT": check_server_url,
    "TIMEOUT": _check_timeout,
    "CERTIFICATE": _check_file,
    "CLIENT_CERTIFICATE": _check_file,
    "CLIENT_KEY": _check_key,
    "COMPRESSION": _check_compression,
    "PROTOCOL": _check_protocol,
}
"""Check of a value, by the last part of its variable's name."""


def find_exporter_problems(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield one line for each invalid variable: its name and the fault of its value. The value
    is left out, because it may be a secret.

    `OTEL_EXPORTER_OTLP_TRACES_*` takes precedence over `OTEL_EXPORTER_OTLP_*`.
    """
    for part, check in _CHECKS.items():
        for name in (f"OTEL_EXPORTER_OTLP_TRACES_{part}", f"OTEL_EXPORTER_OTLP_{part}"):
            value = environment.get(name)
            if not value:
                continue
            try:
                check(value)
            except ValueError as error:
                yield f"{name}: {error}"
            break
