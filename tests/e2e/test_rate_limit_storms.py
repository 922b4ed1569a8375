"""After 429 replies without rate limits, the whole fleet waits, and single calls probe the
provider.
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


def test_after_the_first_refusals_one_call_at_a_time_probes_a_provider_that_sends_429(
    fleet: Fleet,
) -> None:
    fleet.model.storms["storm"] = STORM_S

    fleet.wait_for_success(fleet.submit("storm", a="", b="", c="", d="", e="", f=""))

    refused = sum(fleet.model.calls["storm", step, 1] for step in "abcdef") - len("abcdef")
    assert 1 <= refused <= WORKERS + 1
