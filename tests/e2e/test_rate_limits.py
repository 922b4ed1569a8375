"""A provider's limits, kept by all processes together: by the count of the server that has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.pace import paced

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(300)]


def test_eight_worker_processes_use_nearly_all_that_a_server_allows_and_are_never_refused(
    tmp_path: Path,
) -> None:
    seen = paced(tmp_path, workers=8, slots=8, limit=50, window_s=12.0, calls=120)
    assert set(seen.statuses) == {"ok"}
    assert len(seen.bucket.taken) == 120
    assert len(seen.buckets) == 2, "the supervisor's roles have a model of their own"
    assert seen.refused == 0
    assert seen.bucket.used >= 0.9
