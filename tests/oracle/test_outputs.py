"""The output of every command on a store of fixed jobs equals its snapshot.

A change of structure must not change the snapshots. After an intended change of a text,
`WRITE_SNAPSHOTS=1 pytest tests/oracle` writes them again, and the commit shows the difference.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path

import pytest

from handoff_queue.supervisor.cli.commands import ENTRIES
from tests.e2e.commands import ROOT, HandoffInProcess
from tests.oracle.fixed_jobs import FixedJobs, fixed_jobs
from tests.oracle.normalized import normalized
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

SNAPSHOTS = Path(__file__).parent / "snapshots"
JOB_COMMANDS = (
    "show JOB --full",
    "show JOB --full --json",
    "result JOB",
    "result JOB --json",
)
JOBS = "team single brief adaptive digest failed retried partial schema cancelled waiting".split()
FLEET_COMMANDS = (
    "list",
    "list --json",
    "list --status waiting,failed",
    "stats",
    "stats --json",
    "specialists",
    "specialists --json",
    "doctor",
    "dead",
    "dead --json",
    "token",
    "token --json",
    "audit",
    "audit --json",
    "audit cancelled",
    "audit cancelled --json",
    "quote",
)
BAD_INPUTS = (
    "shwo",
    "show",
    "show j-000000000000",
    "show nothing",
    "result j-000000000000",
    "watch j-000000000000",
    "cancel j-000000000000",
    "retry j-000000000000",
    "delete j-000000000000",
    "export j-000000000000",
    "trace j-000000000000",
    "submit",
    "submit ''",
    "submit question --docs nowhere",
    "submit question --mode teem",
    "submit question --workflow nothing",
    "submit question --max-usd -1",
    "submit question --timeout 5y",
    "submit question --gates nowhere.yaml",
    "submit question --file nowhere.jsonl",
    "list --status runing",
    "pause nobody",
    "unpause nobody",
    "dead 99",
    "token revoke 99",
    "token create x",
    "audit j-000000000000",
    "quote",
    "eval nowhere.jsonl",
    "compare question",
    "approve j-000000000000",
    "reject j-000000000000",
    "say j-000000000000 Shorter.",
    "fork j-000000000000",
    "golden j-000000000000",
    "memory nothing/here",
    "schedule nothing",
    "keys rotate nobody",
    "worker resercher",
    "run ''",
    "up --flower-port 0",
    "mcp extra",
    "serve --port x",
    "supervisor extra",
    "chaos --seed x",
    "top extra",
    "stats extra",
    "specialists --nothing",
    "doctor extra",
    "help shwo",
)


@pytest.fixture(scope="module")
def store_of_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FixedJobs]:
    with fixed_jobs(tmp_path_factory.mktemp("oracle")) as jobs:
        yield jobs


@pytest.fixture
def jobs(store_of_jobs: FixedJobs, capfd: pytest.CaptureFixture[str]) -> FixedJobs:
    """Return the jobs, with commands in the test process."""
    folder = store_of_jobs.handoff.folder
    return replace(store_of_jobs, handoff=HandoffInProcess(folder, capture=capfd))


def assert_matches_snapshot(name: str, output: str) -> None:
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("WRITE_SNAPSHOTS"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(output)
    difference = unified_diff(path.read_text().splitlines(), output.splitlines(), lineterm="", n=1)
    changes = "\n".join(difference)
    assert not changes, changes


def outputs(jobs: FixedJobs, commands: Iterable[str]) -> str:
    """Return each command with its output."""
    parts = []
    for command in commands:
        arguments = [jobs.ids.get(word, word) for word in shlex.split(command)]
        printed = jobs.run(*arguments).replace(str(ROOT), "<root>")
        parts.append(f"$ handoff {command}\n{printed}\n")
    return normalized("".join(parts), jobs.ids, str(jobs.handoff.folder))


@pytest.mark.parametrize("name", JOBS)
def test_commands_print_the_same_about_a_job(jobs: FixedJobs, name: str) -> None:
    commands = (command.replace("JOB", name) for command in JOB_COMMANDS)
    assert_matches_snapshot(f"jobs/{name}", outputs(jobs, commands))


def test_following_a_job_prints_the_same_lines(jobs: FixedJobs) -> None:
    """The steps of these jobs run one after the other, so the order of the lines is fixed."""
    names = ("single", "brief", "failed", "retried", "partial", "schema", "cancelled")
    assert_matches_snapshot("watch", outputs(jobs, (f"watch {name}" for name in names)))


def test_the_brief_view_of_a_job_is_the_same(jobs: FixedJobs) -> None:
    """These jobs have few handoffs. The brief view of a large job shows only the longest
    handoffs.
    """
    names = ("single", "partial", "failed", "waiting")
    commands = [f"show {name} {option}" for name in names for option in ("", "--json")]
    assert_matches_snapshot("brief_views", outputs(jobs, commands))


def test_an_export_is_the_same(jobs: FixedJobs) -> None:
    assert_matches_snapshot("export", outputs(jobs, ("export retried -o -",)))


def test_commands_print_the_same_about_the_fleet(jobs: FixedJobs) -> None:
    wait_until(
        lambda: "no model call yet" not in jobs.run("doctor"),
        expected="the supervisor's announcement of its model calls",
    )
    assert_matches_snapshot("fleet", outputs(jobs, FLEET_COMMANDS))


def test_bad_input_gets_the_same_lines(jobs: FixedJobs) -> None:
    assert_matches_snapshot("bad_input", outputs(jobs, BAD_INPUTS))


def test_every_command_gets_bad_input() -> None:
    """A new command fails here, until a line of `BAD_INPUTS` has its name."""
    named = {line.split()[0] for line in BAD_INPUTS}

    assert named >= set(ENTRIES)


def test_the_help_of_every_command_is_the_same(jobs: FixedJobs) -> None:
    commands = ("--help", "help", *(f"{name} --help" for name in ENTRIES))
    assert_matches_snapshot("help", outputs(jobs, commands))
