"""JSON out of texts that were wrapped or cut on their way to the model."""

from __future__ import annotations

import json

import pytest

from handoff_queue.shared.providers.offline.payloads import claims_and_output, hits_in, page_in

DATA = json.dumps(
    {
        "output": 'It "works" [a.c1].',
        "claims": [
            {"id": "a.c1", "text": "It works.", "sources": []},
            {"id": "a.c2", "text": "No."},
        ],
    }
)
PAGE = json.dumps(
    {"source": "a.md", "offset": 0, "total_chars": 30, "text": 'One "quoted" line.\nAnother line.'}
)


def test_a_result_gives_its_output_and_its_claims() -> None:
    output, claims = claims_and_output(DATA)
    assert output == 'It "works" [a.c1].'
    assert [claim["id"] for claim in claims] == ["a.c1", "a.c2"]


def test_of_a_result_that_was_cut_what_is_whole_is_kept() -> None:
    output, claims = claims_and_output(DATA[:-20])
    assert output == 'It "works" [a.c1].'
    assert [claim["id"] for claim in claims] == ["a.c1"]


def test_plain_text_is_an_output_without_claims() -> None:
    assert claims_and_output("just words") == ("just words", [])


def test_hits_before_a_cut_are_kept() -> None:
    hits = [{"source": "a.md", "snippet": f"passage {number}"} for number in range(3)]
    text = json.dumps({"hits": hits, "searched": 7})
    assert hits_in(text) == (hits, 7)
    assert hits_in(text[: text.index("passage 2")]) == (hits[:2], None)


def test_a_page_that_was_cut_gives_its_text_up_to_the_cut_and_knows_that_there_is_more() -> None:
    assert page_in(PAGE) == ("a.md", 0, 30, 'One "quoted" line.\nAnother line.')
    cut = page_in(f"{PAGE[:-9]}\n[cut]")
    assert cut is not None
    source, offset, total, text = cut
    assert (source, offset) == ("a.md", 0)
    assert text.startswith('One "quoted" line.\nAnoth')
    assert total > offset + len(text)


@pytest.mark.parametrize("length", range(20, 60))
def test_a_page_may_be_cut_anywhere(length: int) -> None:
    escaped = json.dumps({"source": "a.md", "text": 'é "quoted" \\ back\nslash — dash'})
    page_in(escaped[:length])


def test_what_is_no_json_at_all_gives_nothing() -> None:
    assert hits_in("out of order") == ([], None)
    assert page_in("out of order") is None
