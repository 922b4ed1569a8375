"""Export of spans to the collector: OTLP over HTTP, in batches, without secrets."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Link, Status
from opentelemetry.util.re import parse_env_headers
from opentelemetry.util.types import Attributes

from handoff_queue.shared.observability.otel.collector_session import create_session
from handoff_queue.shared.observability.redaction import Redactor

_TEXT_OF_ERRORS = ("exception.message", "exception.stacktrace")
"""Attributes that may quote secrets."""
_BATCH_LOGGERS = (OTLPSpanExporter.__module__, "opentelemetry.sdk._shared_internal")
"""Loggers of the SDK with a line for each batch that could not be sent, and for a full queue."""
_VARIABLES_LOGGER = BatchSpanProcessor.__module__
"""Logger of the SDK. It names each variable OTEL_BSP_* that is not a number. The SDK ignores such
a variable.
"""
END_WITHIN_S = 10.0
"""Longest time, in seconds, that a stopping service waits to send its last spans."""
_HEADERS_LOGGER = parse_env_headers.__module__
"""Logger of OpenTelemetry that quotes an unreadable header."""
_NO_HEADER = (
    "OTEL_EXPORTER_OTLP_HEADERS, or its TRACES_HEADERS, has an invalid part, which is ignored:"
    " write name=value,name=value"
)
_NOT_SENT = (
    "the OpenTelemetry collector did not accept this command's spans; the command itself is not"
    " affected"
)


class SpanIds(RandomIdGenerator):
    """Random ids, except for an id that a thread has requested."""

    def __init__(self) -> None:
        self._requested = threading.local()

    def generate_span_id(self) -> int:
        requested_id: int | None = getattr(self._requested, "for_span", None)
        if requested_id is None:
            return super().generate_span_id()
        return requested_id

    def generate_trace_id(self) -> int:
        requested_id: int | None = getattr(self._requested, "for_trace", None)
        if requested_id is None:
            return super().generate_trace_id()
        return requested_id

    @contextmanager
    def span(self, span_id: int, trace_id: int | None = None) -> Iterator[None]:
        """Give this id to the span that this thread starts in the block. If that span is a
        root, its trace gets `trace_id`.
        """
        self._requested.for_span, self._requested.for_trace = span_id, trace_id
        try:
            yield
        finally:
            self._requested.for_span = self._requested.for_trace = None


class _WrappingExporter(SpanExporter):
    """An exporter that passes `shutdown` and `force_flush` on to another exporter."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class RedactingExporter(_WrappingExporter):
    """Exporter that removes secrets from every span, also from spans of Celery's
    instrumentation and of a user's tool. It cleans names, attributes and the status of a span,
    of its events and of its links. It removes the texts of errors unless `keeps_errors` is
    set.
    """

    def __init__(self, exporter: SpanExporter, redactor: Redactor, *, keeps_errors: bool) -> None:
        super().__init__(exporter)
        self._redactor = redactor
        self._keeps_errors = keeps_errors

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self._exporter.export([self._clean(span) for span in spans])

    def _clean(self, span: ReadableSpan) -> ReadableSpan:
        """Return the span without secrets, and without texts of errors unless they are kept."""
        description = None
        if self._keeps_errors and span.status.description:
            description = self._redactor.redact_text(span.status.description)
        return ReadableSpan(
            name=self._redactor.redact_text(span.name),
            context=span.context,
            parent=span.parent,
            resource=span.resource,
            attributes=self._without_secrets(span.attributes),
            events=[self._clean_event(event) for event in span.events],
            links=[self._clean_link(link) for link in span.links],
            kind=span.kind,
            status=Status(span.status.status_code, description),
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=span.instrumentation_scope,
        )

    def _clean_event(self, event: Event) -> Event:
        name = self._redactor.redact_text(event.name)
        return Event(name, self._without_secrets(event.attributes), event.timestamp)

    def _clean_link(self, link: Link) -> Link:
        return Link(link.context, self._without_secrets(link.attributes))

    def _without_secrets(self, attributes: Attributes) -> Attributes:
        clean: dict[str, Any] = {}
        for name, value in (attributes or {}).items():
            if self._keeps_errors or name not in _TEXT_OF_ERRORS:
                clean[name] = self._redactor.redact_value(value, name)
        return clean


class FirstWarning:
    """Logs its first warning, and drops all later ones."""

    def __init__(self) -> None:
        self._first_use = threading.Lock()

    def warn(self, text: str, *figures: object) -> None:
        if self._first_use.acquire(blocking=False):
            logging.getLogger(__name__).warning(text, *figures)


class WarnOnceExporter(_WrappingExporter):
    """Exporter for a command that a person waits for. It logs one line about the first batch
    that was not sent, and silences the SDK's own warnings.
    """

    def __init__(self, exporter: SpanExporter, first_warning: FirstWarning) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)
        logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL)
        super().__init__(exporter)
        self._first_warning = first_warning

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._first_warning.warn(_NOT_SENT)
        return result


class RateLimitFilter(logging.Filter):
    """Filter for a service. It passes each message of the SDK once in `EVERY_S` seconds."""

    EVERY_S = 60.0

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._passed_at: dict[object, float] = {}
        """Time at which a record passed last, by message template."""

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._now()
        is_due = now - self._passed_at.get(record.msg, -self.EVERY_S) >= self.EVERY_S
        if is_due:
            self._passed_at[record.msg] = now
        return is_due


class NoTracebackFilter(logging.Filter):
    """Removes the traceback from a log record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = record.exc_text = None
        return True


class RewordFilter(logging.Filter):
    """Replaces the text of each record. The SDK quotes an unreadable header, which may hold a
    key.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = _NO_HEADER, ()
        return True


class BoundedBatchProcessor(BatchSpanProcessor):
    """Batch processor that stops within `end_within_s` seconds, and warns about spans that it
    could not send in that time. The SDK alone would wait for the current export and for a last
    one.
    """

    def __init__(
        self, exporter: SpanExporter, end_within_s: float, first_warning: FirstWarning | None = None
    ) -> None:
        self._sender = _CountingExporter(exporter)
        self._first_warning = first_warning or FirstWarning()
        with _filter_log(_VARIABLES_LOGGER, NoTracebackFilter()):
            super().__init__(self._sender)
        self._end_within_s = end_within_s

    def shutdown(self) -> None:
        self._batch_processor.shutdown(timeout_millis=int(1000 * self._end_within_s))
        left = self._sender.spans + len(self._batch_processor._queue)
        if left:
            self._first_warning.warn(
                "the OpenTelemetry collector did not accept all spans in time: the last %d are"
                " lost",
                left,
            )


class _CountingExporter(_WrappingExporter):
    """Exporter that counts the spans of the export in progress."""

    def __init__(self, exporter: SpanExporter) -> None:
        super().__init__(exporter)
        self.spans = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans = len(spans)
        try:
            return self._exporter.export(spans)
        finally:
            self.spans = 0


@contextmanager
def _filter_log(logger: str, by: logging.Filter) -> Iterator[None]:
    logging.getLogger(logger).addFilter(by)
    try:
        yield
    finally:
        logging.getLogger(logger).removeFilter(by)


def make_provider(
    service: str, redactor: Redactor, ids: SpanIds, *, keeps_errors: bool, flush_s: float | None
) -> TracerProvider:
    """Return a provider that follows the OTEL_* variables. Its shutdown sends the remaining
    spans, if the collector accepts them in time.

    Args:
        service: name of the service, if the OTEL_* variables give none.
        keeps_errors: True to export the texts of errors.
        flush_s: for a command, the seconds for each attempt to send, and for the shutdown. None for
            a service: OTEL_EXPORTER_OTLP_TIMEOUT and `END_WITHIN_S` apply.
    """
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: service}))
    provider = TracerProvider(resource=resource, id_generator=ids)
    with _filter_log(_HEADERS_LOGGER, RewordFilter()):
        sender: SpanExporter = OTLPSpanExporter(timeout=flush_s, session=create_session())
    line = FirstWarning()
    if flush_s is None:
        for name in _BATCH_LOGGERS:
            logging.getLogger(name).addFilter(RateLimitFilter())
        end_within_s = END_WITHIN_S
    else:
        sender = WarnOnceExporter(sender, line)
        end_within_s = flush_s
    exporter = RedactingExporter(sender, redactor, keeps_errors=keeps_errors)
    provider.add_span_processor(BoundedBatchProcessor(exporter, end_within_s, line))
    return provider
