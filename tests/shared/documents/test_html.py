"""HTML pages become text with their headings, paragraphs, list items and rows in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.documents.html import extract_html_text, find_declared_charset


def test_structure_is_kept_as_lines_and_inline_marks_vanish() -> None:
    markup = (
        "<h1>Top</h1><p>One\n <b>bold</b>\n line.</p><ul><li>a</li><li><p>b</p></li></ul><p>End</p>"
    )

    assert extract_html_text(markup) == "# Top\n\nOne bold line.\n\n- a\n- b\n\nEnd"


def test_rows_of_a_table_are_lines() -> None:
    assert (
        extract_html_text("<table><tr><th>Name<th>Size<tr><td>x<td>1</table>")
        == "Name | Size\nx | 1"
    )


def test_code_keeps_its_spaces() -> None:
    assert (
        extract_html_text("<p>Try</p><pre>def f():\n    return 1</pre>")
        == "Try\n\ndef f():\n    return 1"
    )


def test_a_line_break_is_one() -> None:
    assert extract_html_text("<p>one<br>two</p>") == "one\ntwo"


def test_scripts_styles_and_navigation_are_not_text() -> None:
    markup = (
        "<body><nav>Home</nav><script>alert(1)</script><style>p{}</style><p>Text</p><!-- note"
        " --></body>"
    )

    assert extract_html_text(markup) == "Text"


def test_the_title_heads_a_page_without_a_heading() -> None:
    assert extract_html_text("<title>T</title><p>x</p>") == "# T\n\nx"
    assert extract_html_text("<title>T</title><h1>H</h1>") == "# H"


def test_only_the_main_part_is_read_if_the_page_has_one() -> None:
    assert (
        extract_html_text(
            "<body><div>menu</div><main><p>Text</p></main><footer>foot</footer></body>"
        )
        == "Text"
    )


@pytest.mark.slow
def test_a_page_nested_deeper_than_the_stack_is_read() -> None:
    assert extract_html_text("<div>" * 10_000 + "deep") == "deep"


def test_the_charset_is_found_in_both_spellings() -> None:
    assert find_declared_charset(b'<meta charset="windows-1251">') == "windows-1251"
    assert (
        find_declared_charset(b'<meta http-equiv=x content="text/html; charset=iso-8859-2">')
        == "iso-8859-2"
    )
    assert find_declared_charset(b"<p>none</p>") is None


@given(st.text(alphabet=st.sampled_from(list("<>/apdivulitrh1 \n\"'=&;x")), max_size=200))
def test_no_markup_breaks_it(markup: str) -> None:
    assert extract_html_text(markup).strip() == extract_html_text(markup)
