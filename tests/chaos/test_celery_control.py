"""The control of `handoff chaos`: plain Celery fails where this project goes on."""

from __future__ import annotations

import pytest

from benchmarks.celery_control.gaps import OURS_WITH_GAPS, PLAIN_WITH_GAPS, Gap
from benchmarks.celery_control.run import try_failpoints, try_gaps
from benchmarks.celery_control.system import PLAIN, ROOT
from handoff_queue.chaos.failpoint_cases import Blow
from handoff_queue.chaos.fleet import Size
from handoff_queue.chaos.report import broken_of, table_of
from handoff_queue.chaos.run import Options, run

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(600)]

SEED = 20_261_122


@pytest.fixture(autouse=True)
def _importable_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes of the control import `benchmarks`."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def quiet(_line: str) -> None:
    """Print nothing."""


def test_the_control_makes_exactly_the_calls_of_the_plan_too_and_ends_every_job_where_nothing_fails() -> (
    None
):
    books = run(Options(SEED, jobs=10, kills=0, size=Size(2, 2)), quiet, PLAIN)

    assert broken_of(books) == [], table_of(books)
    assert (books.made, books.repeated) == (books.needed, 0), table_of(books)


def test_plain_chords_lose_jobs_where_a_process_is_killed_at_a_failpoint() -> None:
    books = try_failpoints(Options(SEED), quiet, [Blow.KILL, Blow.STOP])

    assert not books.not_reached, table_of(books)
    assert "jobs lost" in broken_of(books), table_of(books)


def test_plain_chords_pay_again_where_an_answer_is_lost() -> None:
    books = try_failpoints(
        Options(SEED), quiet, [Blow.DROP]
    )  # No kills: a handoff that a kill loses cannot finish twice.

    assert not books.not_reached, table_of(books)
    assert {"handoffs with two results", "calls repeated that were not in the air"} <= set(
        broken_of(books)
    ), table_of(books)


def test_a_job_ends_in_every_gap_of_chords() -> None:
    found = try_gaps(OURS_WITH_GAPS, quiet)

    assert all(one.calm and one.was_hit and one.ended for one in found.values()), found


def test_plain_chords_are_stuck_in_every_gap() -> None:
    stuck = set[Gap]()
    for _ in range(
        9
    ):  # Celery's own redelivery may save a chord in one try, so each gap gets several tries.
        found = try_gaps(PLAIN_WITH_GAPS, quiet)
        assert all(one.calm for one in found.values()), found
        stuck |= {gap for gap, one in found.items() if one.was_hit and not one.ended}
        if stuck == set(Gap):
            break

    assert stuck == set(Gap)
