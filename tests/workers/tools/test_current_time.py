"""The time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from handoff_queue.workers.tools.current_time import now_tool
from tests.workers.tools.contexts import Desk


def test_the_tool_returns_the_present_in_utc() -> None:
    told = datetime.fromisoformat(Desk().call(now_tool()))

    assert told.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - told) < timedelta(seconds=5)
