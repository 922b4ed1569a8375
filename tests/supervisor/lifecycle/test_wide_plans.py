"""A decision about all steps of a plan takes a constant time per step."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import pytest

from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.plan import Patch, Plan
from handoff_queue.supervisor.lifecycle.commands import AskApproval
from handoff_queue.supervisor.lifecycle.decide import decide
from handoff_queue.supervisor.lifecycle.replanning import apply_patch
from handoff_queue.supervisor.lifecycle.step_conditions import with_confidence
from tests.doubles.simulated_job import SimulatedJob, a_plan

FEW, MANY = 500, 8_000
GROWTH = MANY / FEW
RUNS_OF_FEW, RUNS_OF_MANY = 20, 5
"""Runs of which the fastest counts. One run with many steps is as long as 20 with few."""
MARGIN = 6
"""A time with the square of the number is `GROWTH` times too long; caches take a factor of 2."""


def independent_steps(count: int) -> Plan:
    return a_plan(**{f"s{number}": "" for number in range(count)})


def steps_to_approve(count: int) -> Plan:
    plan = independent_steps(count)
    steps = [step.model_copy(update={"approve": True}) for step in plan.steps]
    return plan.model_copy(update={"steps": tuple(steps)})


def job_with(plan: Plan) -> SimulatedJob:
    most = len(plan.steps)
    job = SimulatedJob(limits=JobLimits(max_handoffs=most, max_steps=most, max_turns=None))
    job.advance()
    job.make_plan(plan)
    return job


def decision_on_approvals(count: int) -> Callable[[], object]:
    job = job_with(steps_to_approve(count))
    (command,) = job.next_commands()
    assert isinstance(command, AskApproval)
    assert len(command.steps) == count
    observations = job.observations()
    return lambda: decide(job.state, observations, job.now)


def last_patch(count: int) -> Callable[[], object]:
    """Half of the steps have begun."""
    plan = independent_steps(count)
    unbegun = tuple(plan.by_id)[count // 2 :]
    patch = Patch(finalize=True)
    assert apply_patch(plan, patch, unbegun, count).dropped == unbegun
    return lambda: apply_patch(plan, patch, unbegun, count)


def tasks_of_steps(count: int) -> Callable[[], object]:
    plan = independent_steps(count)
    return lambda: [with_confidence(plan, step, "Do it all.") for step in plan.steps]


def best_cpu_s(work: Callable[[], object], runs: int) -> float:
    """Return the least processor time in seconds of some runs."""
    took: list[float] = []
    gc.disable()
    try:
        for _ in range(runs):
            started = time.process_time()
            work()
            took.append(time.process_time() - started)
    finally:
        gc.enable()
    return min(took)


@pytest.mark.slow
@pytest.mark.parametrize(
    "work_on",
    [decision_on_approvals, last_patch, tasks_of_steps],
    ids=lambda work: work.__name__,
)
def test_the_time_grows_with_the_number_of_steps_and_not_with_its_square(
    work_on: Callable[[int], Callable[[], object]],
) -> None:
    few = best_cpu_s(work_on(FEW), RUNS_OF_FEW)
    many = best_cpu_s(work_on(MANY), RUNS_OF_MANY)

    assert many < MARGIN * GROWTH * few
