"""A provider that refuses calls without naming its limits: the whole fleet waits, and one call
finds the end of the storm.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.agent.retry_policy import FIRST_DELAY_S
from tests.e2e.fleet import Fleet

pytestmark = pytest.mark.slow

WORKERS = 3
STORM_S = 1.2 * FIRST_DELAY_S
"""A call retries once within the storm, after its first delay. The second delay is longer than the
storm.
"""


def test_after_the_calls_that_were_in_the_air_one_at_a_time_finds_out_whether_a_storm_of_429_is_over(
    fleet: Fleet,
) -> None:
    fleet.model.storms["storm"] = STORM_S

    fleet.ends_well(fleet.submit("storm", a="", b="", c="", d="", e="", f=""))

    refused = sum(fleet.model.calls["storm", step, 1] for step in "abcdef") - len("abcdef")
    assert 1 <= refused <= WORKERS + 1
