"""docs/performance.md stays short, its figures are in benchmarks/RESULTS.md, and the commands
that both pages name exist.
"""

from __future__ import annotations

import re
import shlex

import pytest

from tests.docs.pages import ROOT, rows, spans, text_of

PAGE = text_of("performance")
RESULTS = (ROOT / "benchmarks" / "RESULTS.md").read_text()
COMMANDS = sorted(
    {span for text in (PAGE, RESULTS) for span in spans(text) if "python -m benchmarks" in span}
)
MEASURED_FROM = 3
"""The first column of the table with figures."""


def test_the_page_has_at_most_1200_words_and_one_table() -> None:
    tables = re.findall(r"^\|[-|]+\|$", PAGE, re.MULTILINE)

    assert len(PAGE.split()) <= 1_200
    assert len(tables) == 1


def test_every_figure_of_the_table_is_in_the_results() -> None:
    figures = {cell for row in rows(PAGE) for cell in row[MEASURED_FROM:]}
    measured = {word for row in rows(RESULTS) for cell in row for word in cell.split()}

    assert len(figures) > 40
    assert figures <= measured


@pytest.mark.parametrize("command", COMMANDS)
def test_a_benchmark_that_the_pages_name_exists_with_its_options(command: str) -> None:
    words = shlex.split(command)
    module = words[words.index("-m") + 1]
    path = ROOT / module.replace(".", "/")
    source = (path / "__main__.py" if path.is_dir() else path.with_suffix(".py")).read_text()

    for option in (word for word in words if word.startswith("--")):
        assert f'"{option}"' in source


NAMED_TESTS = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", RESULTS)


def test_the_results_name_a_test_for_each_fault_of_the_small_model() -> None:
    faults = set(re.findall(r"^\| (R\d+) \|", RESULTS, re.MULTILINE))

    assert faults == {f"R{number}" for number in range(1, 17)}


@pytest.mark.parametrize(("file", "name"), NAMED_TESTS)
def test_a_test_that_the_results_name_exists(file: str, name: str) -> None:
    assert f"\ndef {name}(" in (ROOT / file).read_text()
