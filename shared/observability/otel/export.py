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
from opentelemetry.trace import Status
from opentelemetry.util.re import parse_env_headers
from opentelemetry.util.types import Attributes

from handoff_queue.shared.observability.redaction import Redactor

_TEXT_OF_ERRORS = ("exception.message", "exception.stacktrace")
"""Attributes that may quote secrets."""
_SAYS_OF_EACH = (OTLPSpanExporter.__module__, "opentelemetry.sdk._shared_internal")
"""Loggers of the SDK with a line for each batch that could not be sent, and for a full queue."""
_SAYS_WHAT_IS_WRONG = BatchSpanProcessor.__module__
"""The SDK's logger that says which OTEL_BSP_* is no number, and that it goes on with its own."""
END_WITHIN_S = 10.0
"""Seconds that a stopping process waits at most to send its last spans."""
_SAYS_WHICH_HEADER = parse_env_headers.__module__
"""Logger of OpenTelemetry that quotes an unreadable header."""
_NO_HEADER = "OTEL_EXPORTER_OTLP_HEADERS, or its TRACES_HEADERS, is not understood, and a part is left out: write name=value,name=value"
_NOT_SENT = "the OpenTelemetry collector did not take this command's spans; the command itself is not touched by that"


class SpanIds(RandomIdGenerator):
    """Random ids, except for an id that a thread has requested."""

    def __init__(self) -> None:
        self._asked = threading.local()

    def generate_span_id(self) -> int:
        asked: int | None = getattr(self._asked, "for_span", None)
        if asked is None:
            return super().generate_span_id()
        return asked

    def generate_trace_id(self) -> int:
        asked: int | None = getattr(self._asked, "for_trace", None)
        if asked is None:
            return super().generate_trace_id()
        return asked

    @contextmanager
    def span(self, span_id: int, trace_id: int | None = None) -> Iterator[None]:
        """Give the next span of this thread this id, and its trace that id if the span is a root."""
        self._asked.for_span, self._asked.for_trace = span_id, trace_id
        try:
            yield
        finally:
            self._asked.for_span = self._asked.for_trace = None


class _Before(SpanExporter):
    """Stands before another exporter."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class Redacting(_Before):
    """Removes secrets and texts of errors from every span, also from spans of Celery's
    instrumentation and of a user's tool.
    """

    def __init__(self, exporter: SpanExporter, redactor: Redactor, *, keeps_errors: bool) -> None:
        super().__init__(exporter)
        self._redactor = redactor
        self._keeps_errors = keeps_errors

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self._exporter.export([self._clean(span) for span in spans])

    def _clean(self, span: ReadableSpan) -> ReadableSpan:
        described = None
        if self._keeps_errors:
            described = span.status.description
        return ReadableSpan(
            name=self._redactor.text(span.name),
            context=span.context,
            parent=span.parent,
            resource=span.resource,
            attributes=self._without_secrets(span.attributes),
            events=[
                Event(event.name, self._without_secrets(event.attributes), event.timestamp)
                for event in span.events
            ],
            links=span.links,
            kind=span.kind,
            status=Status(
                span.status.status_code, self._redactor.text(described) if described else None
            ),
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=span.instrumentation_scope,
        )

    def _without_secrets(self, attributes: Attributes) -> Attributes:
        secrets: dict[str, Any] = {}
        for name, value in (attributes or {}).items():
            if self._keeps_errors or name not in _TEXT_OF_ERRORS:
                secrets[name] = self._redactor.value(
                    list(value) if isinstance(value, tuple) else value, name
                )
        return secrets


class FirstWarning:
    """Filter for a command: passes only the first warning about unsent spans."""

    def __init__(self) -> None:
        self._is_free = threading.Lock()

    def warn(self, text: str, *figures: object) -> None:
        if self._is_free.acquire(blocking=False):
            logging.getLogger(__name__).warning(text, *figures)


class WarnOnceExporter(_Before):
    """Exporter for a command that a person waits for: one line about the first batch that was not
    sent, and no lines of the SDK.
    """

    def __init__(self, exporter: SpanExporter, line: FirstWarning) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)
        logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL)
        super().__init__(exporter)
        self._line = line

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._line.warn(_NOT_SENT)
        return result


class RateLimitFilter(logging.Filter):
    """Filter for a service: passes each message of the SDK about failed batches once a minute."""

    EVERY_S = 60.0

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._said_at: dict[object, float] = {}
        """Times of the last report, by message template."""

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._now()
        is_due = now - self._said_at.get(record.msg, -self.EVERY_S) >= self.EVERY_S
        if is_due:
            self._said_at[record.msg] = now
        return is_due


class NoTracebackFilter(logging.Filter):
    """Removes the traceback from a log record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = record.exc_text = None
        return True


class RewordFilter(logging.Filter):
    """Replaces the SDK's quotes of unreadable headers, which may contain a key."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = _NO_HEADER, ()
        return True


class BoundedBatchProcessor(BatchSpanProcessor):
    """Stays within its time when it stops: an export that is under way may take as long as the
    last one, and the SDK waits for both.
    """

    def __init__(
        self, exporter: SpanExporter, end_within_s: float, line: FirstWarning | None = None
    ) -> None:
        self._sender = _InTheAir(exporter)
        self._line = line or FirstWarning()
        with _filtered(_SAYS_WHAT_IS_WRONG, NoTracebackFilter()):
            super().__init__(self._sender)
        self._end_within_s = end_within_s

    def shutdown(self) -> None:
        self._batch_processor.shutdown(timeout_millis=int(1000 * self._end_within_s))
        if left := self._sender.spans + len(self._batch_processor._queue):
            self._line.warn(
                "the OpenTelemetry collector has not taken all spans in time: the last %d are lost",
                left,
            )


class _InTheAir(_Before):
    """Knows how many spans are being sent just now."""

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
def _filtered(logger: str, by: logging.Filter) -> Iterator[None]:
    logging.getLogger(logger).addFilter(by)
    try:
        yield
    finally:
        logging.getLogger(logger).removeFilter(by)


def make_provider(
    service: str, redactor: Redactor, ids: SpanIds, *, keeps_errors: bool, flush_s: float | None
) -> TracerProvider:
    """Return a provider that follows the OTEL_* variables. At the end of the process the rest is
    sent, as far as the collector takes it in time.
    """
    named = Resource.create()
    if str(named.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        named = named.merge(Resource({SERVICE_NAME: service}))
    provider = TracerProvider(resource=named, id_generator=ids)
    with _filtered(_SAYS_WHICH_HEADER, RewordFilter()):
        sender: SpanExporter = OTLPSpanExporter(timeout=flush_s)
    line = FirstWarning()
    if flush_s is None:
        for name in _SAYS_OF_EACH:
            logging.getLogger(name).addFilter(RateLimitFilter())
    else:
        sender = WarnOnceExporter(sender, line)
    exporter = Redacting(sender, redactor, keeps_errors=keeps_errors)
    if flush_s is None:
        end_within_s = END_WITHIN_S
    else:
        end_within_s = flush_s
    provider.add_span_processor(BoundedBatchProcessor(exporter, end_within_s, line))
    return provider
