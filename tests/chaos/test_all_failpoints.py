"""Three chaos runs with one fixed seed that together try every failpoint.

The groups are the longest tests, so each group has a separate test process. The command
`handoff chaos --failpoints` takes a random seed, and tries all failpoints in one run.
"""

from __future__ import annotations

import pytest

from handoff_queue.chaos.failpoint_cases import list_cases
from handoff_queue.chaos.report import find_broken_promises, format_table
from handoff_queue.chaos.run import Options, try_failpoints
from handoff_queue.shared.local.fork_server import ForkServer

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(600)]

SEED = 20_261_122


def discard_line(_line: str) -> None:
    """Discard a line of progress."""


@pytest.mark.parametrize(
    "third",
    [
        pytest.param(0, marks=pytest.mark.xdist_group("first failpoints")),
        pytest.param(1, marks=pytest.mark.xdist_group("second failpoints")),
        pytest.param(2, marks=pytest.mark.xdist_group("third failpoints")),
    ],
)
def test_no_failpoint_breaks_a_promise(fork_server: ForkServer | None, third: int) -> None:
    seed = SEED

    options = Options(seed, fork_server=fork_server)
    records = try_failpoints(options, discard_line, list_cases()[third::3])

    assert find_broken_promises(records) == [], f"seed {seed}\n{format_table(records)}"
