"""All processes together keep a provider's rate limits. The server counts the calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.pace import measure_pace

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.xdist_group("others"),
    pytest.mark.timeout(300),
]


def test_eight_worker_processes_use_90_percent_of_the_rate_limit_without_a_refusal(
    tmp_path: Path,
) -> None:
    # With fewer calls, the seconds in which 64 slots begin would count too much.
    outcome = measure_pace(tmp_path, workers=8, slots=8, limit=50, window_s=9.0, calls=150)
    assert set(outcome.statuses) == {"ok"}
    assert len(outcome.bucket.taken) == 150
    assert len(outcome.buckets) == 2, "the supervisor's roles use another model"
    assert outcome.refused == 0
    assert outcome.bucket.used >= 0.9
