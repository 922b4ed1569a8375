"""An OpenTelemetry collector on loopback that receives spans as OTLP over HTTP in protobuf."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from handoff_queue.testing.messages_server import LoopbackServer


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """One received span."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    """Id of the parent span, or '' for a root."""
    kind: int
    """1 internal, 2 server, 3 client, 4 producer, 5 consumer."""
    service: str
    attributes: dict[str, Any]
    is_error: bool
    start_ns: int
    end_ns: int


class Collector(LoopbackServer):
    """Collector that runs during its `with` block. `spans` holds the received spans."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.raw: list[bytes] = []
        """Uncompressed request bodies. A test searches them for forbidden text."""
        self.headers: list[dict[str, str]] = []
        super().__init__(self._respond)

    def _respond(self, connection: BaseHTTPRequestHandler) -> None:
        body = connection.rfile.read(int(connection.headers["Content-Length"]))
        if connection.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.take(body, dict(connection.headers))
        answer = ExportTraceServiceResponse().SerializeToString()
        connection.send_response(200 if connection.path == "/v1/traces" else 404)
        connection.send_header("Content-Type", "application/x-protobuf")
        connection.send_header("Content-Length", str(len(answer)))
        connection.end_headers()
        connection.wfile.write(answer)

    def take(self, body: bytes, headers: dict[str, str]) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        self.raw.append(body)
        self.headers.append(headers)
        for resource_spans in request.resource_spans:
            service = str(_values(resource_spans.resource.attributes).get("service.name"))
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    self.spans.append(_received_span(span, service))

    def of_trace(self, trace_id: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.trace_id == trace_id]

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]


def _received_span(span: Any, service: str) -> ReceivedSpan:
    return ReceivedSpan(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        service,
        _values(span.attributes),
        span.status.code == 2,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {attribute.key: _value(attribute.value) for attribute in attributes}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None
