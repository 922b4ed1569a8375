"""Random patches at random times: the job ends within its caps, and no step waits for the
replanner.
"""

from __future__ import annotations

from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from handoff_queue.shared.types.events import RetryRequested
from handoff_queue.shared.types.job_options import Mode
from tests.doubles.world import World
from tests.draws import draws


@draws(150)
@given(st.integers(0, 10**9))
def test_whatever_is_proposed_the_job_ends_and_keeps_its_rules(seed: int) -> None:
    world = World(Random(seed), Mode.ADAPTIVE)
    world.run()
    world.check_end()


@example(564992150)  # a helper after a step was dropped
@example(618681198)  # a retry in the same instant as the work before it
@draws(40)
@given(st.integers(0, 10**9))
def test_a_retry_of_an_adaptive_job_ends_too(seed: int) -> None:
    world = World(Random(seed), Mode.ADAPTIVE)
    for _ in range(3):
        world.run()
        world.check_end()
        from_step = world.dice.choice([None, *sorted(world.state.steps)])
        world.named |= {from_step} if from_step else set()
        world.happens(
            RetryRequested(
                from_step=from_step,
                whole=world.dice.random() < 0.3,
            )
        )
        world.runs += 1
