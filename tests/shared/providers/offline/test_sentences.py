"""Documents are split into complete, verbatim sentences, list items and rows, with their
headings.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.providers.offline.citations import add_marker, iterate_unmarked_statements
from handoff_queue.shared.providers.offline.sentences import parse_sentences

TEXT = """# Title

First sentence, e.g. this one, is whole. The second was made in 2021. Both are here
over two lines.

| a | table | of | names |
|---|-------|----|-------|

```
code is not a sentence at all.
```

- **Bold** item with a [link](http://x.invalid) and no full stop
"""


def _texts(text: str) -> list[str]:
    return [sentence.text for sentence in parse_sentences(text, "doc.md")]


def test_sentences_do_not_end_at_abbreviations_or_years() -> None:
    assert _texts(TEXT)[:3] == [
        "First sentence, e.g. this one, is whole.",
        "The second was made in 2021.",
        "Both are here over two lines.",
    ]


def test_code_headings_and_the_names_of_columns_are_not_stated() -> None:
    assert not any("table" in text or "code" in text or "Title" in text for text in _texts(TEXT))


def test_markup_is_removed_from_the_text_and_kept_in_the_quote() -> None:
    (item,) = [sentence for sentence in parse_sentences(TEXT, "doc.md") if "item" in sentence.text]
    assert item.text == "Bold item with a link and no full stop"
    assert item.quote == "**Bold** item with a [link](http://x.invalid) and no full stop"


def test_a_fragment_at_a_cut_edge_is_dropped() -> None:
    sentences = parse_sentences(
        "tail of something cut off. A whole sentence stands here. And this one was cut",
        "d",
        is_start=False,
        is_end=False,
    )
    assert [sentence.text for sentence in sentences] == ["A whole sentence stands here."]


@given(st.text(max_size=300))
def test_every_quote_is_part_of_the_text(text: str) -> None:
    folded = " ".join(text.split())
    for sentence in parse_sentences(text, "doc.md"):
        assert all(word in folded for word in sentence.quote.split())


def test_a_sentence_that_ends_in_a_letter_ends_and_an_initial_does_not() -> None:
    text = (
        "It is, as a whole, written in C. Vectors are columns of ordinary tables. Donald E. Knuth"
        " wrote a book."
    )
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
def test_a_marked_sentence_counts_as_one_marked_statement(text: str, before: str) -> None:
    for sentence in parse_sentences(before + text, "doc.md"):
        assert list(iterate_unmarked_statements(add_marker(sentence.text, "c1"))) == []


@pytest.mark.parametrize(
    "text", ["# Delta\n\n- Price: $499\n- Weight: 1.3 kg", "Delta\n\nPrice: $499\nWeight: 1.3 kg\n"]
)
def test_short_labelled_values_are_statements(text: str) -> None:
    sentences = parse_sentences(text, "x.txt")

    assert [each.text for each in sentences] == ["Price: $499", "Weight: 1.3 kg"]
    assert {each.headings for each in sentences} == {("Delta",)}


def test_each_line_of_a_log_is_a_statement() -> None:
    log = "2025-03-02 09:14 gateway stopped answering\n2025-03-02 10:02 gateway was restored\n"

    assert _texts(log) == log.splitlines()


def test_a_sentence_has_the_headings_above_it_from_the_title_down() -> None:
    text = (
        "# Tractors\n\n## Halden\n\nIt is a small one.\n\n### Cost\n\nIt is cheap for that.\n\n##"
        " Morrow\n\nIt is electric and new.\n"
    )

    assert [each.headings for each in parse_sentences(text, "x.md")] == [
        ("Tractors", "Halden"),
        ("Tractors", "Halden", "Cost"),
        ("Tractors", "Morrow"),
    ]


def test_a_short_first_line_and_an_underlined_line_are_headings() -> None:
    text = "Cobalt X\n\nIts batteries last long.\n\nPrice\n-----\nIt is cheap for that.\n"

    assert [each.headings for each in parse_sentences(text, "c.txt")] == [
        ("Cobalt X",),
        ("Cobalt X", "Price"),
    ]


def test_sentences_of_scripts_without_spaces_end_at_their_full_stop() -> None:
    assert _texts("彼は東京に住んでいます。彼女は京都に住んでいます。") == [
        "彼は東京に住んでいます。",
        "彼女は京都に住んでいます。",
    ]


EXPENSES = """date,category,who,amount
2024-01-03,office,Ann,40.00
2024-02-14,travel,"Lee,
Kim",88.00
"""


def test_each_row_of_a_csv_file_is_a_sentence_with_the_names_of_its_columns() -> None:
    assert [(each.quote, each.text) for each in parse_sentences(EXPENSES, "table.csv")] == [
        ("2024-01-03,office,Ann,40.00", "2024-01-03: category office, who Ann, amount 40.00"),
        (
            '2024-02-14,travel,"Lee, Kim",88.00',
            "2024-02-14: category travel, who Lee, Kim, amount 88.00",
        ),
    ]


@pytest.mark.parametrize(
    ("text", "source"),
    [("who;days\nAnn;1,5\n", "a.csv"), ("who\tdays\nAnn\t1,5\n", "a.tsv")],
)
def test_semicolons_and_tabs_separate_fields(text: str, source: str) -> None:
    assert [row.text for row in parse_sentences(text, source)] == ["Ann: days 1,5"]


def test_a_part_of_a_csv_file_loses_rows_that_may_be_cut() -> None:
    part = "03,office,Ann,40.00\n2024-01-09,travel,Ann,120.50\n2024-03-01,tra"
    sentences = parse_sentences(part, "a.csv", is_start=False, is_end=False)

    assert [row.text for row in sentences] == ["2024-01-09: travel, Ann, 120.50"]


@pytest.mark.parametrize(
    ("table", "texts"),
    [
        (
            "|Name|Price|Weight|\n|:--|--:|---|\n|Ember|$1,099|1.9 kg|\n|Fjord||990 g|\n",
            ["Ember: Price $1,099, Weight 1.9 kg", "Fjord: Weight 990 g"],
        ),
        ("Country | Price\nTaiwan | 46 EUR\n", ["Taiwan: Price 46 EUR"]),
        ("Japan | 41 EUR\nTaiwan | 46 EUR\n", ["Japan: 41 EUR", "Taiwan: 46 EUR"]),
        ("| a | b |\n|---|---|\n| one | two | three |\n", ["one: b two, three"]),
    ],
)
def test_rows_of_tables_are_sentences_with_the_names_of_their_columns(
    table: str, texts: list[str]
) -> None:
    assert _texts(f"# Costs\n\nWe ship it all.\n\n{table}")[1:] == texts


@pytest.mark.parametrize(
    "sentence",
    [
        "The client waits 2**attempt seconds, then 3**attempt seconds.",
        "It calls `f(*args, **kwargs)` and then `handlers[0](x)`.",
        "The method `__init__` sets `a[0]` and `_b_`.",
        "Set snake_case_names and __version__ first.",
    ],
)
def test_code_in_a_sentence_stays_unchanged(sentence: str) -> None:
    assert _texts(sentence) == [sentence]


def test_a_document_that_is_not_markdown_is_quoted_unchanged() -> None:
    line = "It returns **b** of [x](y) for all callers."

    assert [each.text for each in parse_sentences(line, "x.py")] == [line]


@given(st.text(alphabet='a,;"\n\r \u2028|', max_size=80), st.booleans(), st.booleans())
def test_every_row_is_part_of_its_text(text: str, is_start: bool, is_end: bool) -> None:
    folded = " ".join(text.split())
    for row in parse_sentences(text, "a.csv", is_start=is_start, is_end=is_end):
        assert row.quote in folded
