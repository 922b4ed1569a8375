"""Start the telemetry of a process, if the environment asks for spans."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from handoff_queue.shared.observability.redaction import Redactor, find_secrets
from handoff_queue.shared.observability.telemetry import (
    Telemetry,
    find_endpoint_variable,
    is_chosen,
    is_wanted,
    set_telemetry,
)

if TYPE_CHECKING:
    from handoff_queue.shared.settings.settings import Settings

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
    if not is_wanted():
        return
    from handoff_queue.shared.observability.otel.environment_checks import find_exporter_problems

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
