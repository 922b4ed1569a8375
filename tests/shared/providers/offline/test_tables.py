"""Rows of CSV files and of tables of web pages are quoted like rows of Markdown tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.documents.html import html_text
from handoff_queue.shared.providers.offline.sentences import sentences_of
from tests.shared.providers.offline.asking_the_model import Library, work

EXPENSES = """date,category,who,amount
2024-01-03,office,Ann,40.00
2024-01-09,travel,Ann,120.50
2024-02-14,travel,"Lee,
Kim",88.00
2024-03-01,travel,Bob,410.00
"""


def said(text: str, source: str = "table.csv", **edges: bool) -> list[tuple[str, str]]:
    return [(each.quote, each.text) for each in sentences_of(text, source, **edges)]


def test_each_row_of_a_csv_file_is_said_with_the_names_of_its_columns() -> None:
    assert said(EXPENSES)[1:3] == [
        ("2024-01-09,travel,Ann,120.50", "2024-01-09: category travel, who Ann, amount 120.50"),
        (
            '2024-02-14,travel,"Lee, Kim",88.00',
            "2024-02-14: category travel, who Lee, Kim, amount 88.00",
        ),
    ]


@pytest.mark.parametrize(
    ("text", "source"),
    [("who;days\nAnn;1,5\n", "a.csv"), ("who\tdays\nAnn\t1,5\n", "a.tsv")],
)
def test_semicolons_and_tabs_separate_too(text: str, source: str) -> None:
    assert [row for _, row in said(text, source)] == ["Ann: days 1,5"]


def test_a_part_of_a_csv_file_has_no_names_of_columns_and_loses_rows_that_may_be_cut() -> None:
    part = EXPENSES[30:-3]

    assert said(part, starts_whole=False, ends_whole=False)[0] == (
        "2024-01-09,travel,Ann,120.50",
        "2024-01-09: travel, Ann, 120.50",
    )
    assert not any("Bob" in quote for quote, _ in said(part, starts_whole=False, ends_whole=False))


def test_every_row_that_answers_a_question_is_quoted() -> None:
    answer = work("<task>What did we spend on travel?</task>", Library({"expenses.csv": EXPENSES}))

    assert answer["status"] == "ok"
    assert [claim["sources"][0]["quote"] for claim in answer["claims"]] == [
        quote for quote, _ in said(EXPENSES)[1:]
    ]


@pytest.mark.parametrize(
    ("head", "wording"),
    [
        ("<tr><th>Country</th><th>Price</th></tr>", "Taiwan: Price 46 EUR"),
        ("<tr><td>Japan</td><td>41 EUR</td></tr>", "Taiwan: 46 EUR"),
    ],
)
def test_a_row_of_a_table_of_a_web_page_is_said(head: str, wording: str) -> None:
    page = html_text(
        f"<h1>Costs</h1><p>We ship.</p><table>{head}<tr><td>Taiwan</td><td>46 EUR</td></tr></table>"
    )

    assert said(page, "costs.html")[-1] == ("Taiwan | 46 EUR", wording)


def test_a_table_without_a_header_loses_no_row() -> None:
    assert [row for _, row in said("Japan | 41 EUR\nTaiwan | 46 EUR\n", "costs.html")] == [
        "Japan: 41 EUR",
        "Taiwan: 46 EUR",
    ]


def test_a_row_with_more_cells_than_the_header_keeps_them() -> None:
    table = "| a | b |\n|---|---|\n| one | two | three |\n"

    assert [row for _, row in said(table, "x.md")] == ["one: b two, three"]


def test_names_at_the_beginning_of_rows_and_items_keep_their_case() -> None:
    text = "# Brokers\n\n| Broker | Value |\n|---|---|\n| RabbitMQ | late |\n\n- Default: early\n"

    assert [each.standing_alone for each in sentences_of(text, "x.md")] == [
        "Brokers: RabbitMQ: late",
        "Brokers: Default: early",
    ]


@pytest.mark.parametrize(
    "sentence",
    [
        "The client waits 2**attempt seconds, then 3**attempt seconds.",
        "It calls `f(*args, **kwargs)` and then `handlers[0](x)`.",
        "The method `__init__` sets `a[0]` and `_b_`.",
        "It calls handlers[0](request) with a * b * c.",
        "Set snake_case_names and __version__ first.",
    ],
)
def test_code_stays_as_it_is(sentence: str) -> None:
    assert [each.text for each in sentences_of(sentence, "x.md")] == [sentence]


def test_a_document_that_is_no_markdown_is_quoted_as_it_stands() -> None:
    line = "# It returns *a **b* of [x](y) for all callers."

    assert [each.text for each in sentences_of(line[2:], "x.py")] == [line[2:]]


@given(st.text(alphabet='a,;"\n\r \u2028|', max_size=80), st.booleans(), st.booleans())
def test_any_text_is_read_as_rows_that_stand_in_it(text: str, starts: bool, ends: bool) -> None:
    folded = " ".join(text.split())
    for quote, _ in said(text, starts_whole=starts, ends_whole=ends):
        assert quote in folded
