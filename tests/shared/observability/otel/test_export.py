"""The log reports a collector that accepts no spans."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Sequence
from inspect import signature

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._shared_internal import BatchProcessor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from handoff_queue.shared.observability.otel.export import (
    _BATCH_LOGGERS,
    _VARIABLES_LOGGER,
    BoundedBatchProcessor,
    FirstWarning,
    RateLimitFilter,
    SpanIds,
    WarnOnceExporter,
    make_provider,
)
from handoff_queue.shared.observability.redaction import Redactor

SDK_WAIT_S = signature(BatchProcessor.shutdown).parameters["timeout_millis"].default / 1000
"""Seconds that the SDK alone would wait."""


@pytest.mark.parametrize("name", _BATCH_LOGGERS)
def test_the_sdk_has_a_logger_of_this_name(name: str) -> None:
    assert name in logging.root.manager.loggerDict


def test_a_service_logs_failing_batches_once_a_minute() -> None:
    clock = [0.0]
    spared = RateLimitFilter(lambda: clock[0])
    record = logging.makeLogRecord({"msg": "Failed to export span batch"})

    warnings = []
    for clock[0] in (0.0, 0.5, 59.0, 60.0, 61.0, 200.0):
        warnings.append(bool(spared.filter(record)))
    assert warnings == [True, False, False, True, False, True]
    assert spared.filter(logging.makeLogRecord({"msg": "Queue full"})), "another thing"


def test_a_stopping_process_does_not_wait_for_a_silent_collector_and_logs_the_loss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        exporter = OTLPSpanExporter(
            endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces", timeout=600
        )
        provider = TracerProvider()
        provider.add_span_processor(BoundedBatchProcessor(exporter, 0.1))
        for _ in range(600):  # more than one batch of 512
            provider.get_tracer("a").start_span("one of the last").end()

        started = time.monotonic()
        provider.shutdown()
        assert time.monotonic() - started < SDK_WAIT_S
        assert "the last 600 are lost" in caplog.text


class RefusingExporter(SpanExporter):
    """Exporter that refuses the first batch and never answers for the second."""

    def __init__(self) -> None:
        self.refused = 0
        self.is_over = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self.refused:
            self.is_over.wait(30)
        self.refused += len(spans)
        return SpanExportResult.FAILURE


def test_a_command_reports_failed_batches_and_lost_spans_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in ("opentelemetry", "opentelemetry.exporter.otlp"):
        caplog.set_level(logging.WARNING, name)  # the fixture restores the level afterwards
    refusing, line = RefusingExporter(), FirstWarning()
    provider = TracerProvider()
    provider.add_span_processor(BoundedBatchProcessor(WarnOnceExporter(refusing, line), 0.1, line))
    for _ in range(600):  # more than one batch of 512
        provider.get_tracer("a").start_span("one of the last").end()

    provider.shutdown()
    refusing.is_over.set()

    assert (
        len(
            [
                record
                for record in caplog.records
                if record.name == "handoff_queue.shared.observability.otel.export"
            ]
        )
        == 1
    )


@pytest.mark.parametrize(
    "name", ["OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_EXPORT_TIMEOUT"]
)
def test_a_variable_that_is_not_a_number_is_one_line_and_no_traceback(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(name, "soon")
    BoundedBatchProcessor(OTLPSpanExporter(), 0.1).shutdown()

    (warning,) = [record for record in caplog.records if record.name == _VARIABLES_LOGGER]
    assert name in warning.getMessage()
    assert logging.Formatter().format(warning) == warning.getMessage()


@pytest.mark.parametrize(
    "headers",
    ["x-api-key: hny-4711-secret", "Authorization: Bearer hny-4711-secret", "a=b,hny-4711-secret"],
)
def test_unreadable_headers_are_reported_in_one_line_without_their_text(
    headers: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
    make_provider("a", Redactor([]), SpanIds(), keeps_errors=False, flush_s=None).shutdown()

    assert "OTEL_EXPORTER_OTLP_HEADERS, or its TRACES_HEADERS, has an invalid part" in caplog.text
    assert "4711" not in caplog.text
