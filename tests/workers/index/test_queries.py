"""Any text is a query, and no query is a programme."""

from __future__ import annotations

import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.workers.index.queries import (
    MOST_WORDS,
    any_beginning_with,
    any_of,
    index_text,
    words_of,
)


@given(st.text())
def test_no_text_breaks_the_query_language(text: str) -> None:
    words = words_of(text)
    with_index = sqlite3.connect(":memory:")
    with_index.execute("CREATE VIRTUAL TABLE t USING fts5(body)")

    for expression in (any_of(words), any_beginning_with(words)):
        if expression:
            found = with_index.execute("SELECT * FROM t WHERE t MATCH ?", (expression,))
            assert found.fetchall() == []
    with_index.close()


def test_operators_and_column_names_are_words_like_others() -> None:
    assert words_of('body:"x" NEAR(y*) OR z^2') == ("body", "x", "near", "y", "z", "2")


def test_stop_words_are_dropped_unless_there_is_nothing_else() -> None:
    assert words_of("What is the price of it?") == ("price",)
    assert words_of("to be or not to be") == ("to", "be", "or", "not")


def test_a_pasted_page_is_cut_to_a_long_question() -> None:
    assert len(words_of(" ".join(f"word{number}" for number in range(1_000)))) == MOST_WORDS


def test_characters_of_scripts_without_spaces_are_separate_words() -> None:
    assert index_text("数据库x").split() == ["数", "据", "库", "x"]
