"""A chaos run with one fixed seed that tries every failpoint.

It is the longest test, so its file comes first: with `--dist worksteal`, the other process runs
the other tests. `make chaos` takes a random seed.
"""

from __future__ import annotations

import pytest

from handoff_queue.chaos.report import broken_of, table_of
from handoff_queue.chaos.run import Options, try_failpoints
from handoff_queue.shared.local.fork_server import ForkServer

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(600)]

SEED = 20_261_122


def discard_line(_line: str) -> None:
    """Discard a line of progress."""


def test_no_failpoint_breaks_a_promise(fork_server: ForkServer | None) -> None:
    seed = SEED

    records = try_failpoints(Options(seed, fork_server=fork_server), discard_line)

    assert broken_of(records) == [], f"seed {seed}\n{table_of(records)}"
