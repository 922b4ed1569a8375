"""Passages cover a text in order, and end between sentences."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.workers.index.passages import MAX_CHARS, split_passages

TEXTS = st.text(alphabet=st.sampled_from(list("ab .\n#!?é。字\t")), max_size=6_000)


@given(TEXTS)
def test_passages_are_in_order_and_omit_only_white_space(text: str) -> None:
    position = 0
    for passage in split_passages(text):
        assert passage.start >= position
        assert not text[position : passage.start].strip()
        assert text[passage.start : passage.end].strip() == text[passage.start : passage.end] != ""
        position = passage.end
    assert not text[position:].strip()


@given(TEXTS)
def test_no_passage_is_longer_than_the_limit(text: str) -> None:
    assert all(passage.end - passage.start <= MAX_CHARS for passage in split_passages(text))


def test_a_short_text_is_one_passage() -> None:
    text = "# Title\n\nOne paragraph.\n\nAnother.\n"

    (passage,) = split_passages(text)

    assert text[passage.start : passage.end] == text.strip()


def test_a_heading_begins_a_new_passage_which_keeps_it_and_the_title() -> None:
    text = "# Guide\n\nIntro.\n\n## Install\n\nRun it.\n"

    first, second = split_passages(text)

    assert first.heading == "Guide"
    assert text[second.start : second.end] == "## Install\n\nRun it."
    assert second.heading == "Guide Install"


def test_a_long_paragraph_is_cut_between_sentences() -> None:
    text = " ".join(f"Sentence number {number} says something." for number in range(200))

    pieces = [text[passage.start : passage.end] for passage in split_passages(text)]

    assert len(pieces) > 3
    assert all(piece.startswith("Sentence") and piece.endswith(".") for piece in pieces)


def test_a_text_without_sentences_is_cut_at_the_limit() -> None:
    assert [passage.end - passage.start for passage in split_passages("x" * 3_000)] == [
        MAX_CHARS,
        MAX_CHARS,
        200,
    ]
