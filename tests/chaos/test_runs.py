"""Short chaos runs: one fixed seed, every failpoint, and a control run that must fail.

`make chaos` takes a random seed.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from handoff_queue.chaos.job_generator import EVERYTHING
from handoff_queue.chaos.report import broken_of, table_of
from handoff_queue.chaos.run import Options, run, try_failpoints
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
