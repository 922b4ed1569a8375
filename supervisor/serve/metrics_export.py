"""Export of the metrics to OpenTelemetry, by one of the servers at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.store.store import Store
from handoff_queue.supervisor.serve.metrics import (
    BUCKETS,
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    PREFIX,
    StoreMetrics,
)

if TYPE_CHECKING:
    from handoff_queue.shared.observability.otel.metrics import Family, Point

ENDPOINT = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
"""OpenTelemetry's own variable. If it is set, the metrics are sent to its URL."""
INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
"""OpenTelemetry's own variable: milliseconds between two exports."""
DEFAULT_INTERVAL_MS = 60_000
SERVICE = "handoff-queue"
_UNITS = {"seconds": "s", "bytes": "By", "US dollars": "{USD}"}
"""Unit of an instrument -> the unit in OpenTelemetry."""


def export_metrics(store: Store) -> AbstractContextManager[None]:
    """Return a context in which the metrics are exported, if the environment asks for that."""
    if not os.environ.get(ENDPOINT) or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return nullcontext()
    try:
        from handoff_queue.shared.observability.otel.metrics import exporting
    except ImportError:
        get_log(__name__).warning(
            "no metrics are sent: OpenTelemetry's packages are missing: install the extra otel of"
            " handoff-queue"
        )
        return nullcontext()

    def read_families() -> list[Family]:
        return build_families(StoreMetrics(store).collect())

    return exporting(read_families, store.metrics.take_turn, SERVICE, _get_interval_s())


def _get_interval_s() -> float:
    value = os.environ.get(INTERVAL, "")
    if value.isdecimal() and int(value) > 0:
        return int(value) / 1000
    return DEFAULT_INTERVAL_MS / 1000


def build_families(metrics: Iterable[Metric]) -> list[Family]:
    """Return the metrics in the form of the export."""
    from handoff_queue.shared.observability.otel.metrics import Family

    units: dict[str, str] = {}
    for instrument in (*COUNTERS, *HISTOGRAMS, *GAUGES):
        units[PREFIX + instrument.name] = _UNITS.get(instrument.unit, "1")
    families: list[Family] = []
    for metric in metrics:
        unit = units[metric.name]
        bounds: tuple[float, ...] = ()
        if metric.type == "histogram":
            points = _build_histogram_points(metric)
            bounds = tuple(float(bound) for bound in BUCKETS[:-1])
        else:
            points = _build_points(metric)
        families.append(
            Family(metric.name, metric.documentation, unit, metric.type, points, bounds)
        )
    return families


def _build_points(metric: Metric) -> list[Point]:
    from handoff_queue.shared.observability.otel.metrics import Point

    return [Point(sample.labels, float(sample.value)) for sample in metric.samples]


def _build_histogram_points(metric: Metric) -> list[Point]:
    """Return a point for each set of labels. The buckets of a sample are cumulative."""
    from handoff_queue.shared.observability.otel.metrics import Point

    points: list[Point] = []
    totals = [0.0]
    for sample in metric.samples:
        if sample.name.endswith("_bucket"):
            totals.append(sample.value)
        elif sample.name.endswith("_sum"):
            counts = [int(after - before) for before, after in pairwise(totals)]
            points.append(Point(sample.labels, sample.value, counts))
            totals = [0.0]
    return points
