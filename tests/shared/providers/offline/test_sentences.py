"""Sentences: whole, verbatim, and only of running text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.providers.offline.sentences import sentences_of
from handoff_queue.shared.providers.offline.statements import marked, unmarked_statements

TEXT = """# Title

First sentence, e.g. this one, is whole. The second was made in 2021. Both are here
over two lines.

| a | table | of | names |
|---|-------|----|-------|

```
code is no sentence at all.
```

- **Bold** item with a [link](http://x.invalid) and no full stop
"""


def _texts(text: str) -> list[str]:
    return [sentence.text for sentence in sentences_of(text, "doc.md")]


def test_sentences_end_where_they_end_and_not_at_abbreviations_or_years() -> None:
    assert _texts(TEXT)[:3] == [
        "First sentence, e.g. this one, is whole.",
        "The second was made in 2021.",
        "Both are here over two lines.",
    ]


def test_code_headings_and_the_names_of_columns_are_not_stated() -> None:
    assert not any("table" in text or "code" in text or "Title" in text for text in _texts(TEXT))


def test_markup_is_taken_off_the_text_and_kept_in_the_quote() -> None:
    (item,) = [sentence for sentence in sentences_of(TEXT, "doc.md") if "item" in sentence.text]
    assert item.text == "Bold item with a link and no full stop"
    assert item.quote == "**Bold** item with a [link](http://x.invalid) and no full stop"


def test_a_fragment_at_a_cut_edge_is_dropped() -> None:
    found = sentences_of(
        "tail of something cut off. A whole sentence stands here. And this one was cut",
        "d",
        starts_whole=False,
        ends_whole=False,
    )
    assert [sentence.text for sentence in found] == ["A whole sentence stands here."]


@given(st.text(max_size=300))
def test_every_quote_stands_in_the_text(text: str) -> None:
    folded = " ".join(text.split())
    for sentence in sentences_of(text, "doc.md"):
        assert all(word in folded for word in sentence.quote.split())


def test_a_sentence_that_ends_in_a_letter_ends_and_an_initial_does_not() -> None:
    text = "It is, as a whole, written in C. Vectors are columns of ordinary tables. Donald E. Knuth wrote a book."
    assert _texts(text) == [
        "It is, as a whole, written in C.",
        "Vectors are columns of ordinary tables.",
        "Donald E. Knuth wrote a book.",
    ]


words = st.sampled_from(
    [
        "It",
        "is",
        "in",
        "C.",
        "e.g.",
        "**Bold.**",
        "*so*",
        "(see",
        "it.)",
        "no.",
        "5",
        "J.",
        '"Yes."',
        "store",
        "2.",
        "fast!",
        "Go",
    ]
)


@given(
    st.lists(words, min_size=1, max_size=24).map(" ".join), st.sampled_from(["", "- ", "# T\n\n"])
)
def test_who_reviews_finds_the_same_sentences_as_who_drafts(text: str, before: str) -> None:
    for sentence in sentences_of(before + text, "doc.md"):
        assert list(unmarked_statements(marked(sentence.standing_alone, "c1"))) == []


def test_labelled_values_say_something_however_short() -> None:
    listed, bare = (
        "# Delta\n\n- Price: $499\n- Weight: 1.3 kg",
        "Delta\n\nPrice: $499\nWeight: 1.3 kg\n",
    )
    assert _texts(listed) == _texts(bare) == ["Price: $499", "Weight: 1.3 kg"]
    assert [each.standing_alone for each in sentences_of(bare, "x.txt")] == [
        "Delta: Price: $499",
        "Delta: Weight: 1.3 kg",
    ]


def test_rows_of_tables_are_said_with_their_columns_names_and_quoted_as_they_stand() -> None:
    narrow = sentences_of(
        "# Ember\n\n| Property | Value |\n|---|---|\n| Price    | $1,099 |\n", "x.md"
    )
    wide = sentences_of(
        "|Name|Price|Weight|\n|:--|--:|---|\n|Ember|$1,099|1.9 kg|\n|Fjord||990 g|\n", "x.md"
    )
    assert [(each.text, each.quote) for each in narrow] == [("Price: $1,099", "Price | $1,099")]
    assert [each.text for each in wide] == [
        "Ember: Price $1,099, Weight 1.9 kg",
        "Fjord: Weight 990 g",
    ]
    assert wide[0].quote == "Ember|$1,099|1.9 kg"


def test_the_lines_of_a_log_are_statements_each() -> None:
    log = "2025-03-02 09:14 gateway stopped answering\n2025-03-02 10:02 gateway was restored\n"
    assert _texts(log) == log.splitlines()


def test_a_first_line_that_stands_alone_and_one_that_is_underlined_are_headings() -> None:
    found = sentences_of(
        "Cobalt X\n\nIts batteries last long enough.\n\nPrice\n-----\nIt is cheap for that.\n",
        "c.txt",
    )
    assert [(each.title, each.heading) for each in found] == [
        ("Cobalt X", "Cobalt X"),
        ("Cobalt X", "Price"),
    ]
