"""Instructions are split at their headings, and lose the sections for tools that are missing."""

from __future__ import annotations

import pytest

from handoff_queue.shared.text.markdown_sections import leave_out_sections, split_sections


def test_sections_are_split_at_headings_outside_code() -> None:
    text = "Opening.\n## One\na\n```\n## not a heading\n```\n## Two\nb"
    assert list(split_sections(text)) == ["", "One", "Two"]
    assert "\n".join(split_sections(text).values()) == text


@pytest.mark.parametrize(
    ("tools", "sections"),
    [
        ((), ["", "Output", "With `jq`"]),
        (("read",), ["", "Output", "With `jq`", "With `search` or `read`"]),
        (("run",), ["", "Output", "With `jq`", "With `run`"]),
    ],
)
def test_a_section_for_tools_is_only_for_an_agent_with_one_of_them(
    tools: tuple[str, ...], sections: list[str]
) -> None:
    text = (
        "Opening with `run`.\n## With `run`\na\n## Output\nb\n## With `jq`\nc\n"
        "## With `search` or `read`\nd"
    )
    missing = {"search", "read", "run"} - {*tools}
    assert sorted(split_sections(leave_out_sections(text, tools, missing))) == sections
