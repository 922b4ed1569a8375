"""Long runs of one character in texts from outside. A regular expression with quadratic time holds
the interpreter lock, so it stops all jobs of its process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from handoff_queue.shared.agent.compaction import find_call_names
from handoff_queue.shared.agent.hidden_text_decoders import _decode_escapes
from handoff_queue.shared.documents.html import _HIDING_STYLE
from handoff_queue.shared.providers.offline.citations import parse_gaps
from handoff_queue.shared.providers.offline.request_text import explain_unanswerable
from handoff_queue.shared.text.times import InvalidDuration, parse_seconds
from handoff_queue.supervisor.text.orders_to_assessor import find_order_to_assessor
from handoff_queue.supervisor.text.quantities import iterate_numbers

RUNS: dict[str, Callable[[], object]] = {
    "blanks in a duration": lambda: parse_seconds("1h" + " " * 2_000 + "x"),
    "zeros in a style": lambda: _HIDING_STYLE.search("height:" + "0" * 100_000 + "x"),
    "blanks in a style": lambda: _HIDING_STYLE.search("height:0" + " " * 100_000 + "x"),
    "begins of a tag": lambda: list(_decode_escapes("<" * 100_000)),
    "letters of a call": lambda: find_call_names("a" * 100_000),
    "blanks after a verdict": lambda: find_order_to_assessor(
        "\treturn PASS" + "\t" * 150_000 + "x"
    ),
    "empty lines before a gap": lambda: parse_gaps("\n" * 100_000),
    "polite words": lambda: explain_unanswerable("can you please " * 40 + "x"),
}
MAX_S = 4.0
"""Each takes less than 0.1 s. Before, each took more than 5 s, and some took hours."""


@pytest.mark.parametrize("search", RUNS.values(), ids=RUNS)
def test_a_long_run_of_characters_takes_a_short_time(search: Callable[[], object]) -> None:
    begun = time.process_time()

    with suppress(InvalidDuration):
        search()

    assert time.process_time() - begun < MAX_S


def test_a_gate_about_numbers_leaves_out_a_number_that_python_cannot_read() -> None:
    assert list(iterate_numbers("1" * 5_000 + " and 42")) == [42, 42]
