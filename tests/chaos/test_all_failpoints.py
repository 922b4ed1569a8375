"""A chaos run with one fixed seed that tries every failpoint.

It is the longest test, so its file comes first: with `--dist worksteal`, the other tests run in
the other process meanwhile. `make chaos` takes a random seed.
"""

from __future__ import annotations

import pytest

from handoff_queue.chaos.report import broken_of, table_of
from handoff_queue.chaos.run import Options, try_failpoints

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(600)]

SEED = 20_261_122


def discard_line(_line: str) -> None:
    """Discard a line of progress."""


def test_no_failpoint_breaks_a_promise() -> None:
    seed = SEED

    records = try_failpoints(Options(seed), discard_line)

    assert broken_of(records) == [], f"seed {seed}\n{table_of(records)}"
