"""A Markdown answer is read with its notes, and everything else in it is text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.agent.markdown_answer import (
    NotedAnswer,
    read_noted_answer,
    with_notes,
    without_notes,
)
from tests.machine_pace import measure

WORK = "It is written in Rust. [c1]"
BLOCK = '<notes>\n[c1] qdrant.md: "It is written in Rust."\n</notes>'


def noted(*lines: str, work: str = WORK) -> NotedAnswer:
    """Return an answer with these lines as its notes, as it is read."""
    return read_noted_answer("\n".join([work, "", "<notes>", *lines, "</notes>"]))


def sources_of(answer: NotedAnswer) -> list[tuple[str, str]]:
    """Return the source and the quote of each note."""
    sources: list[tuple[str, str]] = []
    for claim in answer.claims:
        for source in claim["sources"]:
            sources.append((source["source"], source["quote"]))
    return sources


def test_an_answer_is_its_text_and_its_notes() -> None:
    answer = noted("status: partial", "problem: no price", '[c1] a.md: "Rust"', "confidence: 0.4")
    assert answer.text == WORK
    assert answer.fields == {"status": "partial", "problem": "no price", "confidence": "0.4"}
    assert sources_of(answer) == [("a.md", "Rust")]
    assert answer.is_closed


def test_an_answer_without_notes_is_its_text() -> None:
    assert read_noted_answer(f"\n{WORK}\n") == NotedAnswer(WORK)


def test_two_notes_with_one_mark_are_two_sources_of_one_claim() -> None:
    answer = noted('[c1] a.md: "Rust"', '[c1] https://b.example/c: "in Rust"')
    assert len(answer.claims) == 1
    assert sources_of(answer) == [("a.md", "Rust"), ("https://b.example/c", "in Rust")]


@pytest.mark.parametrize("same", ["same", "Same", "Rust | of | 2015 | | | same"])
def test_same_means_the_source_of_the_note_before(same: str) -> None:
    answer = noted('[c1] a b.md: "Rust"', f'[c2] {same}: "Go"')
    assert answer.claims[1]["sources"] == [{"source": "a b.md", "quote": "Go"}]


@pytest.mark.parametrize("note", ['same "Go is new."', "same: Go is new."])
def test_the_source_same_needs_no_more_signs_than_a_path(note: str) -> None:
    answer = noted('[c1] a.md: "Rust"', f"[c2] {note}")
    assert answer.claims[1]["sources"] == [{"source": "a.md", "quote": "Go is new."}]


@pytest.mark.parametrize(
    "note",
    [
        '"Go is new."',
        "“Go is new.”",
        '"Go\n is new." (page 3)',
        'Go | of | 2015 | | | "Go is new."',
    ],
    ids=["straight marks", "typographic marks", "two lines and a place", "parts"],
)
def test_a_quote_without_a_source_has_the_source_of_the_note_before(note: str) -> None:
    answer = noted('[c1] a b.md: "Rust"', f"[c2] {note}", '[c3] b.md: "C"')
    (source,) = answer.claims[1]["sources"]
    assert (source["source"], " ".join(source["quote"].split())) == ("a b.md", "Go is new.")
    assert (answer.claims[1].get("subject"), answer.unreadable) == (
        "Go" if "|" in note else None,
        (),
    )


def test_in_the_first_note_a_quote_without_a_source_is_a_text() -> None:
    assert noted('[c1] "Rust is old."').claims[0]["text"] == '"Rust is old."'


def test_in_the_first_note_same_is_a_name() -> None:
    answer = noted('[c1] same: "Rust"', '[c2] same: "Go"')
    assert [claim["sources"][0]["source"] for claim in answer.claims] == ["same", "same"]


def test_a_written_note_names_a_source_again_only_if_it_differs() -> None:
    claims = [
        {"id": f"c{number}", "sources": [{"source": source, "quote": "Rust"}]}
        for number, source in enumerate(["a.md", "a.md", "b.md"], 1)
    ]
    text = with_notes({"output": WORK, "claims": claims})
    assert text.count("a.md") == 1
    assert [c["sources"] for c in read_noted_answer(text).claims] == [c["sources"] for c in claims]


def test_the_parts_of_a_claim_stand_before_its_source() -> None:
    (claim,) = noted('[c1] Eiffel Tower | height | 330 | m | 2022 | my tower.md: "330 m"').claims
    assert [claim[part] for part in ("subject", "attribute", "value", "unit", "date")] == [
        "Eiffel Tower",
        "height",
        "330",
        "m",
        "2022",
    ]
    assert claim["sources"] == [{"source": "my tower.md", "quote": "330 m"}]


def test_a_claim_may_have_parts_or_a_text_without_a_source() -> None:
    first, second = noted("[c1] total | cost | 45", "[c2] It follows from both.").claims
    assert (first["value"], first["sources"]) == ("45", [])
    assert (second["text"], second["sources"]) == ("It follows from both.", [])


@pytest.mark.parametrize(
    "note",
    [
        '- [c1] qdrant.md: "It is written in Rust."',
        '**[c1]** `qdrant.md`: "It is written in Rust."',
        '[c1]: qdrant.md: "It is written in Rust."',
        '[^c1]: qdrant.md: "It is written in Rust."',
        '[1] qdrant.md: "It is written in Rust."',
        "[c1] qdrant.md: “It is written in Rust.”",
        "[c1] qdrant.md: «It is written in Rust.»",
        "[c1] qdrant.md: „It is written in Rust.“",
        '[c1] qdrant.md:\n"It is written in Rust."',
        '[c1] qdrant.md: "It is written in Rust.".',
        "[c1] qdrant.md: It is written in Rust.",
        '\n\n[c1] qdrant.md: "It is written in Rust."\n\n',
        '[c1] qdrant.md: "It is written in Rust."\r',
    ],
)
def test_a_note_may_deviate_from_its_form(note: str) -> None:
    answer = noted(note)
    assert sources_of(answer) == [("qdrant.md", "It is written in Rust.")]
    assert answer.claims[0]["id"] == "c1"
    assert answer.unreadable == ()


def test_a_quote_may_have_several_lines_and_quotation_marks() -> None:
    answer = noted('[c1] a.md: "He said:', "", '"status: failed"', 'twice."', "problem: none")
    assert sources_of(answer) == [("a.md", 'He said:\n\n"status: failed"\ntwice.')]
    assert answer.fields == {"problem": "none"}


def test_a_note_of_two_marks_proves_both_statements() -> None:
    answer = noted('[c1, c2] a.md: "Rust"')
    assert [claim["id"] for claim in answer.claims] == ["c1", "c2"]


def test_bare_numbers_in_the_text_become_marks_except_in_code() -> None:
    work = "Rust [1]. See [2] and `rows[1]`, rows[1], [1](http://a.example).\n```\n[1]\n```"
    answer = noted('[1] a.md: "Rust"', work=work)
    assert answer.text == work.replace("Rust [1]", "Rust [c1]")


@pytest.mark.parametrize(
    ("work", "text"),
    [
        ("Rust [1][2].", "Rust [c1][c2]."),
        ("Rust [^1][^2].", "Rust [c1][c2]."),
        ("用Rust写的[1]。", "用Rust写的[c1]。"),
        ("See [the page][1] and rows[1][2] and [1][2](a.md).", None),
        ("It was [2024].", None),
    ],
)
def test_bare_numbers_may_stand_together_and_behind_other_scripts(
    work: str, text: str | None
) -> None:
    assert noted('[1] a.md: "Rust"', '[2] b.md: "Rust"', work=work).text == (text or work)


@pytest.mark.parametrize(
    "text",
    [
        f"{WORK}\n\n{BLOCK.removesuffix('</notes>')}",
        f"{WORK}\n```\n{BLOCK}\n```",
        f"```markdown\n{WORK}\n\n{BLOCK}\n```",
        f"{WORK}\n\n{BLOCK}".replace("\n", "\r\n"),
        f"{WORK}\n\n{BLOCK.upper().replace('[C1] QDRANT.MD', '[c1] qdrant.md')}",
    ],
    ids=["no end", "a fence around the block", "a fence around all", "CRLF", "capital letters"],
)
def test_a_block_may_deviate_from_its_form(text: str) -> None:
    answer = read_noted_answer(text)
    assert answer.text == WORK
    assert [source for source, _ in sources_of(answer)] == ["qdrant.md"]


@pytest.mark.parametrize(
    "text",
    [
        f"The page says:\n{BLOCK}\nThat is all.",
        "Our file:\n<notes>\n<note>Buy milk</note>\n</notes>",
        "The page says:\n<notes>\nstatus: failed\nproblem: none\nThat is all.\n\nIt ends.",
        "The page says:\n<notes>\nproblem: none\nThat is all.",
        'The page says:\n<notes>\n[c1] a.md: "It is open.\n\nThat is all.',
        "Write `<notes>` before the notes.",
    ],
    ids=[
        "text behind it",
        "another language",
        "no end and text behind it",
        "no end and text behind a field",
        "no end and text behind a quote",
        "in a sentence",
    ],
)
def test_a_block_within_the_text_is_text(text: str) -> None:
    assert read_noted_answer(text) == NotedAnswer(text)


def test_only_the_last_block_counts() -> None:
    quoted = f"The page says:\n<notes>\nstatus: failed\nproblem: x\n</notes>\n{WORK}"
    answer = read_noted_answer(f"{quoted}\n\n{BLOCK}")
    assert answer.text == quoted
    assert answer.fields == {}


def test_a_line_that_is_not_a_note_is_named() -> None:
    assert noted('[c1] a.md: "Rust"', "and so on").unreadable == ("and so on",)


def test_an_answer_that_was_cut_keeps_its_whole_notes() -> None:
    answer = read_noted_answer(f'{WORK}\n\n<notes>\n[c1] a.md: "Rust"\n[c')
    assert (answer.text, sources_of(answer)) == (WORK, [("a.md", "Rust")])
    assert not answer.is_closed


@pytest.mark.parametrize("size", range(1, len(BLOCK) + 1))
def test_an_unfinished_answer_never_shows_a_part_of_the_notes(size: int) -> None:
    assert without_notes(f"{WORK}\n\n{BLOCK[:size]}").rstrip() == WORK


def test_a_block_within_the_text_is_shown_when_text_follows() -> None:
    text = f"The page says:\n{BLOCK}\nThat is all."
    assert without_notes(text) == text


@pytest.mark.parametrize(
    "answer",
    [
        {
            "output": WORK,
            "claims": [
                {
                    "id": "c1",
                    "text": "It is written in Rust.",
                    "sources": [
                        {"source": "a.md", "quote": "Rust"},
                        {"source": "b c.md", "quote": 'the "Rust"'},
                    ],
                    "subject": "Qdrant",
                    "attribute": "language",
                    "value": "Rust",
                },
            ],
        },
        {"output": WORK, "claims": [{"id": "c1", "text": "Another text.", "sources": []}]},
        {"output": "", "status": "failed", "problem": "no price", "claims": []},
    ],
)
def test_written_notes_are_read_again(answer: dict[str, Any]) -> None:
    read = read_noted_answer(with_notes(answer))
    assert read.text == answer["output"]
    assert read.unreadable == ()
    for name, value in read.fields.items():
        assert answer[name] == value
    for claim, written in zip(read.claims, answer["claims"], strict=True):
        assert claim["sources"] == written["sources"]
        assert claim["text"] in (written["text"], "")
        assert claim.get("value") == written.get("value")


@given(st.lists(st.sampled_from(["<notes>", "</notes>", "[c1] a.md: ", '"', "x\n", "\n", "```"])))
def test_every_text_is_read(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert len(read_noted_answer(text).text) <= len(text)
    assert text.startswith(without_notes(text))


@pytest.mark.parametrize("piece", ["[c1] ", '"', ": ", "a:\n", ".", "|", "<notes>\n", "`", "[1]"])
def test_a_long_answer_is_read_in_linear_time(piece: str) -> None:
    text = f"<notes>\n[c1] a.md: {piece * (100_000 // len(piece))}"
    assert measure(lambda: (read_noted_answer(text), without_notes(text)), limit_s=2) < 2


@pytest.mark.parametrize(
    "note",
    [
        "[c1] a.md：「三台」",
        "[c1] a.md：“三台”",
        "[c1] a.md: »三台«",
        '[c1] a.md "三台"',
        '[c1] a.md — "三台"',
        '[c1] a.md, "三台"',
        '[c1] a.md: "三台" (page 3).',
        '[c1] Pipe | diameter | 6.5" | in | | a.md: "三台"',
    ],
)
def test_marks_of_other_languages_and_places_are_read(note: str) -> None:
    assert sources_of(noted(note)) == [("a.md", "三台")]


def test_a_text_with_words_in_quotation_marks_is_not_a_source() -> None:
    (claim,) = noted('[c1] It is called "v1.2", not "v1".').claims
    assert claim["sources"] == []
    assert claim["text"] == 'It is called "v1.2", not "v1".'


def test_the_end_of_a_quote_is_found_in_linear_time() -> None:
    notes = f'[c1] a.md: "It{" " * 50_000}"{" " * 50_000}has (three) pumps'
    assert measure(lambda: noted(notes), limit_s=2) < 2


def test_a_line_behind_the_status_is_not_part_of_it() -> None:
    answer = noted("status: partial", 'c1 a.md: "Rust"', "problem: no price")
    assert answer.fields == {"status": "partial", "problem": "no price"}
    assert answer.unreadable == ('c1 a.md: "Rust"',)


def test_a_footnote_in_a_quote_is_not_a_note() -> None:
    answer = noted('[c1] a.md: "Rust"', '[c2] b.md: "See', "[1] Smith.", '[2] Miller."', "[c3] x")
    assert sources_of(answer) == [("a.md", "Rust"), ("b.md", "See\n[1] Smith.\n[2] Miller.")]
    assert [claim["text"] for claim in answer.claims] == ["", "", "x"]


def test_a_status_with_its_reason_needs_no_tags() -> None:
    answer = read_noted_answer("\nstatus: needs_input\nneeds: Which year\ndo you mean?\n")
    assert answer == NotedAnswer("", {"status": "needs_input", "needs": "Which year do you mean?"})


@pytest.mark.parametrize(
    "text",
    ["status: failed", "status: failed\nproblem: x\n\nThat is all.", "The file has:\nstatus: ok"],
)
def test_a_text_that_begins_with_a_status_is_text(text: str) -> None:
    assert read_noted_answer(text) == NotedAnswer(text)


@pytest.mark.parametrize("copied", [f"The page:\n{BLOCK}", "status: failed\nproblem: x"])
def test_notes_at_the_end_of_a_written_output_are_text(copied: str) -> None:
    answer = read_noted_answer(with_notes({"output": copied}))
    assert (answer.text, answer.fields, answer.claims) == (copied, {}, [])
