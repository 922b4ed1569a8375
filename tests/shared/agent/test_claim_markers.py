from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.agent.claim_markers import find_sentences_by_claim, place_markers
from handoff_queue.shared.types.handoff import Citation, Claim
from handoff_queue.shared.types.message import compute_digest
from tests.machine_pace import measure


def a_claim(text: str, number: int = 1, quote: str | None = None) -> Claim:
    sources: list[Citation] = []
    if quote is not None:
        sources.append(
            Citation(
                source="a.md", digest=compute_digest(quote), start=0, end=len(quote), quote=quote
            )
        )
    return Claim(id=f"find.c{number}", text=text, sources=tuple(sources))


@pytest.mark.parametrize(
    ("output", "marked"),
    [
        ("The price is 12 EUR.", "The price is 12 EUR [find.c1]."),
        ("As of May, the price is 12 EUR!", "As of May, the price is 12 EUR [find.c1]!"),
        ("- The *price* is 12\nEUR", "- The *price* is 12\nEUR [find.c1]"),
        ("| The price is 12 EUR | x |", "| The price is 12 EUR [find.c1] | x |"),
        ("[The price is 12 EUR](a.md).", "[The price is 12 EUR](a.md) [find.c1]."),
        ("The price is 12 EUR. The price is 12 EUR.", "The price is 12 EUR [find.c1]. The price"),
    ],
)
def test_a_marker_stands_behind_the_first_place_of_the_text(output: str, marked: str) -> None:
    text, placed = place_markers(output, [a_claim("The price is 12 EUR.")])
    assert text.startswith(marked)
    assert placed == ["find.c1"]


@pytest.mark.parametrize(
    "output",
    ["The price is 12 EURO.", "The price is 13 EUR.", "Other.", "", "xThe price is 12 EUR"],
)
def test_a_claim_with_other_words_gets_no_marker(output: str) -> None:
    assert place_markers(output, [a_claim("The price is 12 EUR.")]) == (output, [])


def test_the_quote_of_a_source_is_a_place_too() -> None:
    claim = a_claim("It costs twelve.", quote="the price is 12 EUR")
    assert place_markers("Here the price is 12 EUR.", [claim])[0] == (
        "Here the price is 12 EUR [find.c1]."
    )


def test_a_short_text_gets_no_marker_because_it_may_stand_there_by_chance() -> None:
    assert place_markers("Yes, it is.", [a_claim("Yes.")]) == ("Yes, it is.", [])


def test_several_claims_of_one_sentence_share_its_end() -> None:
    claims = [a_claim("The price is 12 EUR.", 1), a_claim("the price is 12 EUR", 2)]
    assert place_markers("The price is 12 EUR.", claims) == (
        "The price is 12 EUR [find.c1][find.c2].",
        ["find.c1", "find.c2"],
    )


@given(st.text(), st.lists(st.text(min_size=1), max_size=3))
def test_only_markers_are_added(output: str, texts: list[str]) -> None:
    claims = [a_claim(text, number) for number, text in enumerate(texts, start=1)]
    text, placed = place_markers(output, claims)
    assert len(re.findall(r" ?\[find\.c\d\]", text)) >= len(placed)
    for name in placed:
        text = text.replace(f" [{name}]", "", 1).replace(f"[{name}]", "", 1)
    assert text == output


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("The price is 12 EUR. [c1]", "The price is 12 EUR."),
        ("It is new. The price is 12 EUR [c1].", "The price is 12 EUR"),
        ("## Price\n\n- **The price is 12 EUR.** [c2, c1]", "The price is 12 EUR."),
        ("The price is 12 EUR.\n[c1]", "The price is 12 EUR."),
        ("The price is 12 EUR. [c2] [c1]", "The price is 12 EUR."),
        ("The price [c2] is 12 EUR. [c1]", "The price  is 12 EUR."),
        ("First. [c1] Second. [c1]", "First."),
        ("[c1]", ""),
    ],
)
def test_the_marked_sentence_ends_at_the_first_marker_of_a_claim(
    output: str, sentence: str
) -> None:
    assert find_sentences_by_claim(output)["c1"] == sentence


def test_a_sentence_begins_behind_the_marker_of_the_sentence_before() -> None:
    assert (
        find_sentences_by_claim("It is old.[c1] It costs 12 EUR.[c2]")["c2"] == "It costs 12 EUR."
    )


def test_sentences_without_spaces_between_them_are_apart() -> None:
    assert find_sentences_by_claim("这很旧。它要十二欧元。[c1]")["c1"] == "它要十二欧元。"
    assert find_sentences_by_claim("「これは古い。」[c1]")["c1"] == "「これは古い。」"


def test_a_long_line_with_many_markers_is_searched_in_linear_time() -> None:
    line = " ".join(f"{'It is old. ' * 200}It has {number}. [c{number}]" for number in range(400))
    # 0.03 s, and 9 s if each search reads the whole line
    assert measure(lambda: find_sentences_by_claim(line), limit_s=3) < 3
    assert find_sentences_by_claim(line)["c399"] == "It has 399."


@pytest.mark.slow
def test_many_markers_after_one_sentence_are_read_in_linear_time() -> None:
    markers = "".join(f"[c{number}]" for number in range(10_000)) * 3
    text = f"It is old. {markers}"
    # 0.02 s, and 4 s if each search reads the other markers
    assert measure(lambda: find_sentences_by_claim(text), limit_s=2) < 2
    assert set(find_sentences_by_claim(text).values()) == {"It is old."}


def test_a_claim_without_a_marker_has_no_marked_sentence() -> None:
    assert find_sentences_by_claim("The price is 12 EUR. [c2]").keys() == {"c2"}
