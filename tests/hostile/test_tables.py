"""A table of another author costs time in proportion to its length, and is read whole or refused
with one line.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.gates.facts import read_facts
from handoff_queue.supervisor.text.csv_tables import iterate_rows

FEW, MANY = 2_000, 32_000


def seconds_of_header(columns: int) -> float:
    """Return the processor seconds that a header of so many columns takes; the best of three."""
    header = ",".join(f"c{number}" for number in range(columns))
    taken: list[float] = []
    for _ in range(3):
        begun = time.thread_time()
        assert list(iterate_rows(Path("a.csv"), header, ",")) == []
        taken.append(time.thread_time() - begun)
    return min(taken)


def test_a_header_of_many_columns_takes_time_in_proportion() -> None:
    assert seconds_of_header(MANY) < 4 * MANY / FEW * seconds_of_header(FEW)


def test_a_name_that_is_there_twice_is_found_at_the_end_of_many_columns() -> None:
    header = ",".join([*(f"c{number}" for number in range(MANY)), "c7"])

    with pytest.raises(UserError, match="column 'c7' is there twice"):
        list(iterate_rows(Path("a.csv"), header, ","))


HEADER = "subject,attribute,value,unit\n"
ROW = "Everest,height,8849,m\n"
TABLES: dict[str, bytes] = {
    "no end of a quote": (HEADER + 'Everest,"height,8849,m\n').encode(),
    "a quote inside a field": (HEADER + 'Everest,he"ight,"88"49,m\n').encode(),
    "too few fields": (HEADER + "Everest,height\n").encode(),
    "too many fields": (HEADER + "Everest,height,8849,m,x\n").encode(),
    "a million fields": (HEADER + "," * 1_000_000 + "\n").encode(),
    "a field of 200,000 characters": (HEADER + "Everest,height," + "9" * 200_000 + ",m\n").encode(),
    "a column that is there twice": ("subject,subject,attribute,value\n" + ROW).encode(),
    "a column without a name": ("subject,attribute,value,\n" + ROW).encode(),
    "no needed column": b"a,b\n1,2\n",
    "only a header": HEADER.encode(),
    "only blanks": b"\n \n,,,\n",
    "nothing": b"",
    "a NUL": HEADER.encode() + b"Ever\0est,height,8849,m\n",
    "UTF-16 without a mark": (HEADER + ROW).encode("utf-16-le"),
    "no value": (HEADER + "Everest,height,,m\n").encode(),
    "a value of 5,000 characters": (HEADER + "Everest,height," + "9" * 5_000 + ",m\n").encode(),
    "a ZIP": b"PK\x03\x04" + bytes(100),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_hostile_table_of_facts_is_refused_with_one_line(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "facts.csv"
    file.write_bytes(TABLES[kind])

    with pytest.raises(UserError) as caught:
        read_facts(file)

    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2_000


def test_the_table_without_an_attack_is_read(tmp_path: Path) -> None:
    (tmp_path / "facts.csv").write_text(HEADER + ROW)

    assert len(read_facts(tmp_path / "facts.csv").facts) == 1


@pytest.mark.parametrize(
    ("cell", "subject"),
    [
        (b"Ever\xed\xa0\xbdest", "Ever\u00ed\u00a0\u00bdest"),
        (b"Ever\xffest", "Ever\u00ffest"),
        (b"=cmd|' /c calc'!A1", "=cmd|' /c calc'!A1"),
    ],
)
def test_a_strange_cell_is_a_text(tmp_path: Path, cell: bytes, subject: str) -> None:
    (tmp_path / "facts.csv").write_bytes(HEADER.encode() + cell + b",height,8849,m\n")

    (fact,) = read_facts(tmp_path / "facts.csv").facts

    assert fact.subject == subject
