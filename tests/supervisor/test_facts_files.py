"""A user's table of facts is read completely, or refused with one line per error. Reading a SQLite
file executes nothing from it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handoff_queue.shared.types.errors import ManyProblems, UserError
from handoff_queue.shared.types.gates import MAX_FACTS, KnownFact
from handoff_queue.supervisor.gates.facts import (
    MAX_BYTES,
    MAX_PROBLEMS,
    read_facts,
)
from tests.doubles.facts import HEADER, a_database, a_fact

CSV = "subject,attribute,value,unit,date,source\n"
TOWER = ("Eiffel Tower", "height", "330", "m", "2022", "survey.pdf")


def written(folder: Path, text: str, name: str = "facts.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def refusal(file: Path, columns: Mapping[str, str] | None = None, table: str | None = None) -> str:
    with pytest.raises(UserError) as raised:
        read_facts(file, columns, table)
    return str(raised.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", CSV + "Eiffel Tower,height,330,m,2022,survey.pdf\n\n"),
        ("a.tsv", CSV.replace(",", "\t") + "Eiffel Tower\theight\t330\tm\t2022\tsurvey.pdf\n"),
        ("a.csv", CSV.replace(",", ";") + "Eiffel Tower; height ;330;m;2022;survey.pdf\n"),
    ],
)
def test_a_row_is_a_fact(tmp_path: Path, name: str, text: str) -> None:
    assert read_facts(written(tmp_path, text, name)).facts == (a_fact("330", "m", date="2022"),)


def test_a_fact_is_kept_in_one_normal_form(tmp_path: Path) -> None:
    file = written(tmp_path, CSV + "Cafe\u0301 Central,seats,40,,,\n")
    assert read_facts(file).facts[0].subject == "Caf\u00e9 Central"


def test_columns_are_found_by_the_names_that_the_user_gives(tmp_path: Path) -> None:
    file = written(tmp_path, "item,what,how much,note\nEiffel Tower,height,330 m,x\n")
    (fact,) = read_facts(file, {"subject": "item", "attribute": "what", "value": "how much"}).facts

    assert fact == KnownFact(
        subject="Eiffel Tower", attribute="height", value="330 m", source="facts.csv:2"
    )


def test_a_sqlite_table_gives_the_same_facts_as_a_text_file(tmp_path: Path) -> None:
    rows = [
        ("Eiffel Tower", "height", 330, "m", "2022", "survey.pdf"),
        ("Louvre", "visitors", 8.7e6, None, None, None),
    ]
    tower, louvre = read_facts(a_database(tmp_path / "facts.db", rows=rows), table="facts").facts

    assert tower == a_fact("330", "m", date="2022")
    assert (louvre.value, louvre.source) == ("8700000.0", "facts.db, facts, row 2")


cells = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zs", "Zl", "Zp"]),
    min_size=1,
    max_size=12,
)


@given(st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_every_cell_of_sqlite_is_read_unchanged(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]
) -> None:
    file = a_database(
        tmp_path_factory.mktemp("facts") / "facts.db",
        rows=[(*row, None, None, "s") for row in rows],
    )

    assert [
        (fact.subject, fact.attribute, fact.value) for fact in read_facts(file, table="facts").facts
    ] == rows


def test_every_error_in_cells_is_one_line_with_file_row_and_column(
    tmp_path: Path,
) -> None:
    file = written(
        tmp_path,
        CSV + f"Eiffel Tower,height,,m,2022,\n,age,3,years,soon,\nLouvre,art,{'x' * 501},,,\n",
    )

    with pytest.raises(ManyProblems) as raised:
        read_facts(file)
    lines = str(raised.value).splitlines()
    assert [line.partition(" ")[0] for line in lines] == [
        "facts.csv:2:",
        "facts.csv:3:",
        "facts.csv:3:",
        "facts.csv:4:",
    ]
    assert "column 'value' is empty" in lines[0]
    assert "column 'subject' is empty" in lines[1]
    assert "column 'date' has a date that cannot be read ('soon')" in lines[2]
    assert "column 'value' has 501 characters" in lines[3]


def test_the_first_of_many_errors_are_reported_and_the_others_counted(tmp_path: Path) -> None:
    lines = refusal(written(tmp_path, CSV + "a,b,,,,\n" * (MAX_PROBLEMS + 3))).splitlines()

    assert len(lines) == MAX_PROBLEMS + 1
    assert lines[-1] == "and 3 more"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("subject,attribute\na,b\n", "has no column 'value': name the column of the value"),
        (CSV, "holds no facts"),
        (CSV + "a,b,c\n", "the row has 3 fields"),
        (CSV + 'a,b,"c\n', "is not a table"),
        (CSV + "a,b,1,,,\n" * (MAX_FACTS + 1), "has more than 2,000 facts"),
        ("x" * (MAX_BYTES + 1), "larger than"),
    ],
)
def test_an_invalid_table_of_facts_is_refused(tmp_path: Path, text: str, message: str) -> None:
    assert message in refusal(written(tmp_path, text))


@pytest.mark.parametrize(
    ("columns", "table", "message"),
    [
        ({"subjekt": "a"}, None, "a fact has no 'subjekt'"),
        ({"unit": "units"}, None, "has no column 'units'"),
        (None, "facts", "is not an SQLite file"),
    ],
)
def test_names_that_do_not_fit_are_refused(
    tmp_path: Path, columns: Mapping[str, str] | None, table: str | None, message: str
) -> None:
    assert message in refusal(written(tmp_path, CSV + "a,b,1,,,\n"), columns, table)


def test_a_missing_file_or_a_file_without_a_table_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(tmp_path / "nope.csv")
    assert "is not a table" in refusal(written(tmp_path, "x", "facts.txt"))


@pytest.mark.parametrize(
    ("statement", "columns", "table", "message"),
    [
        ("SELECT 1", None, None, "is a SQLite file: name its table"),
        ("SELECT 1", None, "nope", "'nope' is not a plain table"),
        (
            "SELECT 1",
            {"value": "nope"},
            "facts",
            "has no column 'nope': name the column of the",
        ),
        (
            "SELECT 1",
            {"unit": "nope"},
            "facts",
            "has no column 'nope': name the column of the",
        ),
        ("SELECT 1", None, 'facts" --', "is not a name"),
        ("SELECT 1", {"value": "x FROM facts; DROP TABLE facts"}, "facts", "is not a name"),
        ("CREATE VIEW seen AS SELECT * FROM facts", None, "seen", "'seen' is not a plain table"),
        (
            (
                "CREATE VIEW long AS WITH RECURSIVE n(x) AS (VALUES(1) UNION ALL SELECT x FROM n)"
                " SELECT x AS subject FROM n"
            ),
            None,
            "long",
            "'long' is not a plain table",
        ),
        (
            "ALTER TABLE facts ADD COLUMN made AS (hex(value))",
            {"value": "made"},
            "facts",
            "has no column 'made'",
        ),
        (
            "CREATE VIRTUAL TABLE made USING fts5(subject, attribute, value)",
            None,
            "made",
            "'made' is not a plain table",
        ),
        ("UPDATE facts SET value = x'00'", None, "facts", "column 'value' holds a BLOB or a NUL"),
    ],
)
def test_a_sqlite_file_gives_columns_of_one_plain_table_and_nothing_else(
    tmp_path: Path,
    statement: str,
    columns: Mapping[str, str] | None,
    table: str | None,
    message: str,
) -> None:
    file = a_database(tmp_path / "facts.db", statement, rows=[TOWER])
    before = file.read_bytes()

    assert message in refusal(file, columns, table)
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["facts.db"]


def test_a_table_over_the_row_limit_is_not_read_to_its_end(tmp_path: Path) -> None:
    assert "has more than" in refusal(
        a_database(tmp_path / "facts.db", rows=[TOWER] * (MAX_FACTS + 5)), table="facts"
    )


def test_the_header_of_the_tests_matches_the_fields_of_a_fact() -> None:
    assert {*HEADER} == {*KnownFact.model_fields}


def test_a_pipe_holds_no_facts_and_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "facts.csv")

    with pytest.raises(UserError, match="are not a regular file"):
        read_facts(tmp_path / "facts.csv")
