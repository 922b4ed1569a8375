"""Export of metrics to the collector: OTLP over HTTP, at an interval, in a thread.

The values come from a function that reads them from the store, so they are those of the whole
system. The start of the counts is not known, so no point has a start time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.observability.otel.collector_session import create_session
from handoff_queue.shared.types.errors import StoreError

_CUMULATIVE = AggregationTemporality.CUMULATIVE
_SCOPE = InstrumentationScope("handoff_queue")
log = get_log(__name__)


@dataclass(frozen=True, slots=True)
class Point:
    """The value of one time series."""

    labels: Mapping[str, str]
    value: float
    """The sum of a histogram."""
    bucket_counts: Sequence[int] = ()
    """For a histogram: the number of values in each bucket, with the bucket above all bounds."""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with all its time series."""

    name: str
    description: str
    unit: str
    kind: str
    """`counter`, `gauge` or `histogram`."""
    points: Sequence[Point]
    bounds: Sequence[float] = ()
    """For a histogram: the upper bounds of its buckets, without infinity."""


def build_metrics_data(families: Iterable[Family], service: str, at_ns: int) -> MetricsData:
    """Return the metrics in the SDK's form, which its exporter sends."""
    metrics: list[Metric] = []
    for family in families:
        if family.points:
            data = _build_data(family, at_ns)
            metrics.append(Metric(family.name, family.description, family.unit, data))
    scope = ScopeMetrics(_SCOPE, metrics, "")
    resource = Resource.create().merge(Resource({"service.name": service}))
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _build_data(family: Family, at_ns: int) -> Any:
    if family.kind == "histogram":
        histograms: list[HistogramDataPoint] = []
        for point in family.points:
            histograms.append(_build_histogram_point(point, family.bounds, at_ns))
        return Histogram(histograms, _CUMULATIVE)
    numbers: list[NumberDataPoint] = []
    for point in family.points:
        numbers.append(NumberDataPoint(dict(point.labels), 0, at_ns, point.value))
    if family.kind == "counter":
        return Sum(numbers, _CUMULATIVE, is_monotonic=True)
    return Gauge(numbers)


def _build_histogram_point(point: Point, bounds: Sequence[float], at_ns: int) -> HistogramDataPoint:
    counts = list(point.bucket_counts)
    return HistogramDataPoint(
        attributes=dict(point.labels),
        start_time_unix_nano=0,
        time_unix_nano=at_ns,
        count=sum(counts),
        sum=point.value,
        bucket_counts=counts,
        explicit_bounds=list(bounds),
        min=None,  # type: ignore[arg-type]  # not known, and optional in OTLP
        max=None,  # type: ignore[arg-type]
    )


@contextmanager
def exporting(
    collect: Callable[[], Sequence[Family]],
    is_our_turn: Callable[[float], bool],
    service: str,
    interval_s: float,
) -> Iterator[None]:
    """Export the metrics during the block, at an interval.

    Args:
        collect: reads the metrics. It may raise a StoreError.
        is_our_turn: returns whether this process exports in the interval of these seconds. It
            may raise a StoreError.
        service: name of the service.
    """
    exporter, stop = OTLPMetricExporter(session=create_session()), threading.Event()

    def run() -> None:
        while not stop.wait(interval_s):
            try:
                if is_our_turn(interval_s):
                    exporter.export(build_metrics_data(collect(), service, time.time_ns()))
            except StoreError as error:
                log.warning("the metrics could not be exported", why=str(error))

    thread = threading.Thread(target=run, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        exporter.shutdown()  # ends the retries of an export
        thread.join()
