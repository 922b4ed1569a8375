"""A table of another author costs time in proportion to its length."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.gates.tables import rows_in

FEW, MANY = 2_000, 32_000


def seconds_of_header(columns: int) -> float:
    """Return the processor seconds that a header of so many columns takes; the best of three."""
    header = ",".join(f"c{number}" for number in range(columns))
    taken: list[float] = []
    for _ in range(3):
        begun = time.thread_time()
        assert list(rows_in(Path("a.csv"), header, ",")) == []
        taken.append(time.thread_time() - begun)
    return min(taken)


def test_a_header_of_many_columns_takes_time_in_proportion() -> None:
    assert seconds_of_header(MANY) < 4 * MANY / FEW * seconds_of_header(FEW)


def test_a_name_that_is_there_twice_is_found_at_the_end_of_many_columns() -> None:
    header = ",".join([*(f"c{number}" for number in range(MANY)), "c7"])

    with pytest.raises(UserError, match="column 'c7' is there twice"):
        list(rows_in(Path("a.csv"), header, ","))
