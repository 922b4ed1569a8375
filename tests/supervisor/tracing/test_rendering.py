"""Answers become HTML with links to their sources, and nothing that a browser runs or loads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser, LexborNode

from handoff_queue.supervisor.tracing.page import render_answer, render_sources

PREFIX = "j-1"


def source(
    n: int, name: str = "terms.md", quote: str = "We ship <b>worldwide</b>."
) -> dict[str, Any]:
    return {"n": n, "source": name, "quote": quote, "claim": "So.", "step": "look"}


def parsed_html(text: str, *numbers: int) -> LexborHTMLParser:
    return LexborHTMLParser(render_answer(text, [source(n) for n in numbers], PREFIX))


def get_only_match(root: LexborHTMLParser | LexborNode, selector: str) -> LexborNode:
    node = root.css_first(selector)
    assert node is not None, selector
    return node


def test_markdown_is_rendered_with_its_tables() -> None:
    page = parsed_html("# Costs\n\nIt is **so**.\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n")

    assert [get_only_match(page, tag).text() for tag in ("h1", "strong", "th", "td.right")] == [
        "Costs",
        "so",
        "a",
        "2",
    ]
    assert page.css("[style]") == []


def test_each_number_of_a_source_is_a_link_to_its_quote() -> None:
    page = parsed_html("So [1][2], and so [1].\n\n- In a list [2]\n", 1, 2)

    assert [link.attributes["href"] for link in page.css("a.cite")] == [
        "#j-1-source-1",
        "#j-1-source-2",
        "#j-1-source-1",
        "#j-1-source-2",
    ]
    assert (
        get_only_match(page, "a.cite").attributes["title"]
        == "terms.md: “We ship <b>worldwide</b>.”"
    )


@pytest.mark.parametrize(
    "text", ["`a[1]`", "```\na[1]\n```", "[9]", "[x]", "[see [1]](https://example.com)"]
)
def test_text_that_only_resembles_a_source_is_not_a_link(text: str) -> None:
    assert parsed_html(text, 1).css("a.cite") == []


def test_a_definition_of_a_link_takes_no_number_away_from_its_source() -> None:
    page = parsed_html("So [1].\n\n[1]: https://evil.example\n", 1)

    assert {link.attributes["href"] for link in page.css("a")} == {"#j-1-source-1"}


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "![x](https://evil.example/p.png)",
        "[x](javascript:alert(1))",
        "[x](data:text/html,hello)",
        "[x](//evil.example)",
        "[x](file:///etc/passwd)",
        "<javascript:alert(1)>",
        "| <script>alert(1)</script> |\n|---|\n",
    ],
)
def test_no_part_of_an_answer_runs_loads_or_links_outside_the_web(text: str) -> None:
    page = parsed_html(text, 1)

    assert page.css("script, img, iframe, object, style, [onerror]") == []
    assert all((link.attributes["href"] or "").startswith("https://") for link in page.css("a"))


def test_a_link_to_the_web_reveals_nothing_to_the_other_page() -> None:
    (link,) = parsed_html("[terms](https://example.com/a?b=1&c=2)").css("a")

    assert link.attributes["rel"] == "noopener noreferrer nofollow"
    assert link.attributes["href"] == "https://example.com/a?b=1&c=2"


def test_a_source_shows_its_document_and_the_text_of_its_quote() -> None:
    listed = LexborHTMLParser(
        render_sources([source(1), source(3, 'https://example.com/"x', "Nine days.")], PREFIX)
    )

    first, second = listed.css("li")
    assert (first.id, get_only_match(first, "strong").text()) == ("j-1-source-1", "terms.md")
    assert get_only_match(first, "blockquote").text() == "We ship <b>worldwide</b>."
    assert (second.id, second.attributes["value"]) == ("j-1-source-3", "3")
    assert get_only_match(second, "a").attributes["href"] == 'https://example.com/"x'


@pytest.mark.parametrize(("answer", "is_form"), [({"a": "<b>"}, False), ("<b>", True)])
def test_an_answer_with_a_schema_is_shown_as_json(answer: Any, is_form: bool) -> None:
    page = LexborHTMLParser(render_answer(answer, [], PREFIX, is_form=is_form))

    assert "<b>" in get_only_match(page, "pre").text()
    assert page.css("b") == []


@given(st.text(alphabet="[]()<>!*_`|#-\n 1x:/&\"'", max_size=60))
def test_any_text_becomes_markup_of_a_few_harmless_kinds(text: str) -> None:
    page = parsed_html(f"{text}\n\n{text} [1]", 1)
    body = page.body
    assert body is not None
    for link in body.css("a"):
        assert (link.attributes["href"] or "").startswith(("#j-1-", "http"))
    assert body.css("script, img, [style]") == []
