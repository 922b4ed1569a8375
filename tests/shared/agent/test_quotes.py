from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.agent.quotes import MOST_QUOTE_CHARS, find_quote, folded

words = st.lists(
    st.text(st.characters(codec="utf-8", exclude_categories=("Z", "C")), min_size=1, max_size=8),
    min_size=1,
    max_size=8,
)
spaces = st.sampled_from([" ", "  ", "\n", "\n   ", "\t"])


@given(words, words, words, spaces, spaces)
def test_a_quote_is_found_whatever_the_white_space(
    before: list[str], quote: list[str], after: list[str], one: str, other: str
) -> None:
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


marks = st.sampled_from(
    ["'", "’", '"', "“", "«", "-", "–", "—", "a", "b", " ", "\n", "\t ", "\u00a0"]
)


@given(st.lists(marks, max_size=30).map("".join), st.data())
def test_a_span_is_the_quote_but_for_folding(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    quote = "  ".join(folded(text[start:end]).split())
    span = find_quote(quote, text)
    assert (span is None) == (quote == "")
    if span is not None:
        assert folded(text[span.start : span.end]) == folded(quote)


@given(st.lists(marks, max_size=30).map("".join), st.lists(marks, max_size=6).map("".join))
def test_what_is_found_is_the_quote_and_what_is_not_found_is_not_there(
    text: str, quote: str
) -> None:
    span = find_quote(quote, text)
    assert (span is not None) == (folded(quote) != "" and folded(quote) in folded(text))
    if span is not None:
        assert folded(text[span.start : span.end]) == folded(quote)


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ("a " * 1_000_000, "a " * 1_900 + "b"),
        ("a \n" * 700_000, "a " * 1_000 + "a"),
        ("“" * 2_000_000, "'" * 3_999),
        (" " * 2_000_000, "a b"),
        ("a\u00a0–" * 700_000 + "b", "a - " * 900 + "b"),
        ("ab" * 1_000_000, "ab" * 1_500 + "b"),
    ],
)
def test_two_megabytes_made_to_be_slow_take_less_than_a_second(text: str, quote: str) -> None:
    before = time.process_time()
    find_quote(quote, text)
    assert time.process_time() - before < 1
