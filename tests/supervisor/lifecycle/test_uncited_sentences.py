"""Each sentence with a figure in a cited answer points to a source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.supervisor.lifecycle.uncited_sentences import find_uncited_sentences


def test_one_source_does_not_cover_the_whole_answer() -> None:
    assert find_uncited_sentences(
        "Qdrant is in Rust [1]. Milvus is in COBOL. It costs 5 EUR.", 1
    ) == ("It costs 5 EUR.",)


def test_an_uncited_claim_is_found_even_without_a_figure() -> None:
    answer = "Qdrant is in Rust [1]. Milvus is in COBOL. And so on."
    assert find_uncited_sentences(answer, 1, ("Milvus is in *COBOL*",)) == ("Milvus is in COBOL.",)


@pytest.mark.parametrize(
    "sentence",
    [
        "It costs 5 EUR.",
        "It costs $5.",
        "It has 16,000 dimensions.",
        "It took 3 days.",
        "It grew by 4 %.",
        "It holds 2 million rows.",
        "It holds 3M rows.",
        "It was released on 4 May 2021.",
        "It began in 2019.",
        "It is version 7.2.4.",
        "Its recall is 0.9.",
        "It is 768-dimensional.",
        "It costs 5 EUR [2].",
        "Price: 5 EUR",
    ],
)
def test_a_sentence_with_a_figure_needs_an_existing_source(sentence: str) -> None:
    assert find_uncited_sentences(f"It is so [1].\n\n{sentence}", 1) == (sentence,)
    assert find_uncited_sentences(f"It is so [1].\n\n- {sentence}", 1) == (sentence,)
    assert find_uncited_sentences(f"It is so.\n\n{sentence.removesuffix(' [2].')} [1].", 1) == ()


@pytest.mark.parametrize(
    "text",
    [
        "Choose Qdrant where filters matter.",
        "Of the 3 databases, one is enough.",
        "There are 2 in all, see step 12 and table 14.",
        "GPT-4, HTTP/2 and SIFT1M are names.",
        "Run `redis-cli -p 6379`.",
        "See https://example.com/2024/10.",
        "Does it cost 50 EUR?",
        "What it cost in 2023 was not found.",
        "The documents do not say what 100 users cost.",
        "## 2024 in figures",
        "2024 in figures\n---------------",
        "**Prices in 2024**",
        "These were the prices of 2024:",
        "```\nit costs 50 EUR\n```",
        "~~~\nit costs 50 EUR\n~~~",
        "| Plan | 2024 |\n|---|---|\n| one | 50 EUR [1] |",
        "It costs 50 EUR. [1]",
        "It costs 50 EUR. It began in 2019. So be it [1].",
        "It costs 50 EUR vs. 60 EUR, approx. 10 more [1].",
        'It "costs 50 EUR." [1] And so on.',
        "From the list [1]:\n\n- it costs 50 EUR\n- it began in 2019",
        "- **Qdrant** [1]:\n  - 50 EUR\n  - since 2019",
        "**Open points:**\n\n- It has 10 words, 20 are wanted.",
        "**Missing or incomplete:**\n\n- a (researcher): failed (doing it would cost about $0.02)",
        "## Sources\n\n1. Price list, 2024\n\n### More\n\n2. Annals of 1999",
        "It costs 50 EUR [1].\n\nAll in all: **it costs 50 EUR.**\n\nIt costs 50 EUR.",
        "It costs 50 EUR [no source].",
    ],
)
def test_a_sentence_without_a_figure_or_with_a_source_passes(text: str) -> None:
    text = text.replace("All in all: ", "")
    assert find_uncited_sentences(text, 1) == ()


@pytest.mark.parametrize(
    "sentence",
    [
        "It is not known whether it rains, but Milvus costs $500 per month.",
        "It is not known whether it rains but Milvus costs $500 per month.",
        "Milvus costs $500 per month, which was not found elsewhere.",
        "Milvus costs $500 per month although its licence is unknown.",
        "Milvus, which costs $500, has an unknown licence.",
        "Its licence, which was not found, costs $500.",
        "The vendor is unknown, which nobody explains, and the price is 40 euros.",
        "The licence is unknown; the fee is $500.",
        "The licence was not found, and Milvus costs $500 per month.",
        "Milvus costs $500 per month, and its licence was not found.",
    ],
)
def test_a_figure_needs_a_source_though_another_clause_says_that_something_is_not_known(
    sentence: str,
) -> None:
    assert find_uncited_sentences(sentence, 1) == (sentence,)
    assert find_uncited_sentences(f"{sentence} [1]", 1) == ()


@pytest.mark.parametrize(
    "sentence",
    [
        "No price for 2024 was found.",
        "Price in 2024: not found.",
        "Not found: the price for 2024.",
        "It is in Rust, but its price in 2024 was not found.",
        "The price in 2024, which was asked for, was not found.",
        "The price in 2024 is not known, although it was asked for.",
        "It is not known for all but 10 of them.",
        "The documents do not mention prices for 2021, 2022, and 2023.",
        "The documents do not say what 10 users cost, and what 100 users do.",
        "Prices for Qdrant in 2021, Weaviate, and Milvus are unknown.",
    ],
)
def test_a_figure_about_an_unknown_needs_no_source(sentence: str) -> None:
    assert find_uncited_sentences(sentence, 1) == ()


@pytest.mark.parametrize(
    "sentence", ["**Milvus costs $500 per month.**", "__Milvus costs $500 per month!__"]
)
def test_a_full_sentence_in_bold_is_not_a_title(sentence: str) -> None:
    assert find_uncited_sentences(f"{sentence}\n\nSo it is [1].", 1) == (sentence,)
    assert find_uncited_sentences(f"{sentence[:-3]}{sentence[-2:]}\n\nSo it is [1].", 1) == ()


def test_a_link_with_a_number_as_its_text_is_not_a_source_and_no_figure() -> None:
    assert find_uncited_sentences("Milvus costs $500 [1](http://x.example).", 1) == (
        "Milvus costs $500 [1](http://x.example).",
    )
    assert find_uncited_sentences("Milvus costs $500 [1] (http://x.example).", 1) == ()
    assert find_uncited_sentences("Milvus is in C++ [12](http://x.example/2024).", 1) == ()


def test_after_a_list_of_sources_the_answer_is_checked_again() -> None:
    assert find_uncited_sentences(
        "## Sources\n\n- Annals, 1999\n\n## Price\n\nIt costs 50 EUR.", 1
    ) == ("It costs 50 EUR.",)
    assert find_uncited_sentences("From the list [1]:\n\n- 50 EUR\n\nIt costs 60 EUR.", 1) == (
        "It costs 60 EUR.",
    )


def test_an_empty_cell_adds_no_space_to_a_quoted_row() -> None:
    answer = "| name | note | price |\n|---|---|---|\n| Milvus |  | 5 EUR |"

    assert find_uncited_sentences(answer, 1) == ("Milvus 5 EUR",)


def test_a_row_of_a_table_shows_its_own_source() -> None:
    table = "| Plan | Price |\n|---|---|\n| one | 50 EUR [1] |\n| two. | 60 EUR |"
    assert find_uncited_sentences(table, 1) == ("two. 60 EUR",)


@given(
    st.lists(
        st.sampled_from(
            [
                "It costs 50 EUR",
                "[1]",
                "[2]",
                ". ",
                "\n",
                "\n\n",
                "- ",
                "# ",
                "> ",
                "|a|b|\n|-|-|\n",
                "```\n",
                ":",
                "<p>",
                "*",
            ]
        )
    )
)
def test_any_text_can_be_read_and_text_without_digits_is_never_refused(parts: list[str]) -> None:
    text = "".join(parts)
    assert all("50" in sentence for sentence in find_uncited_sentences(text, 1))
    assert find_uncited_sentences(text.replace("50", "some"), 1) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" " * 100_000 + "7", 0),
        ("5 EUR. " * 20_000, 20_000),
        ("[1" * 50_000, 0),
        ("<" * 100_000, 0),
        ("`" * 99_999, 0),
        ("**a" * 30_000, 0),
        ("$ " * 50_000 + "1", 1),
        ("unknown" + ", which a" * 20_000 + " 50", 1),
        ("unknown" + ", and a b c d" * 10_000 + " 50", 0),
        ("no " * 50_000 + "50", 1),
        ("[1](" * 30_000, 0),
    ],
)
def test_a_long_run_takes_no_time(text: str, expected: int) -> None:
    assert len(find_uncited_sentences(text, 1)) == expected
