"""A collector of OpenTelemetry whose answers have no end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from handoff_queue.shared.observability.otel.export import SpanIds, make_provider
from handoff_queue.shared.observability.otel.metrics import exporting
from handoff_queue.shared.observability.redaction import Redactor
from tests.waiting import wait_until

PART = b"x" * 1_000_000
PARTS = 100
"""A short answer for a collector, and far more than the sockets hold."""


class Collector(ThreadingHTTPServer):
    """Counts the parts that it could send."""

    daemon_threads = True
    sent_parts = 0
    has_ended = False


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", str(len(PART) * PARTS))
        self.end_headers()
        with suppress(OSError):  # the process has closed the connection
            for _ in range(PARTS):
                self.wfile.write(PART)
                self.server.sent_parts += 1
        self.server.has_ended = True

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{running.server_port}")
        yield running
        running.shutdown()
        thread.join()


def test_an_export_of_spans_reads_no_body_of_an_answer(collector: Collector) -> None:
    provider = make_provider("a", Redactor([]), SpanIds(), keeps_errors=False, flush_s=None)
    provider.get_tracer("a").start_span("a").end()

    assert provider.force_flush()
    provider.shutdown()

    wait_until(lambda: collector.has_ended, expected="the end of the answer")
    assert collector.sent_parts < PARTS


def test_an_export_of_metrics_reads_no_body_of_an_answer(collector: Collector) -> None:
    with exporting(list, lambda _: True, "a", 0.01):
        wait_until(lambda: collector.has_ended, expected="the end of an answer")

    assert collector.sent_parts < PARTS
