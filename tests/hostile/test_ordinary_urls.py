"""Ordinary URLs rarely need a person, and the check of a URL is a bounded amount of work."""

from __future__ import annotations

import random
import sys
from functools import cache
from types import FrameType

import pytest

from handoff_queue.shared.agent.private_texts import build_index
from handoff_queue.shared.agent.seen_texts import (
    url_carries_private_text,
    value_carries_private_text,
)
from tests.hostile.ordinary_urls import DOCUMENTS, REPORT, asked, hashes, table, urls

MAX_ASKED = 0.05
"""Share of the ordinary URLs about which a person is asked."""
MAX_URL_CHARS = 1_000
"""Characters of the longest URL that `fetch_url` takes."""
MAX_CALLS = 800_000
"""Calls of Python functions for the longest URL."""
ORDINARY = [url for kind in urls().values() for url in kind]


@pytest.mark.slow
def test_a_person_is_asked_about_few_ordinary_urls() -> None:
    texts = list(DOCUMENTS.values())
    questions: list[str] = []
    for number, text in enumerate(texts):
        questions += asked(text, ORDINARY[number :: len(texts)])

    assert len(ORDINARY) >= 200
    assert len(questions) <= MAX_ASKED * len(ORDINARY), questions


@pytest.mark.slow
def test_a_url_that_stands_in_a_page_needs_no_person() -> None:
    page = "\n".join(f"See {url}." for url in (*hashes(), *asked(REPORT, ORDINARY[:60])))

    assert all(url_carries_private_text(url, [REPORT], []) for url in hashes())
    for line in page.splitlines():
        url = line.removeprefix("See ").removesuffix(".")
        assert not url_carries_private_text(url, [REPORT], [page]), url
        assert url_carries_private_text(f"{url}&d=640200", [REPORT], [page])


def test_a_public_word_with_hidden_characters_is_not_a_public_word() -> None:
    hidden = "".join(chr(0xE0000 + ord(character)) for character in "48713")

    assert value_carries_private_text({"city": f"Lisbon{hidden}"}, [REPORT], ["Lisbon"])
    assert not value_carries_private_text({"city": "Lisbon"}, [REPORT], ["Lisbon"])


@pytest.mark.slow
def test_a_number_joined_by_chance_is_not_a_copy_from_a_long_table() -> None:
    rows = table(3_000, 3)
    revenue = rows.splitlines()[1].split(",")[3]

    assert url_carries_private_text(f"https://a.example.org/?q={revenue}", [rows], [])
    assert not url_carries_private_text(f"https://a.example.org/{'/'.join(revenue)}", [rows], [])
    assert url_carries_private_text(f"https://a.example.org/{'/'.join(revenue)}", [rows[:300]], [])


@cache
def calls_for(url: str, text: str) -> int:
    """Return the number of calls of Python functions for the check of a URL."""
    build_index(text)
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        url_carries_private_text(url, [text], [])
    finally:
        sys.setprofile(None)
    return calls


def longest_url(alphabet: str, size: int) -> str:
    """Return a URL of the longest length, with parts of these characters."""
    chance = random.Random(size)
    parts = ["".join(chance.choices(alphabet, k=size)) for _ in range(MAX_URL_CHARS // size)]
    return f"https://a.example.org/{'/'.join(parts)}"[:MAX_URL_CHARS]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alphabet", "size"),
    [("0123456789", 1), ("01", 30), ("0123456789abcdef", 30), ("aA0+/-_=%.&<\\x", 30)],
)
def test_the_work_for_the_longest_url_is_bounded(alphabet: str, size: int) -> None:
    assert calls_for(longest_url(alphabet, size), "nothing") <= MAX_CALLS


@pytest.mark.slow
def test_the_work_for_a_url_does_not_grow_with_the_private_text() -> None:
    url = longest_url("aA0+/-_=%.&<\\x", 30)

    assert calls_for(url, table(14_000, 2)) <= calls_for(url, "nothing") + 10_000


@pytest.mark.slow
def test_any_text_is_checked_without_an_error() -> None:
    chance = random.Random(0)
    planes = (0x80, 0x250, 0x3000, 0xFFFF, 0x10FFFF)
    for number in range(100):
        most = planes[number % len(planes)]
        text = "".join(chr(chance.randrange(1, most)) for _ in range(30))
        assert url_carries_private_text(f"https://a.example.org/{text}", [REPORT], []) in (
            True,
            False,
        )
        assert value_carries_private_text([text], [REPORT], []) in (True, False)
