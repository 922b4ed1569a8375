"""The supervisor's cost of a step does not grow with the number of steps. The tests count commands
and bytes of Redis, which do not depend on other load.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest

from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.workflows import Workflow
from tests.supervisor.shell import Shell, running_shell
from tests.supervisor.workflows.workflow_files import (
    ROW_STEP,
    UNREVIEWED,
    make_workflow,
    numbered_rows,
)

FEW, MORE, MANY = 20, 120, 200
RESULTS_PER_EVALUATION = 10
EVALUATIONS = 10
MAX_FURTHER_CALLS = 1_200
"""Function calls that other causes may add to the evaluations: two evaluations may read the
announcements of workers again, which takes 592 calls. A loop over all steps adds 1,800 calls.
"""
FAN_IN = f"""
    {ROW_STEP}
    id: sum, specialist: researcher, depends_on: [look], task: Sum it up.
"""
IN_PAIRS = f"""
    {ROW_STEP}
    id: tell, specialist: researcher, for_each: rows, depends_on: [look], task: 'Tell of {{name}}.'
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Commands and bytes of Redis that the supervisor needs for one row."""

    commands: float
    bytes_in: float
    bytes_out: float


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    with running_shell(redis_url, "researcher") as supervisor:
        yield supervisor


def redis_counters(shell: Shell) -> tuple[int, int, int]:
    stats = shell.store.connection.redis.info("stats")
    return (
        stats["total_commands_processed"],
        stats["total_net_input_bytes"],
        stats["total_net_output_bytes"],
    )


def cost_of(shell: Shell, definition: Workflow, count: int) -> Cost:
    """Run a job with `count` rows to its end, with an evaluation after every few results."""
    job_id = shell.jobs.submit(
        Request("Look at them all.", workflow=definition, items=numbered_rows(count))
    )
    spent = [cost_of_evaluation(shell, job_id)]
    while open_now := shell.open(job_id):
        for event in open_now[:RESULTS_PER_EVALUATION]:
            shell.do(job_id, event)
        spent.append(cost_of_evaluation(shell, job_id))
    assert shell.jobs.info(job_id).status.has_ended
    return Cost(*(sum(each) / count for each in zip(*spent, strict=True)))


def cost_of_evaluation(shell: Shell, job_id: JobId) -> tuple[int, ...]:
    before = redis_counters(shell)
    shell.advance(job_id)
    return tuple(after - was for after, was in zip(redis_counters(shell), before, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("steps", [FAN_IN, IN_PAIRS], ids=["a fan-in of all", "pairs"])
def test_a_row_of_120_costs_the_same_as_a_row_of_20(
    shell: Shell, tmp_path: Path, steps: str
) -> None:
    definition = make_workflow(tmp_path, steps, UNREVIEWED)
    cost_of(shell, definition, FEW)  # opens the connections and loads the scripts

    few, more = cost_of(shell, definition, FEW), cost_of(shell, definition, MORE)

    assert more.commands <= 1.1 * few.commands
    assert more.bytes_in <= 1.1 * few.bytes_in
    assert more.bytes_out <= 1.1 * few.bytes_out


def calls_of_evaluations(shell: Shell, definition: Workflow, count: int) -> int:
    """Return the function calls of several evaluations of a job with `count` rows, each after one
    result.
    """
    job_id, calls = (
        shell.jobs.submit(
            Request("Look at them all.", workflow=definition, items=numbered_rows(count))
        ),
        0,
    )
    shell.advance(job_id)

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    for event in shell.open(job_id)[:EVALUATIONS]:
        shell.do(job_id, event)
        sys.setprofile(note)
        try:
            shell.advance(job_id)
        finally:
            sys.setprofile(None)
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("steps", [FAN_IN, IN_PAIRS], ids=["a fan-in of all", "pairs"])
def test_an_evaluation_after_one_result_does_the_same_work_with_200_rows_as_with_20(
    shell: Shell, tmp_path: Path, steps: str
) -> None:
    """A loop over all steps, or over all open steps, would call a function for each step in every
    evaluation.
    """
    definition = make_workflow(tmp_path, steps, UNREVIEWED)
    calls_of_evaluations(shell, definition, FEW)  # opens the connections and loads the scripts

    # On a busy machine, some evaluations also read the announcements of workers again.
    few = min(calls_of_evaluations(shell, definition, FEW) for _ in range(3))
    tries = (calls_of_evaluations(shell, definition, MANY) for _ in range(3))

    assert any(many <= few + MAX_FURTHER_CALLS for many in tries)
