"""Starts the telemetry of a process, if the environment asks for spans. Before that, it checks the
OTEL_* variables whose bad values the SDK reports late, or without their name.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from handoff_queue.shared.observability.redaction import Redactor, find_secrets
from handoff_queue.shared.observability.telemetry import (
    Telemetry,
    find_endpoint_variable,
    is_chosen,
    is_telemetry_wanted,
    set_telemetry,
)
from handoff_queue.shared.settings.file_permissions import read_private
from handoff_queue.shared.settings.http_values import check_server_url
from handoff_queue.shared.types.errors import UserError

if TYPE_CHECKING:
    from handoff_queue.shared.settings.settings import Settings

MAX_TIMEOUT_S = 86_400.0
"""Longest timeout of an export in seconds: a day."""
_UNREADABLE = "must name a file that this user can read"

_MISSING = (
    "%s is set, but no spans are sent: OpenTelemetry's packages are missing: install"
    " the extra otel of handoff-queue"
)
_UNUSABLE = "no spans are sent: %s"
_REFUSED = "no spans are sent: OpenTelemetry's SDK refuses one of the variables %s (%s)"


def start_telemetry(service: str, settings: Settings, *, flush_s: float | None = None) -> None:
    """Choose the telemetry of this process, at the first call. Export spans if the environment
    asks for them and they can be exported. Otherwise log why not, and export nothing.

    Args:
        service: name of the service, if OTEL_SERVICE_NAME gives none.
        flush_s: for a client, the seconds for each attempt to send spans, and for the last spans
            at the end. None for a supervisor or a worker: OTEL_EXPORTER_OTLP_TIMEOUT applies.
    """
    if is_chosen():
        return
    set_telemetry(Telemetry())
    if not is_telemetry_wanted():
        return
    problems = "; ".join(find_exporter_problems(os.environ))
    if problems:
        logging.getLogger(__name__).warning(_UNUSABLE, problems)
        return
    try:
        from handoff_queue.shared.observability.otel.spans import open_telemetry

        set_telemetry(open_telemetry(service, settings, flush_s))
    except ImportError:
        logging.getLogger(__name__).warning(_MISSING, find_endpoint_variable())
    except Exception as error:  # noqa: BLE001 - an error of the SDK must not stop a job
        line = " ".join(f"{type(error).__name__}: {error}".split())
        why = Redactor(find_secrets(settings)).redact_text(line)
        variables = [name for name in sorted(os.environ) if name.startswith("OTEL_")]
        logging.getLogger(__name__).warning(_REFUSED, ", ".join(variables), why)


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
