"""A job with random patches ends within its limits, and no step waits for the replanner."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handoff_queue.shared.types.events import RetryRequested
from handoff_queue.shared.types.job_options import Mode
from tests.doubles.random_job import RandomJob
from tests.property_settings import draws


@pytest.mark.slow
@draws(150)
@given(st.integers(0, 10**9))
def test_a_job_with_any_patches_ends_and_keeps_its_invariants(seed: int) -> None:
    job = RandomJob(Random(seed), Mode.ADAPTIVE)
    job.run()
    job.check_end()


@pytest.mark.slow
@example(564992150)  # an input step after a step was dropped
@example(618681198)  # a retry at the same time as the work before it
@draws(40)
@given(st.integers(0, 10**9))
def test_every_retry_of_a_random_adaptive_job_ends(seed: int) -> None:
    job = RandomJob(Random(seed), Mode.ADAPTIVE)
    for _ in range(3):
        job.run()
        job.check_end()
        from_step = job.dice.choice([None, *sorted(job.state.steps)])
        job.redo_steps |= {from_step} if from_step else set()
        job.append(
            RetryRequested(
                from_step=from_step,
                fills_gaps=job.dice.random() < 0.3,
            )
        )
        job.runs += 1
