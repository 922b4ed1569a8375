"""Short chaos runs with one fixed seed: without faults, and with random kills.

`make chaos` takes a random seed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from handoff_queue.chaos.job_generator import EVERYTHING
from handoff_queue.chaos.report import find_broken_promises, format_table
from handoff_queue.chaos.run import Options, run
from handoff_queue.shared.local.fork_server import ForkServer
from handoff_queue.shared.settings.agent_sdk_cli import find_agent_sdk_fault
from handoff_queue.shared.types.job_options import Mode
from tests import forked_processes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SEED = 20_261_122
ALL_SHAPES = len(EVERYTHING.shapes)
"""Number of jobs with one of every shape."""


def discard_line(_line: str) -> None:
    """Discard a line of progress."""


def test_a_run_without_faults_makes_exactly_the_planned_calls_and_prints_json(
    tmp_path: Path, fork_server: ForkServer | None
) -> None:
    command = [sys.executable, "-P", "-m", "handoff_queue.supervisor.cli.main", "chaos"]
    options = ["--jobs", str(ALL_SHAPES), "--kills", "0", "--seed", str(SEED), "--json"]

    line = forked_processes.with_forked_children([*command, *options], fork_server)
    done = forked_processes.run(line, os.environ, tmp_path, "", 300, fork_server)

    report = json.loads(done.stdout)
    assert (report["seed"], report["jobs"], report["kept"]) == (
        SEED,
        ALL_SHAPES + 3,
        done.returncode == 0,
    ), "a job follows another, a job finds a note, and a job is a fork"
    assert report["kept"], report
    assert (report["calls_made"], report["calls_repeated"]) == (report["calls_needed"], 0)
    assert set(report["modes"]) == set(Mode)
    assert report["child_jobs"] >= 4
    did = report["api"]
    assert did["questions_answered"] >= 4
    assert min(did["messages_taken"], did["jobs_of_schedules"], did["events_followed"]) > 0
    assert did["servers_that_answered"] == 2
    features = report["features"]
    assert features["calls_that_a_model_turned_away"] > 0
    assert features["reservations_seen"] > 0
    assert features["calls_in_batches"] > 0
    assert features["requests_that_the_provider_shortened"] > 0
    assert features["summaries_by_the_provider"] == 1
    assert features["calls_of_shared_runs_in_batches"] > 0
    has_the_extra = not find_agent_sdk_fault()
    assert (features["calls_through_the_claude_agent_sdk"] >= 3) == has_the_extra
    assert (features["notes"], features["jobs_that_found_a_note"], features["forks"]) == (1, 1, 1)


@pytest.mark.alone
@pytest.mark.xdist_group("others")
def test_random_kills_break_no_promise(fork_server: ForkServer | None) -> None:
    seed = SEED
    options = Options(seed, jobs=14, kills=14, alone=2, pause_s=(0.1, 0.8), fork_server=fork_server)

    records = run(options, discard_line)

    assert find_broken_promises(records) == [], f"seed {seed}\n{format_table(records)}"
    assert records.stored_at, "the run sees replies in the store while their handoffs run"
    assert records.stored_at.keys() <= {call.key for call in records.calls}
