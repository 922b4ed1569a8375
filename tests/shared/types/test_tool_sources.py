"""The names of tool results change when they go to another job."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.citation_markers import rename_tool_sources


@pytest.mark.parametrize(
    ("text", "renamed"),
    [
        ("tool:find.1/look#1", "tool:<find.1>/look#1"),
        (
            "See (tool:x.1.find.2/run_code#f8/my data.txt).",
            "See (tool:<x.1.find.2>/run_code#f8/my data.txt).",
        ),
        ("memory:a/b (tool:find.1/look#1)", "memory:a/b (tool:find.1/look#1)"),
        ("mytool:find.1/look#1, tool:look#1, https://a.example/tool:find/x",) * 2,
    ],
)
def test_only_names_of_tool_results_are_renamed(text: str, renamed: str) -> None:
    assert rename_tool_sources(text, lambda handoffs: f"<{handoffs}>") == renamed
