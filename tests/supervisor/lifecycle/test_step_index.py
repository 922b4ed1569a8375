"""A decision reads only the steps that may need a command, not all steps. The index after each
event equals an index that is built from all steps.
"""

from __future__ import annotations

import sys
from random import Random
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.types.events import (
    AbandonedStep,
    Event,
    JobEnded,
    JobStatus,
    NeedsResolved,
    PlanMade,
    RecordedEvent,
    RetryRequested,
    StepOutline,
    StepRetry,
    StepsAbandoned,
    StepsTriedAgain,
)
from handoff_queue.shared.types.handoff import ResultStatus, make_ref
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.step import Join
from handoff_queue.supervisor.lifecycle.reduce import fold_on
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.lifecycle.step_index import compute_step_index
from tests.doubles.jobs import submission
from tests.doubles.random_job import RandomJob
from tests.doubles.simulated_job import SimulatedJob
from tests.property_settings import draws
from tests.supervisor.lifecycle.test_long_journals import finished_event, issued_event


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


MAX_STEPS = 60
"""More changes than a persistent map of this size keeps in its top layer."""


def check_index(first: JobState, journal: list[RecordedEvent], dice: Random) -> None:
    """Check the index after each run of events. `first` is the state after the first event."""
    state, left = first, journal[1:]
    assert state.step_index == compute_step_index(state)
    while left:
        count = dice.choice([1, 1, 2, 3, 20])
        state, left = fold_on(state, left[:count]), left[count:]
        assert state.step_index == compute_step_index(state)


@pytest.mark.slow
@draws(80)
@given(st.integers(0, 10**9))
def test_the_index_is_correct_in_every_state_of_any_job(seed: int) -> None:
    job = RandomJob(Random(seed))
    first = job.state
    for _ in range(2):
        job.run()
        job.append(
            RetryRequested(
                fills_gaps=job.dice.random() < 0.5, keeps_results=job.dice.random() < 0.5
            )
        )
        job.runs += 1

    check_index(first, job.journal, job.dice)


@draws(60)
@given(st.integers(0, 10**9))
def test_the_index_is_correct_in_every_state_of_a_large_plan_in_any_order(seed: int) -> None:
    dice = Random(seed)
    outlines = random_outlines(dice)
    attempts = dict.fromkeys((outline.id for outline in outlines), 0)
    events: list[Event] = [PlanMade(plan=make_ref("a plan"), steps=outlines)]
    for _ in range(3 * len(outlines)):
        events.append(random_event(dice, attempts))
    events += [JobEnded(status=JobStatus.PARTIAL), RetryRequested(), random_event(dice, attempts)]

    journal = [
        RecordedEvent(version, float(version), event)
        for version, event in enumerate([submission(), *events], start=1)
    ]
    check_index(SimulatedJob().state, journal, dice)


def random_outlines(dice: Random) -> tuple[StepOutline, ...]:
    """Return steps in rows, pairs, wide fan-ins, chains or joins. A step may depend on any
    earlier step.
    """
    names = [StepId(f"s{n}") for n in range(dice.randint(1, MAX_STEPS))]
    outlines = []
    for n, name in enumerate(names):
        before = tuple(dice.sample(names[:n], min(n, dice.choice([0, 0, 1, 1, 2, 30]))))
        join = Join(at_least=1) if before and dice.random() < 0.2 else None
        outlines.append(StepOutline(id=name, specialist="researcher", depends_on=before, join=join))
    return tuple(outlines)


def random_event(dice: Random, attempts: dict[StepId, int]) -> Event:
    """Return an event about one step or several steps. `attempts` counts the handoffs of each
    step.
    """
    step = dice.choice(sorted(attempts))
    some = dice.sample(sorted(attempts), min(len(attempts), dice.choice([1, 2, 30])))
    match dice.randrange(10):
        case 0:
            return StepsAbandoned(
                steps=tuple(
                    AbandonedStep(step=step_id, result=make_ref("nothing")) for step_id in some
                ),
                why="it is late",
            )
        case 1:
            return StepsTriedAgain(steps=tuple(StepRetry(step=step_id) for step_id in some))
        case 2:
            return NeedsResolved(
                answered=tuple(some[::2]), given_up=tuple(some[1::2]), result=make_ref("an answer")
            )
        case 3 | 4 | 5:
            attempts[step] += 1
            return issued_event(step, attempts[step])
        case _:
            return finished_event(step, attempts[step], dice.choice(list(ResultStatus)))


def test_a_new_job_has_an_empty_index() -> None:
    assert SimulatedJob().state.step_index == compute_step_index(SimulatedJob().state)
