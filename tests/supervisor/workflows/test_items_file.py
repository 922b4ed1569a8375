"""Lines and rows of a file are read unchanged, or one line names the error in the file."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.workflows import Items, read_items
from handoff_queue.supervisor.workflows.expansion import MAX_STEPS
from handoff_queue.supervisor.workflows.items_file import MAX_BYTES

printable = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12)


def read_file(folder: Path, name: str, data: bytes | str) -> Items:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_items(path)


def refusal(folder: Path, name: str, data: bytes | str) -> str:
    with pytest.raises(UserError) as raised:
        read_file(folder, name, data)
    assert str(raised.value).startswith(str(folder / name))
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.jsonl", "a"])
def test_lines_are_read_unchanged_without_blank_lines(tmp_path: Path, name: str) -> None:
    lines = read_file(tmp_path, name, "\ufefffirst, {item}\r\n\r\n  second\u2028still\n \nthird")

    assert lines == Items(lines=("first, {item}", "  second\u2028still", "third"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "name , note\nAnn,x\n\n,\nBob,\n"),
        ("a.CSV", "\ufeffname;note\r\nAnn;x\r\n;\r\nBob;\r\n"),
        ("a.tsv", "name\tnote\nAnn\tx\nBob\t\n"),
    ],
)
def test_rows_are_named_by_the_header(tmp_path: Path, name: str, text: str) -> None:
    assert read_file(tmp_path, name, text) == Items(
        rows=({"name": "Ann", "note": "x"}, {"name": "Bob", "note": ""})
    )


def test_a_quoted_field_may_hold_any_text(tmp_path: Path) -> None:
    items_read = read_file(tmp_path, "a.csv", 'name,"long\nnote"\nAnn,"a ""b"",\n{c}"\n')

    assert items_read.rows == ({"name": "Ann", "long note": 'a "b",\n{c}'},)


@given(st.lists(st.tuples(printable, printable), min_size=1, max_size=5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_table_is_read_unchanged(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    path = tmp_path / "a.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("left", "right"), *rows, ("the", "last")])

    kept = [row for row in rows if any(field.strip() for field in row)]
    assert [tuple(row.values()) for row in read_items(path).rows] == [*kept, ("the", "last")]


def test_spreadsheets_in_other_encodings_are_read_like_documents(tmp_path: Path) -> None:
    assert (
        read_file(tmp_path, "a.tsv", "name\tnote\nJörg\tx\n".encode("utf-16")).rows[0]["name"]
        == "Jörg"
    )
    assert (
        read_file(tmp_path, "a.csv", "name,note\nJörg,x\n".encode("latin-1")).rows[0]["name"]
        == "Jörg"
    )


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", "", "holds no lines; add some"),
        ("a.txt", " \n\n", "holds no lines; add some"),
        ("a.csv", "", "holds no rows below its header; add some"),
        ("a.csv", "name,note\n", "holds no rows below its header; add some"),
        ("a.csv", "name,\nAnn,x\n", ":1: column 2 has no name; give it one in the header"),
        ("a.csv", "name, name\nAnn,x\n", ":1: column 'name' is there twice; rename one"),
        ("a.csv", "name,request\nAnn,x\n", ":1: a column cannot be called request"),
        ("a.csv", "item\nAnn\n", ":1: a column cannot be called item"),
        (
            "a.csv",
            "name,note\nAnn,x\nBob\n",
            ":3: the row has 1 field, the header 2; add 'note', or a `,` for each field without",
        ),
        ("a.csv", "name,note\nAnn,x,y\n", ":2: the row has 3 fields, the header 2"),
        ("a.csv", 'name,note\nAnn,"x\n', "is not a table (unexpected end of data); close quotes"),
        ("a.csv", "name\n" + "x" * 200_000, "a field has more than 131,072 characters"),
        ("a.txt", b"PK\3\4\0\0", "is binary, not text; give lines of text, or a .csv or .tsv"),
        ("a.txt", b"x" * (MAX_BYTES + 1), f"is larger than {MAX_BYTES:,} bytes; split it"),
        (
            "a.txt",
            b"x\n" * (MAX_STEPS + 1),
            f"holds {MAX_STEPS + 1:,} items, at most {MAX_STEPS:,} are allowed; split it",
        ),
    ],
    ids=range(15),
)
def test_a_file_without_items_is_refused_in_one_line(
    tmp_path: Path, name: str, data: bytes | str, message: str
) -> None:
    assert message in refusal(tmp_path, name, data)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"cannot be read \(No such file or directory\); check the path"
    ):
        read_items(tmp_path / "missing.csv")
