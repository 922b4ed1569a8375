"""`handoff list` shows every complete job id, also on a narrow terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.supervisor.cli.list import format_header, iterate_job_lines
from tests.supervisor.cli.job_events import JOB

LONG = "Compare Qdrant, pgvector and Milvus for a team that needs filtering and durable storage"
LISTED_JOB = JobInfo(
    JOB,
    JobStatus.CANCELLED,
    9,
    LONG,
    101.0,
    turns=1_200,
    input_tokens=57_002_000,
    output_tokens=400,
    cost_microusd=12_345_678,
    cancelled=True,
    cut_calls=1,
)
WAITING = replace(
    LISTED_JOB,
    waiting_for=(
        "step a waits for a worker of `poet`: start one with `handoff worker poet`; the job waits"
        " for x: y"
    ),
)


@pytest.mark.parametrize("columns", [60, 80, 119, 120, 160])
def test_no_line_is_wider_than_the_screen_and_the_id_is_whole(columns: int) -> None:
    lines = list(iterate_job_lines(WAITING, columns))

    assert max(map(len, lines)) <= columns
    assert lines[0].split()[:2] == [JOB, "cancelled"]
    for text in ("1,200", "≤ 57,002,400", "≤ $12.3457", "Compare Qdrant"):
        assert any(text in line for line in lines)


@pytest.mark.parametrize("columns", [60, 160])
def test_each_reason_of_a_wait_has_its_line_below_the_job(columns: int) -> None:
    text = " ".join(" ".join(iterate_job_lines(WAITING, columns)).split())

    assert text.endswith(
        "step a waits for a worker of `poet`: start one with `handoff worker poet` the job waits"
        " for x: y"
    )
    assert "waits" not in " ".join(iterate_job_lines(LISTED_JOB, columns))


def test_on_a_wide_terminal_a_job_is_one_line() -> None:
    assert len(list(iterate_job_lines(LISTED_JOB, 120))) == 1
    assert len(list(iterate_job_lines(LISTED_JOB, 119))) == 3


@pytest.mark.parametrize("columns", [60, 160])
def test_the_header_names_the_columns_above_their_values(columns: int) -> None:
    first, *_ = iterate_job_lines(replace(LISTED_JOB, title="Compare"), columns)
    names = format_header(columns)

    assert len(names) <= columns
    assert names.index("job") == first.index(JOB)
    assert names.index("status") == first.index("cancelled")
    assert names.index("submitted") == first.index("cancelled") + 11


@pytest.mark.parametrize(
    ("name", "value"), [("turns", "1,200"), ("tokens", "≤ 57,002,400"), ("cost", "≤ $12.3457")]
)
def test_a_figure_ends_below_the_end_of_its_name(name: str, value: str) -> None:
    (line,) = iterate_job_lines(replace(LISTED_JOB, title="Compare"), 160)

    assert format_header(160).index(name) + len(name) == line.index(value) + len(value)
    assert format_header(160).index("request") == line.index("Compare")
