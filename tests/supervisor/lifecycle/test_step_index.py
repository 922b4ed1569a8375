"""A decision reads only the steps that may need a command, not all steps."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from handoff_queue.shared.types.limits import JobLimits
from tests.doubles.simulated_job import SimulatedJob


def calls_of_a_decision(job: SimulatedJob) -> int:
    """Return the number of function calls of a decision without a command."""
    count, observations = 0, job.observations()

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        assert job.next_commands(observations) == ()
    finally:
        sys.setprofile(None)
    return count


def job_of_shape(steps: int, shape: str) -> SimulatedJob:
    """Return a job whose first steps are issued, and a tenth finished. `shape` is the plan's."""
    plan = {f"s{n}": "" for n in range(steps)}
    match shape:
        case "a fan-in of all":
            plan |= {"all": " ".join(plan)}
        case "pairs":
            plan |= {f"t{n}": f"s{n}" for n in range(steps)}
    job = SimulatedJob(JobLimits(max_handoffs=10 * steps))
    job.advance()
    job.make_plan(**plan)
    job.advance()
    for n in range(steps // 10):
        job.finish(f"s{n}")
    job.advance()
    return job


@pytest.mark.parametrize("shape", ["side by side", "a fan-in of all", "pairs"])
def test_a_decision_costs_the_same_with_many_steps_as_with_few(shape: str) -> None:
    """A loop over all steps, or over all open steps, would call a function for each step."""
    few, many = (
        calls_of_a_decision(job_of_shape(20, shape)),
        calls_of_a_decision(job_of_shape(220, shape)),
    )

    assert many <= few
