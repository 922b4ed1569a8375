"""The page of all metrics, from the module that defines them."""

from __future__ import annotations

from docs.generator.markdown import build_table, format_code
from handoff_queue.shared.store.metrics import MAX_VALUES
from handoff_queue.supervisor.serve.metrics import (
    BUCKETS,
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    PREFIX,
    Instrument,
)

INTRODUCTION = """\
# Metrics

`handoff serve` answers with these metrics at `/metrics`. [Watch the system with Prometheus](../how-to/metrics.md) shows how to scrape them.

The counts and the durations are those of the whole system since its Redis began. They do not depend on the server that answers.
"""  # noqa: E501 - lines of a text
LABELS = """\
## Labels

| Label | Values |
|---|---|
| `tenant` | The tenant of the job. The first {tenant} tenants have their own time series; the others share `other`. |
| `agent` | A specialist, or a role of the supervisor. At most {agent} values, then `other`. For the gauges of the fleet, all roles of the supervisor are one agent, `roles`. |
| `specialists` | The specialists that a waiting job may use, at most five, with spaces between; `any` for a job that may use every specialist. At most 100 values. |
| `model` | The model of the request. At most {model} values, then `other`. |
| `outcome` | Of a handoff: `ok`, `partial`, `needs_input`, `failed`, `dropped`. Of a job: `ok`, `partial`, `failed`, `cancelled`. |
| `status` | Of a model call: `ok`, `failed`, `cut`. |
| `type` | Of tokens: `input`, `output`. |
| `kind` | Of a recovery: `lease`, `message`, `wake_up`. |
"""  # noqa: E501 - lines of a text


def build_page() -> str:
    """Return the text of the page."""
    bounds = ", ".join(map(format_code, BUCKETS))
    parts = [
        INTRODUCTION,
        LABELS.format(**MAX_VALUES),
        "## Counters\n",
        _build_table(COUNTERS, "_total"),
        f"## Histograms\n\nThe buckets end at {bounds} seconds.\n",
        _build_table(HISTOGRAMS, ""),
        "## Gauges\n\nThe server computes these numbers for each scrape.\n",
        _build_table(GAUGES, ""),
    ]
    return "\n".join(parts)


def _build_table(instruments: tuple[Instrument, ...], suffix: str) -> str:
    rows: list[tuple[str, str, str, str]] = []
    for instrument in instruments:
        name = format_code(f"{PREFIX}{instrument.name}{suffix}")
        labels = ", ".join(map(format_code, instrument.labels))
        rows.append((name, labels, instrument.unit, instrument.help))
    return build_table(["Metric", "Labels", "Unit", "What it shows"], rows)
