"""Any text is a valid query, and no text is read as query syntax."""

from __future__ import annotations

import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.text.search_words import MAX_WORDS, find_words, separate_cjk
from handoff_queue.workers.index.bm25_search import build_phrase_query, build_prefix_queries


@given(st.text())
def test_every_text_makes_a_valid_full_text_query(text: str) -> None:
    words = find_words(text)
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5(body)")

    for expression in (*map(build_phrase_query, words), *build_prefix_queries(words)):
        for query in (expression, f"body : ({expression})"):
            rows = connection.execute("SELECT * FROM t WHERE t MATCH ?", (query,))
            assert rows.fetchall() == []
    connection.close()


def test_operators_and_column_names_are_ordinary_words() -> None:
    assert find_words('body:"x" NEAR(y*) OR z^2') == ("body", "x", "near", "y", "z", "2")


def test_stop_words_are_dropped_unless_the_query_has_no_other_words() -> None:
    assert find_words("What is the price of it?") == ("price",)
    assert find_words("to be or not to be") == ("to", "be", "or", "not")


def test_a_query_is_cut_to_the_maximum_number_of_words() -> None:
    assert len(find_words(" ".join(f"word{number}" for number in range(1_000)))) == MAX_WORDS


def test_characters_of_scripts_without_spaces_are_separate_words() -> None:
    assert separate_cjk("数据库x").split() == ["数", "据", "库", "x"]


def test_accents_of_latin_letters_make_no_difference_also_in_decomposed_texts() -> None:
    assert find_words("Zürich") == find_words("Zu\u0308rich") == ("zurich",)
    assert find_words("йога") == ("йога",), "a mark makes another letter in Cyrillic"
    assert find_words("서울 ガラス") == ("서울", "ガラス")
