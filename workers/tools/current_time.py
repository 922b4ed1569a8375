"""`now`: the tool for the current time, which a model does not know."""

from __future__ import annotations

from datetime import UTC, datetime

from handoff_queue.shared.agent.tool import Tool, ToolContext
from handoff_queue.workers.tools.tool_arguments import Arguments, make_builtin_tool


class _Nothing(Arguments):
    pass


def now_tool() -> Tool:
    """Return the tool. Its result is the current time in UTC, as ISO 8601."""
    return make_builtin_tool(
        "now", "The current date and time in UTC, as ISO 8601.", _Nothing, _now
    )


def _now(_arguments: _Nothing, _context: ToolContext) -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
