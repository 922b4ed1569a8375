"""Short chaos runs: one fixed seed, every failpoint, and a control run that must fail.

`make chaos` takes a random seed.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from handoff_queue.chaos.celery_gaps import OURS_WITH_HOLES, PLAIN_WITH_HOLES, Hole
from handoff_queue.chaos.celery_system import PLAIN
from handoff_queue.chaos.failpoint_cases import Blow
from handoff_queue.chaos.fleet import Size
from handoff_queue.chaos.job_generator import EVERYTHING
from handoff_queue.chaos.report import broken_of, table_of
from handoff_queue.chaos.run import (
    Options,
    holes_of,
    run,
    try_failpoints,
    try_failpoints_in_plain_celery,
)
from handoff_queue.shared.types.job_options import Mode

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(600)]

SEED = 20_261_122
ALL = len(EVERYTHING.shapes)
"""Jobs: one of every shape."""


def quiet(_line: str) -> None:
    """Nobody watches."""


def test_a_run_without_faults_makes_exactly_the_planned_calls_and_prints_json() -> None:
    command = [
        sys.executable,
        "-m",
        "handoff_queue.supervisor.cli.main",
        "chaos",
        "--jobs",
        str(ALL),
        "--kills",
        "0",
        "--seed",
        str(SEED),
        "--json",
    ]

    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    said = json.loads(done.stdout)
    assert (said["seed"], said["jobs"], said["kept"]) == (SEED, ALL + 1, done.returncode == 0), (
        "one follows on another"
    )
    assert said["kept"], said
    assert (said["calls_made"], said["calls_repeated"]) == (said["calls_needed"], 0)
    assert set(said["modes"]) == set(Mode)
    assert said["child_jobs"] >= 4


def test_kills_at_random_break_no_promise() -> None:
    seed = SEED

    books = run(Options(seed, jobs=14, kills=14, alone=2), quiet)

    assert broken_of(books) == [], f"seed {seed}\n{table_of(books)}"
    assert books.stored_at, "replies are seen in the store while their handoffs are at work"
    assert books.stored_at.keys() <= {call.key for call in books.calls}


def test_no_failpoint_breaks_a_promise() -> None:
    seed = SEED

    books = try_failpoints(Options(seed), quiet)

    assert broken_of(books) == [], f"seed {seed}\n{table_of(books)}"


def test_the_control_makes_exactly_the_calls_of_the_plan_too_and_ends_every_job_where_nothing_fails() -> (
    None
):
    books = run(Options(SEED, jobs=10, kills=0, size=Size(2, 2)), quiet, PLAIN)

    assert broken_of(books) == [], table_of(books)
    assert (books.made, books.repeated) == (books.needed, 0), table_of(books)


def test_plain_chords_lose_jobs_where_a_process_is_killed_at_a_failpoint() -> None:
    books = try_failpoints_in_plain_celery(Options(SEED), quiet, [Blow.KILL, Blow.STOP])

    assert not books.not_reached, table_of(books)
    assert "jobs lost" in broken_of(books), table_of(books)


def test_plain_chords_pay_again_where_an_answer_is_lost() -> None:
    books = try_failpoints_in_plain_celery(
        Options(SEED), quiet, [Blow.DROP]
    )  # No kills: a handoff that a kill loses cannot finish twice.

    assert not books.not_reached, table_of(books)
    assert {"handoffs with two results", "calls repeated that were not in the air"} <= set(
        broken_of(books)
    ), table_of(books)


def test_a_job_ends_in_every_hole_of_chords() -> None:
    found = holes_of(OURS_WITH_HOLES, quiet)

    assert all(one.calm and one.was_hit and one.ended for one in found.values()), found


def test_plain_chords_are_stuck_in_every_hole() -> None:
    stuck = set[Hole]()
    for _ in range(
        9
    ):  # Celery's own redelivery may save a chord in one try, so each hole gets several tries.
        found = holes_of(PLAIN_WITH_HOLES, quiet)
        assert all(one.calm for one in found.values()), found
        stuck |= {hole for hole, one in found.items() if one.was_hit and not one.ended}
        if stuck == set(Hole):
            break

    assert stuck == set(Hole)
