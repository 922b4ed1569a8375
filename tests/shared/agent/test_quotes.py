from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.agent.quotes import MOST_QUOTE_CHARS, find_quote

words = st.lists(st.text(st.characters(codec="utf-8", exclude_categories=("Z", "C")), min_size=1, max_size=8), min_size=1, max_size=8)
spaces = st.sampled_from([" ", "  ", "\n", "\n   ", "\t"])


@given(words, words, words, spaces, spaces)
def test_a_quote_is_found_whatever_the_white_space(before: list[str], quote: list[str], after: list[str], one: str, other: str) -> None:
    text = one.join([*before, *quote, *after])
    span = find_quote(other.join(quote), text)
    assert span is not None
    assert text[span.start : span.end].split() == other.join(quote).split()


def test_quotation_marks_and_dashes_may_be_swapped() -> None:
    text = "It’s “fast” – really."
    span = find_quote('It\'s "fast" - really.', text)
    assert span is not None
    assert text[span.start : span.end] == text


def test_other_words_are_not_found() -> None:
    assert find_quote("written in Go", "It is written in Rust.") is None


def test_case_matters() -> None:
    assert find_quote("rust", "Rust") is None


def test_nothing_is_not_a_quote() -> None:
    assert find_quote("  \n", "some text") is None


def test_a_quote_of_pattern_characters_is_only_text() -> None:
    assert find_quote("(a+)+$ .*", "x (a+)+$\n.* y") is not None


def test_a_long_quote_is_shortened() -> None:
    text = "word " * 1_000
    span = find_quote(text, text)
    assert span is not None
    assert span.end - span.start == MOST_QUOTE_CHARS
