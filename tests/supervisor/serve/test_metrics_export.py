"""One server at a time sends the metrics of the store to an OpenTelemetry collector."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from fastapi.testclient import TestClient
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.serve.application import make_application
from handoff_queue.supervisor.serve.metrics import BUCKETS
from handoff_queue.supervisor.serve.metrics_export import ENDPOINT, INTERVAL
from handoff_queue.testing.messages_server import LoopbackServer
from tests.supervisor.serve.conftest import LOCAL, URL
from tests.supervisor.serve.scrapes import scrape, value
from tests.supervisor.serve.test_metrics import life_of_a_job
from tests.waiting import wait_until


class MetricsCollector(LoopbackServer):
    """A collector that keeps the requests of exporters of metrics."""

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        super().__init__(self._respond)

    def _respond(self, connection: BaseHTTPRequestHandler) -> None:
        body = connection.rfile.read(int(connection.headers["Content-Length"]))
        if connection.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.requests.append(ExportMetricsServiceRequest.FromString(body))
        answer = ExportMetricsServiceResponse().SerializeToString()
        connection.send_response(200)
        connection.send_header("Content-Type", "application/x-protobuf")
        connection.send_header("Content-Length", str(len(answer)))
        connection.end_headers()
        connection.wfile.write(answer)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetricsCollector]:
    with MetricsCollector() as running:
        monkeypatch.setenv(ENDPOINT, f"{running.url}/v1/metrics")
        monkeypatch.setenv(INTERVAL, "100")
        yield running


@contextmanager
def server(jobs: Client) -> Iterator[TestClient]:
    app = make_application(AsyncClient(jobs), Settings(offline=True))
    with TestClient(app, base_url=URL, client=LOCAL) as http:
        yield http


def metrics_in(request: ExportMetricsServiceRequest) -> dict[str, Any]:
    (of_resource,) = request.resource_metrics
    (of_scope,) = of_resource.scope_metrics
    return {metric.name: metric for metric in of_scope.metrics}


def labels_of(point: Any) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in point.attributes}


def test_a_collector_gets_the_numbers_of_a_scrape(
    jobs: Client, collector: MetricsCollector
) -> None:
    life_of_a_job(jobs.store)
    with server(jobs) as http:
        wait_until(lambda: bool(collector.requests), expected="an export")
        seen = scrape(http)

    metrics = metrics_in(collector.requests[0])
    for point in metrics["handoff_tokens"].sum.data_points:
        count = value(seen, "handoff_tokens_total", **labels_of(point))
        assert point.as_double == count
    assert metrics["handoff_tokens"].sum.is_monotonic
    (turns,) = metrics["handoff_turn_duration_seconds"].histogram.data_points
    assert turns.count == sum(turns.bucket_counts) == 2
    assert len(turns.bucket_counts) == len(turns.explicit_bounds) + 1 == len(BUCKETS)
    assert not turns.HasField("min")
    assert metrics["handoff_turn_duration_seconds"].unit == "s"
    (supervisors,) = metrics["handoff_supervisors"].gauge.data_points
    assert supervisors.as_double == 0


def test_one_of_many_servers_exports_in_an_interval(jobs: Client) -> None:
    turns = [jobs.store.metrics.take_turn(3_600) for _ in range(3)]

    assert turns == [True, False, False]


def test_without_the_variable_nothing_is_exported(
    jobs: Client, collector: MetricsCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ENDPOINT)

    with server(jobs) as http:
        scrape(http)

    assert jobs.store.metrics.take_turn(3_600), "no server has taken the turn"
    assert collector.requests == []


def test_exports_repeat_and_name_the_service(
    jobs: Client, collector: MetricsCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")

    with server(jobs):
        wait_until(lambda: len(collector.requests) >= 2, expected="two exports")

    (resource,) = collector.requests[-1].resource_metrics
    assert {pair.key: pair.value.string_value for pair in resource.resource.attributes}.items() >= {
        "service.name": "handoff-queue",
        "deployment.environment.name": "test",
    }.items()
