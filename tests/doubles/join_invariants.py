"""Invariants of joins: when a step may begin, and when it must begin."""

from __future__ import annotations

from handoff_queue.shared.types.ids import StepId
from handoff_queue.supervisor.lifecycle.state import Phase, StepState, StepStatus
from tests.doubles.effect_invariants import waits_for_review_or_person
from tests.doubles.simulated_job import SimulatedJob


def parts_of(step: StepState) -> list[StepId]:
    """Return the dependencies to which the join applies. Input steps are required in any case."""
    return [part for part in step.outline.depends_on if part not in step.outline.helpers]


def check_step_begin(job: SimulatedJob, step: StepState) -> None:
    """Check that the step has its inputs, and that its join allows the start without the others."""
    assert not uncertain_parts(job, step), "the step uses no result that may still change"
    join, parts = step.outline.join, parts_of(step)
    assert all(job.step(helper).status is StepStatus.SETTLED for helper in step.outline.helpers), (
        "all input steps of the step have ended"
    )
    all_have_ended = all(job.step(part).status is StepStatus.SETTLED for part in parts)
    if join is None or job.state.waits_for_all:
        assert all_have_ended
        return
    usable = {part for part in parts if job.step(part).is_usable}
    assert usable >= {*join.must}
    assert len(usable) >= join.at_least
    is_late = join.within_s is not None and any(
        job.now >= job.step(part).began_at + join.within_s for part in parts
    )
    assert is_late or all_have_ended or (join.enough is not None and len(usable) >= join.enough)


def check_ready_steps_begin(job: SimulatedJob) -> None:
    """Check that no waiting step has its inputs and a join that allows its start."""
    for step in job.state.steps.values():
        if uncertain_parts(job, step) or waits_for_review_or_person(job, step.outline.id, step):
            continue
        join, parts = step.outline.join, parts_of(step)
        waits_for_input = any(
            job.step(helper).status is not StepStatus.SETTLED for helper in step.outline.helpers
        )
        if waits_for_input:
            continue
        if (
            step.status is StepStatus.WAITING
            and join
            and join.enough
            and not job.state.waits_for_all
        ):
            usable = {part for part in parts if job.step(part).is_usable}
            assert len(usable) < join.enough or not usable >= {*join.must}
        if (
            step.status is StepStatus.WAITING
            and join is None
            and job.state.phase is Phase.WORKING
            and not job.state.rejected
        ):
            check_wait(job, step)


def uncertain_parts(job: SimulatedJob, step: StepState) -> list[StepId]:
    """Return the dependencies with a kept result that an unfinished step may still change."""
    unsettled = frozenset(
        name
        for name, step_state in job.state.steps.items()
        if step_state.status is not StepStatus.SETTLED
    )
    may_change = job.state.find_downstream(unsettled)
    return [
        part
        for part in step.outline.depends_on
        if part in job.state.kept.steps and part in may_change
    ]


def check_wait(job: SimulatedJob, step: StepState) -> None:
    """Check that the step waits for an open part.

    If no part is usable, an open role must still be able to change the plan.
    """
    parts = [job.step(part) for part in parts_of(step)]
    if all(part.status is StepStatus.SETTLED for part in parts):
        assert parts
        assert any(handoff.is_role_handoff for handoff in job.state.open.values())
        assert not any(part.is_usable for part in parts)
