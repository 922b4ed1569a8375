"""An answer whose images no program can look at one by one. A supervisor runs no other job while
one regular expression searches it: 60,000 blanks stopped all jobs for more than two minutes.
"""

from __future__ import annotations

import time
import tracemalloc

import pytest

from handoff_queue.supervisor.lifecycle.uncited_sentences import find_uncited_sentences
from handoff_queue.supervisor.text.markdown import (
    MAX_BLOCK_MARKS,
    iterate_headings,
    lower_headings,
)
from handoff_queue.supervisor.text.sanitizing import clean_form, without_foreign_images
from handoff_queue.supervisor.tracing.page import MAX_MARKS, render_answer

ANSWERS = {
    "blanks in an image": "![a](" + " " * 60_000,
    "blanks in an element": "<a src=" + " " * 3_900,
    "blanks in a definition": " [a]:" + " " * 60_000,
    "attributes": ("<a " + "src=" * 1_000) * 225,
    "slashes": ("<a src=" + "/ " * 1_990) * 225,
    "images": "![a](" * 150_000,
    "brackets": "![a](b.png)" + "[" * 800_000,
    "code": "`<b>` " * 16_000 + "\\`<b>`",
    "runs of backticks": "".join("`" * length + "<b>" for length in range(1, 430)),
    "marks": "![a](b.png)" + "*_[`<" * 150_000,
}
MAX_S = 10.0
"""Each answer takes less than 0.5 s. Before, each took more than 20 s, and some took hours."""


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_the_images_of_each_answer_are_found_in_a_short_time(answer: str) -> None:
    begun = time.process_time()

    without_foreign_images(answer)

    assert time.process_time() - begun < MAX_S


@pytest.mark.slow
@pytest.mark.parametrize("line", ["# a\n", "|a|b|\n|-|-|\n", "a\n===\n", "- a\n", "a\r"])
def test_a_supervisor_needs_little_memory_for_an_answer_with_many_lines(line: str) -> None:
    """A worker may return 64 MB, and the parser needed 345 times as much."""
    answer = line * (260_000 // len(line))
    tracemalloc.start()

    assert lower_headings(2, answer).startswith(line[0])
    assert list(iterate_headings(answer)) == []
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak_bytes < 40 * len(answer)


def test_each_line_of_an_answer_with_many_lines_needs_its_own_source() -> None:
    filler = "\n" * MAX_BLOCK_MARKS
    answer = f"The pump has 5 kW.{filler}The pipe has 7 m [1].\nThe end:"

    assert find_uncited_sentences(answer, sources=1) == ("The pump has 5 kW.",)


@pytest.mark.parametrize("text", ["<a b=c>", "![a](b.png)", "![a][b]\n\n[b]: c.png", "["])
@pytest.mark.parametrize("count", [500, 6_000, 50_000])
def test_the_images_of_each_form_are_found_in_a_short_time(text: str, count: int) -> None:
    begun = time.process_time()

    clean_form([text] * count)

    assert time.process_time() - begun < MAX_S


@pytest.mark.parametrize("marks", ["*_[`<", "|a", "![a]("])
def test_a_page_shows_an_answer_with_too_many_marks_as_plain_text(marks: str) -> None:
    """The parser took 30 seconds of a server for each view of such an answer."""
    page = render_answer("<b>" + marks * MAX_MARKS, (), "a")

    assert page.startswith("<pre")
    assert "<b>" not in page


def test_a_page_shows_an_answer_with_fewer_marks_as_markdown() -> None:
    assert render_answer("**a** " * 1_000, (), "a").startswith("<p><strong>")
