"""The tool `now` returns the current time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from handoff_queue.workers.tools.current_time import now_tool
from tests.workers.tools.contexts import ToolHarness


def test_the_tool_returns_the_current_time_in_utc() -> None:
    returned = datetime.fromisoformat(ToolHarness().call(now_tool()))

    assert returned.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - returned) < timedelta(seconds=5)
