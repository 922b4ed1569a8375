"""An answer names only gaps that hold for the documents that it names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from handoff_queue.shared.providers.offline.citations import (
    ALL_DOCUMENTS,
    MissingFact,
    format_gaps,
    parse_gaps,
)
from handoff_queue.shared.providers.offline.words import find_stems
from tests.shared.providers.offline.offline_requests import (
    EXAMPLES,
    Library,
    as_result,
    ask,
    envelope_schema,
    work,
)

SHOP = Library(
    {
        "orders.md": "# Orders\n\nOrder A-1042 was shipped on Monday.\n",
        "refunds.md": "# Refunds\n\nA refund of a shipped order takes five days.\n",
        "press.md": "# Press\n\nThe office in Bonn answers the press.\n",
    }
)
ORCHARD = Library(
    {
        "apples.md": "# Apples\n\nApples grow on trees. We pick apples in October.\n",
        "plums.md": "# Plums\n\nWe pick plums in August and sell them on the market.\n",
        "tools.md": "# Tools\n\nWe pick tools by hand.\n\n```\nirrigation --every 2h\n```\n",
    }
)
LONG = Library({"long.md": "The apples are red.\n\n" * 2_000 + "The barn is painted green.\n"})
WORDS = re.compile(r'the words "(.+)"')


def digest_of_library(library: Library, request: str) -> dict[str, Any]:
    """Return the answer of the built-in workflow `digest`: one step a document, and a writer."""
    shown = "\n".join(library.texts)
    documents = f'<documents count="{len(library.texts)}"> <data>{shown}</data> </documents>'
    results = []
    for number, name in enumerate(library.texts):
        task = f"Objective: summarise one document, {name}.\n\nRequest:\n{request}"
        summary = work(f"<task>{task}</task>\n{documents}", library)
        results.append(as_result(f"summarise_{number}", summary))
    task = f"<task>Objective: write one digest.\n\nRequest:\n{request}</task>"
    answer = ask("\n\n".join([task, *results]), envelope_schema())
    assert isinstance(answer, dict)
    return answer


@pytest.mark.parametrize(
    ("library", "request_text"),
    [
        (Library.of(EXAMPLES), "How do these databases store vectors?"),
        (SHOP, "How long does the refund of a shipped order take?"),
        (ORCHARD, "When do we pick and sell plums with irrigation?"),
    ],
    ids=["databases", "shop", "orchard"],
)
def test_no_document_has_a_word_that_the_digest_misses_in_it(
    library: Library, request_text: str
) -> None:
    output = digest_of_library(library, request_text)["output"]

    statements = find_stems("\n".join(re.findall(r"^- .*", output, re.MULTILINE)))
    assert len(parse_gaps(output)) > 0
    for gap in parse_gaps(output):
        assert gap.place != ALL_DOCUMENTS
        if words := WORDS.fullmatch(gap.text):
            texts = [text for name, text in library.texts.items() if name in gap.place]
            assert not find_stems(words[1]) & find_stems(" ".join(texts))
            assert not find_stems(words[1]) & statements


def test_a_word_that_one_of_the_results_states_is_not_a_gap() -> None:
    output = digest_of_library(ORCHARD, "When do we pick and sell plums?")["output"]

    assert "sell them on the market" in output
    assert "the words" not in output


def test_a_gap_names_the_documents_that_lack_the_answer() -> None:
    output = digest_of_library(SHOP, "How long does the refund of a shipped order take?")["output"]

    (gap,) = parse_gaps(output)
    assert gap.place == "press.md"
    assert gap.text.startswith("an answer to")


def test_a_word_in_a_block_of_code_is_not_missing() -> None:
    answer = work("<task>How do we pick tools with irrigation?</task>", ORCHARD)

    assert "We pick tools by hand" in answer["output"]
    assert parse_gaps(answer["output"]) == []


def test_a_gap_in_a_long_document_says_that_a_part_was_read() -> None:
    answer = work("<task>Are the apples red or yellow?</task>", LONG)

    assert parse_gaps(answer["output"]) == [MissingFact('the words "yellow"', "a part of long.md")]


def test_gaps_are_read_from_the_lines_that_name_them() -> None:
    gaps = [
        MissingFact('the words "store"', "a.md and b.md"),
        MissingFact("Oracle"),
        MissingFact("Milvus"),
    ]

    assert parse_gaps("\n\n".join(["- A claim [c1].", *format_gaps(gaps)])) == gaps


def test_a_quote_with_the_words_not_found_in_is_not_a_gap() -> None:
    assert parse_gaps("- Not found in the archive: box 7 [c1].") == []
