"""The 95th percentile of a search in 10,000 documents is below 100 ms."""

from __future__ import annotations

import itertools
import random
import time
from functools import partial
from pathlib import Path

import pytest

from handoff_queue.workers.index.index import DocumentIndex
from tests.machine_pace import measure
from tests.workers.index.documents_in_memory import Library

MAX_P95_S = 0.1
SEARCHES = 40
PARAGRAPHS = 3_000
"""Different paragraphs of all documents. The index does not know that a paragraph repeats."""


@pytest.mark.slow
def test_ten_thousand_documents_are_searched_within_a_tenth_of_a_second(tmp_path: Path) -> None:
    rng = random.Random(7)
    words = [
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9)))
        for _ in range(20_000)
    ]
    # `choices` would add up plain weights again at each call
    frequency = list(itertools.accumulate(1 / rank for rank in range(1, len(words) + 1)))
    paragraphs = [
        " ".join(rng.choices(words, cum_weights=frequency, k=60)) for _ in range(PARAGRAPHS)
    ]
    library = Library(
        {
            f"{number:05}.md": "\n\n".join(
                [f"# {rng.choice(words)}", *rng.choices(paragraphs, k=3)]
            )
            for number in range(10_000)
        }
    )
    index = DocumentIndex(tmp_path)
    started = time.perf_counter()
    index.search(library.manifest, "warm up", text_of=library.text_of)
    filling_s = time.perf_counter() - started

    taken_s = []
    for _ in range(SEARCHES):
        query = " ".join(rng.choices(words, cum_weights=frequency, k=rng.randint(1, 10)))
        search = partial(index.search, library.manifest, query, text_of=library.text_of)
        taken_s.append(measure(search, MAX_P95_S, time.thread_time))
    index.close()

    p50_s, p95_s = (sorted(taken_s)[SEARCHES * percent // 100 - 1] for percent in (50, 95))
    print(
        f"\n10,000 documents: filled in {filling_s:.1f} s; search p50"
        f" {p50_s * 1e3:.0f} ms, p95 {p95_s * 1e3:.0f} ms"
    )
    assert p95_s < MAX_P95_S
