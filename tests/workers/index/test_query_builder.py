"""Any text is a valid query, and no text is read as query syntax."""

from __future__ import annotations

import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.text.search_words import MAX_WORDS, separate_cjk, words_of
from handoff_queue.workers.index.query_builder import beginnings_of, phrase_of


@given(st.text())
def test_every_text_makes_a_valid_full_text_query(text: str) -> None:
    words = words_of(text)
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5(body)")

    for expression in (*map(phrase_of, words), *beginnings_of(words)):
        for query in (expression, f"body : ({expression})"):
            rows = connection.execute("SELECT * FROM t WHERE t MATCH ?", (query,))
            assert rows.fetchall() == []
    connection.close()


def test_operators_and_column_names_are_ordinary_words() -> None:
    assert words_of('body:"x" NEAR(y*) OR z^2') == ("body", "x", "near", "y", "z", "2")


def test_stop_words_are_dropped_unless_the_query_has_no_other_words() -> None:
    assert words_of("What is the price of it?") == ("price",)
    assert words_of("to be or not to be") == ("to", "be", "or", "not")


def test_a_query_is_cut_to_the_maximum_number_of_words() -> None:
    assert len(words_of(" ".join(f"word{number}" for number in range(1_000)))) == MAX_WORDS


def test_characters_of_scripts_without_spaces_are_separate_words() -> None:
    assert separate_cjk("数据库x").split() == ["数", "据", "库", "x"]


def test_accents_of_latin_letters_make_no_difference_also_in_decomposed_texts() -> None:
    assert words_of("Zürich") == words_of("Zu\u0308rich") == ("zurich",)
    assert words_of("йога") == ("йога",), "a mark makes another letter in Cyrillic"
    assert words_of("서울 ガラス") == ("서울", "ガラス")
