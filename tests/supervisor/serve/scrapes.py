"""Read the answer of `/metrics` with Prometheus's own parser."""

from __future__ import annotations

from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

Series = tuple[str, frozenset[tuple[str, str]]]
"""Name of a sample, and its labels."""


def scrape(http: TestClient) -> dict[Series, float]:
    """Return the value of every time series."""
    answer = http.get("/metrics")
    assert answer.status_code == 200, answer.text
    return samples_in(answer.text)


def samples_in(text: str) -> dict[Series, float]:
    """Return the value of every time series in a text of Prometheus's format."""
    samples: dict[Series, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series = (sample.name, frozenset(sample.labels.items()))
            assert series not in samples, "each time series has one value"
            samples[series] = sample.value
    return samples


def value(samples: dict[Series, float], name: str, /, **labels: str) -> float | None:
    """Return the value of one time series, or None if there is none."""
    return samples.get((name, frozenset(labels.items())))


def counted(samples: dict[Series, float]) -> dict[Series, float]:
    """Return the time series of counters and histograms."""
    ends = ("_total", "_bucket", "_sum", "_count")
    return {series: count for series, count in samples.items() if series[0].endswith(ends)}
