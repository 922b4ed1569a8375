"""A text that becomes a section keeps its headings, below the section's heading."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handoff_queue.supervisor.text.markdown import lower_headings


def test_the_highest_heading_becomes_one_level_lower() -> None:
    assert lower_headings(2, "# Overview\n\nIt is so.") == "### Overview\n\nIt is so."


def test_deeper_headings_keep_their_relative_level() -> None:
    assert lower_headings(2, "## One\n\n#### Deep\n\n## Two") == "### One\n\n##### Deep\n\n### Two"


def test_headings_that_are_too_deep_are_raised() -> None:
    assert lower_headings(2, "##### Overview") == "### Overview"


def test_no_heading_gets_deeper_than_markdown_allows() -> None:
    assert lower_headings(4, "# One\n\n### Three") == "##### One\n\n###### Three"


def test_an_underlined_heading_counts_as_a_heading() -> None:
    assert (
        lower_headings(2, "Overview\n========\nIt is so.\n\nMore\n----\n")
        == "### Overview\nIt is so.\n\n#### More\n"
    )


@pytest.mark.parametrize(
    "untouched",
    [
        "```sh\n# a comment\n```",
        "~~~~\n# a comment\n~~~\n# still one\n~~~~",
        "    # indented code",
        "```\n# in a fence that nobody closed",
        "> # A quotation's heading",
        "- # A list item's heading",
        "#no_heading",
        "No heading at all.",
        "",
    ],
)
def test_a_line_that_only_resembles_a_heading_stays_unchanged(untouched: str) -> None:
    assert lower_headings(2, untouched) == untouched


def test_code_between_headings_stays_unchanged() -> None:
    code = "```sh\n# a comment\n  make run  # another\n```"

    assert lower_headings(2, f"# Install\n\n{code}\n\n# Run") == f"### Install\n\n{code}\n\n### Run"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_headings_are_found_with_any_line_ending(end: str) -> None:
    assert (
        lower_headings(2, f"Before.{end}# Overview{end}After.") == "Before.\n### Overview\nAfter."
    )


@example("\x0c\na\r=")
@example("\x0c\r=>\r=")
@given(st.text(alphabet="#=-~`> \nab\r\t\x0b\x0c\x85\u2028", max_size=200))
def test_every_text_keeps_its_words_and_moves_only_once(text: str) -> None:
    moved = lower_headings(2, text)

    assert [char for char in moved if char in "ab"] == [char for char in text if char in "ab"]
    assert lower_headings(2, moved) == moved
