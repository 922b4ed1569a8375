"""A question and a document need not use the same form of a word."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from handoff_queue.shared.providers.offline.aspects import aspect
from handoff_queue.shared.providers.offline.stems import has_stem, stems_of
from handoff_queue.shared.text.words import stem


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("weight", "It weighs 1 kg."),
        ("weighs", "Its weight is known."),
        ("batteries", "One battery is enough."),
        ("caused", "The cause was a fuse."),
        ("licensing", "It is licensed."),
        ("renewal", "It was renewed."),
        ("memory", "Two memories."),
        ("crash", "A crash-safe log."),
    ],
)
def test_forms_of_one_word_match(asked: str, said: str) -> None:
    assert has_stem(stem(asked), stems_of(said))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("port", "A portable one."),
        ("form", "A format."),
        ("plan", "A plane."),
        ("cost", "A coast."),
    ],
)
def test_other_words_do_not(asked: str, said: str) -> None:
    assert not has_stem(stem(asked), stems_of(said))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("price", "It sells for $99."),
        ("cost", "Priced at 99 euros."),
        ("weight", "990 grams."),
        ("battery life", "Batteries."),
    ],
)
def test_an_aspect_is_recognised_by_its_synonyms_and_its_forms(asked: str, said: str) -> None:
    assert aspect(asked).score(said) >= 2


def test_many_threads_stem_alike() -> None:
    words = [
        f"{start}{ending}"
        for start in ("filter", "weigh", "licens", "renew")
        for ending in ("s", "ed", "ing", "er", "")
    ] * 50
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(stem.__wrapped__, words)) == [stem(word) for word in words]
