from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.agent.quote_search import (
    MAX_PASSAGE_CHARS,
    MAX_QUOTE_CHARS,
    FoldedText,
    QuoteSpan,
)
from tests.machine_pace import measure

EXAMPLES = Path(__file__).parents[3] / "examples"

characters = st.characters(codec="utf-8", categories=("Lu", "Ll", "Nd"))
words = st.lists(
    st.text(characters, min_size=1, max_size=8).map("x{}x".format), min_size=2, max_size=8
)
"""Words with a letter at both ends: figures with a space between them may be one figure."""
spaces = st.sampled_from([" ", "  ", "\n", "\n   ", "\t", "\u00a0"])


def find_quote(quote: str, text: str) -> QuoteSpan | None:
    return FoldedText(text).find(quote)


def quoted(quote: str, text: str) -> str | None:
    span = find_quote(quote, text)
    return None if span is None else text[span.start : span.end]


@pytest.mark.slow
@given(words, words, words, spaces, spaces)
def test_a_quote_is_found_with_any_white_space(
    before: list[str], quote: list[str], after: list[str], first_gap: str, second_gap: str
) -> None:
    text = first_gap.join([*before, *quote, *after])
    span = quoted(second_gap.join(quote), text)
    assert span is not None
    assert span.split() == second_gap.join(quote).split()


@given(words, words, st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]), st.booleans())
def test_a_quote_is_found_in_every_normal_form(
    quote: list[str], around: list[str], form: Literal["NFC", "NFD", "NFKC", "NFKD"], is_text: bool
) -> None:
    text, searched = " ".join([*around, *quote, *around]), " ".join(quote)
    if is_text:
        text = unicodedata.normalize(form, text)
    else:
        searched = unicodedata.normalize(form, searched)
    span = quoted(searched, text)
    assert span is not None
    assert unicodedata.normalize("NFKC", span) == unicodedata.normalize("NFKC", searched)


@pytest.mark.parametrize(
    ("quote", "text", "span"),
    [
        ('It\'s "fast" - really.', "So: It’s “fast” – really. Yes", "It’s “fast” – really."),
        ("Le café est ouvert", "1. Le cafe\u0301 est ouvert.", "Le cafe\u0301 est ouvert"),
        ("Le cafe\u0301  est ouvert", "1. Le café est ouvert.", "Le café est ouvert"),
        ("the first office", "In the ﬁrst oﬃce it", "the ﬁrst oﬃce"),
        ('She said \\"no\\" twice', 'Then she said "no" twice.', 'she said "no" twice'),
        ("the tag <\\/data> ends", "Here the tag </data> ends it.", "the tag </data> ends"),
        ("find the office", "We ﬁnd the oﬃce", "ﬁnd the oﬃce"),
        ("a well-known limit", "It is a well-\nknown limit.", "a well-\nknown limit"),
        ("a wellknown limit", "It is a well-\n  known limit.", "a well-\n  known limit"),
        ("a well-\nknown limit", "It is a well-known limit.", "a well-known limit"),
        ("a wellknown limit", "It is a well\u00ad\nknown limit.", "a well\u00ad\nknown limit"),
        ("the internationalization", "the inter\u00adnational\u00adization", None),
        ("an Anglo-American bank", "an Anglo-\nAmerican bank", None),
        ("from 2019-2020 on", "from 2019-\n2020 on", None),
        ("The limit is 40 items per call", "The **limit** is __40__ items *per* call", None),
        ("**The limit** is 40", "x The limit is 40 y", "The limit is 40"),
        ("unbelievable results", "un**believ**able  results", None),
        ("use `snake_case` names", "always use snake_case names", "use snake_case names"),
        ("waits 2**attempt seconds", "it waits\n2**attempt seconds", "waits\n2**attempt seconds"),
        ("See the guide first", "See [the guide](https://example.org/a_b) first", None),
        ("not the old text", "not ~~the old~~ text", None),
        ("It`s a limit", "It’s a limit", None),
        ("2 * 3 is  6", "* 2 * 3 is 6", "2 * 3 is 6"),
        ("* one item", "x\n* **one** item", "one** item"),
        ("Full width 12", "Full　width １２", None),
        ("it ends ...", "so it  ends … here", "it  ends …"),
        ("zero width", "ze\u200bro\ufeff width", None),
    ],
)
def test_a_quote_is_found_in_any_spelling_of_its_characters(
    quote: str, text: str, span: str | None
) -> None:
    assert quoted(quote, text) == (text if span is None else span)


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("written in Go", "It is written in Rust."),
        ("rust", "Rust"),
        ("It Is written", "It is written in Rust."),
        ("t is written in Rust", "iT is written in Rust."),
        ("about 102 items", "about 10² items"),
        ("about 12 items", "about ½ items"),
        ("about 101 items", "about 10① items"),
        ("is 23 long", "is 2*3 long"),
        ("is 5 degrees", "is -5 degrees"),
        ("-5 degrees", "5 degrees"),
        ("from 20192020", "from 2019-2020"),
        ("5 %", "15 %"),
        ("**5**", "15 or 52"),
        ("a", "cat"),
    ],
)
def test_other_words_and_other_numbers_are_not_found(quote: str, text: str) -> None:
    assert find_quote(quote, text) is None


@pytest.mark.parametrize("quote", ["", "  \n", "**", "`", "-", "\u00ad", "*_-_*", "—", "[](", "…"])
def test_a_quote_without_letters_and_digits_is_never_found(quote: str) -> None:
    assert find_quote(quote, f"some text {quote} and more **bold** - text") is None


def test_a_quote_of_pattern_characters_is_only_text() -> None:
    assert find_quote("(a+)+$ .*", "x (a+)+$\n.* y") is not None


@pytest.mark.parametrize(
    ("quote", "text", "span"),
    [
        ("It is written in Rust", "He says it is written in Rust.", "it is written in Rust"),
        ("the limit is 40", "# A\n\n**The limit** is 40 items", "The limit** is 40"),
        ("The cat sat", "bathe cat sat, the cat sat", "the cat sat"),
        ("élan is not enough", "Élan is not enough.", "Élan is not enough"),
    ],
)
def test_the_first_letter_of_a_quote_may_have_another_case(
    quote: str, text: str, span: str
) -> None:
    assert quoted(quote, text) == span


def test_a_long_quote_is_shortened() -> None:
    text = "word " * 1_000
    span = find_quote(text, text)
    assert span is not None
    assert span.end - span.start == MAX_QUOTE_CHARS


PIECES = "' ’ “ - – * ** _ ` ~~ [ ](u) \u00ad \u0301 ﬁ é 2 ² a b A \u200b".split(" ")
noise = st.sampled_from([*PIECES, " ", "\n", "\t ", "\u00a0"])


def letters(text: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text)))


@given(st.lists(noise, max_size=30).map("".join), st.lists(noise, max_size=6).map("".join))
def test_a_span_has_the_letters_and_digits_of_the_quote(text: str, quote: str) -> None:
    span = quoted(quote, text)
    if span is not None:
        words = letters(span).replace("u", "")  # "u" is only in the addresses of links
        assert letters(quote).replace("u", "").casefold() in words.casefold()
        assert len(words) <= len(letters(quote)) + 2  # "ﬁ" is not split


@given(st.lists(noise, max_size=30).map("".join), st.data())
def test_a_verbatim_copy_of_whole_words_is_found(text: str, data: st.DataObject) -> None:
    places = [match.span() for match in re.finditer(r"[^ \n\t]+", text)] or [(0, 0)]
    start, _ = data.draw(st.sampled_from(places))
    end = data.draw(st.sampled_from([end for _, end in places if end >= start]))
    quote = text[start:end].strip()
    if letters(quote):
        assert quoted(quote, text) == quote


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("5 kW each", "three pumps of 45 kW each"),
        ("three pumps of 4", "three pumps of 45 kW each"),
        ("tation has", "The station has"),
        ("5 kW", "4.5 kW"),
        ("about 4", "about 4.5 kW"),
        ("500 items", "21,500 items"),
        ("500 items", "21’500 items"),
        ("500 items", "21\u00a0500 items"),
        ("500  items", "21\u202f500 items"),
        ("about 21", "about 21,500 items"),
        ("5 degrees", "(−5 degrees)"),
        ("5 percent", ".5 percent"),
        ("about 10", "about 10² items"),
        ("they can", "they can't run"),
        ("the caf", "the cafe\u0301"),
        ("the cafe", "the cafe\u0301"),
        ("able  results", "un**believ**able  results"),
        ("national results", "inter\u00adnational results"),
        ("क बड़ी", "एक बड़ी नदी"),
        ("5千瓦", "功率为45千瓦"),
        ("５千瓦", "功率为４５千瓦"),
    ],
)
def test_a_part_of_a_word_or_of_a_figure_is_not_found(quote: str, text: str) -> None:
    assert find_quote(quote, text) is None
    assert FoldedText(f"{text} and so on to the end").find_passage(f"{quote} ... the end") is None


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("5 kW", "45 kW, 4.5 kW and 5 kW"),
        ("-5 degrees", "-5 degrees"),
        ("2020", "2019-2020"),
        ("in 2019", "It was in 2019. 300 are left."),
        ("水泵", "该站有三台水泵，每台"),
        ("千瓦", "功率为45千瓦"),
        ("ปั๊มสาม", "สถานีมีปั๊มสามเครื่อง"),
        ("eau", "l'eau"),
    ],
)
def test_whole_words_and_figures_are_found_next_to_longer_ones(quote: str, text: str) -> None:
    assert quoted(quote, text) == quote


@pytest.mark.slow
@pytest.mark.parametrize(
    ("piece", "quote"),
    [
        ("a ", "a " * 1_900 + "b"),
        ("a \n", "a " * 1_000 + "a"),
        ("“", "a" + "'" * 3_999),
        (" ", "a b"),
        ("a\u00a0–", "a - " * 900 + "b"),
        ("ab", "ab" * 1_500 + "b"),
        ("5", "5"),
        ("a", "a" * 1_999),
        ("ab ", "ab " * 600 + "a"),
        ("\u0301\u0316", "e\u0301" * 1_000),
        ("e\u0301", "é" * 1_999 + "e"),
        ("*", "a*" * 1_000),
        ("*a_", "b" + "a" * 1_999),
        ("* ", "* " * 1_000 + "a"),
        ("a-\n", "a" * 2_000 + "b"),
        ("-", "a" + "-" * 2_000),
        ("-\n", "a-\n" * 1_000),
        ("\u00ad\n", "a\u00ad\n" * 1_000),
        ("\u200b", "a b"),
        ("ﬃ", "ffi" * 1_300 + "b"),
        ("ﷺ", "صلى" * 1_000),
        ("[", "[a" * 1_000),
        ("](", "a](" * 1_000),
        ("[a](", "a](" * 1_000),
        ("각", "각" * 1_000 + "a"),
        ("`~~", "a``b"),
    ],
)
def test_a_text_made_to_be_slow_takes_time_linear_in_its_length(piece: str, quote: str) -> None:
    text = f"é-{piece * (100_000 // len(piece))}-"  # a quadratic search takes 15 s
    find_quote("Make the tables of the first use", "é")
    assert measure(lambda: find_quote(quote, text), limit_s=5) < 5


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("the first line goes on here", "> the first line\n> goes on here"),
        ("the first line goes on here", ">> the first line\n>> goes on here"),
        ("call read_file in snake_case", "call read\\_file in snake\\_case"),
        ("a *literal* star [sic]", "a \\*literal\\* star \\[sic\\]"),
    ],
)
def test_a_quote_is_found_without_the_marks_of_block_quotes_and_escapes(
    quote: str, text: str
) -> None:
    span = quoted(quote, text)
    assert span is not None
    assert text.endswith(span.removeprefix("> "))


def test_a_comparison_at_the_start_of_a_line_is_not_a_mark_of_a_block_quote() -> None:
    assert quoted("growth was 5 percent", "growth was\n> 5 percent") is None


PUMPS = (
    "Three pumps of 45 kW each were\ninstalled in 2019. Three pumps of 30 kW were sold in 2018.\n"
    "\nThe station is old. It was built in 1950."
)


def passage(quote: str, text: str = PUMPS) -> str | None:
    span = FoldedText(text).find_passage(quote)
    return None if span is None else text[span.start : span.end]


@pytest.mark.parametrize("ellipsis", [" ... ", "...", "\u2026", " [...] "])
@pytest.mark.parametrize("begin", ["Three pumps", "three  **pumps**"])
def test_the_first_and_last_words_of_a_passage_quote_all_of_it(ellipsis: str, begin: str) -> None:
    expected = "Three pumps of 45 kW each were\ninstalled in 2019."
    assert passage(f"{begin}{ellipsis}in 2019.") == expected


def test_a_passage_without_spaces_is_found() -> None:
    text = "该站很旧。该站有三台水泵，每台功率为45千瓦。"
    assert passage("该站有…45千瓦。", text) == "该站有三台水泵，每台功率为45千瓦。"


def test_a_passage_is_as_short_as_possible() -> None:
    assert passage("Three pumps ... in 2018.") == "Three pumps of 30 kW were sold in 2018."


@pytest.mark.slow
def test_sentences_of_documents_are_found_by_their_first_three_and_last_three_words() -> None:
    """The rules for answers ask for these words of a long sentence."""
    for path in (EXAMPLES / "vector-databases").glob("*.md"):
        text = path.read_text()
        folded = FoldedText(text)
        for sentence in re.findall(r"(?:^|(?<=[.] ))[A-Z][^\n#]*?[.](?= |$)", text, re.MULTILINE):
            words = sentence.split()
            if len(words) > 8:
                span = folded.find_passage(" ".join([*words[:3], "...", *words[-3:]]))
                assert span is not None, sentence
                assert text[span.start : span.end] == sentence


def test_of_equal_passages_the_first_is_found() -> None:
    sentence = "Requests for a change go to the office."
    text = f"# Rules\n\nIt is so. {sentence}\n\n# Again\n\nRequests for a change go\nto the office."
    assert passage("Requests for ... the office.", text) == sentence


@pytest.mark.parametrize(
    "quote",
    [
        "Three pumps ... in 2018 ... in 2019.",
        "Three pumps ...",
        "... in 2019.",
        "4 ... in 2019.",
        "Three pumps ... in 2020.",
        "in 2019. ... Three pumps of 45",
        "Three pum ... in 2019.",
        "Three pumps ... in 201",
        "were sold ... in 1950.",
        "Three ... were",
    ],
    ids=[
        "two gaps",
        "no end",
        "no beginning",
        "too short",
        "another end",
        "the wrong order",
        "a part of the first word",
        "a part of the last word",
        "two paragraphs",
        "two different passages",
    ],
)
def test_other_words_with_a_gap_quote_nothing(quote: str) -> None:
    assert passage(quote) is None


def test_a_passage_has_a_longest_length() -> None:
    words = "and so on " * (MAX_PASSAGE_CHARS // 10)
    assert passage("It began ... at last.", f"It began {words} at last.") is None


@pytest.mark.parametrize(
    "piece", ["It began. ", "at last. ", "It began at ", "It began\n\nat last! "]
)
def test_the_search_for_a_passage_takes_time_linear_in_the_length(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))

    def search() -> None:
        FoldedText(text).find_passage("It began ... at last!")

    assert measure(search, limit_s=5) < 5
