"""Invariants of every join."""

from __future__ import annotations

from handoff_queue.shared.types.ids import StepId
from handoff_queue.supervisor.lifecycle.state import Phase, StepState, StepStatus
from tests.doubles.effect_invariants import waits_for_review_or_person
from tests.doubles.simulated_job import SimulatedJob


def parts_of(step: StepState) -> list[StepId]:
    """Return the dependencies without input steps, which the step needs under every join."""
    return [one for one in step.outline.depends_on if one not in step.outline.helpers]


def check_step_begin(job: SimulatedJob, step: StepState) -> None:
    """Check that the step has its inputs, and that its join allows the start without the others."""
    assert not uncertain_parts(job, step), "nobody builds on what may yet be done again"
    join, parts = step.outline.join, parts_of(step)
    assert all(job.step(helper).status is StepStatus.SETTLED for helper in step.outline.helpers), (
        "what it needs is not found out yet"
    )
    all_have_ended = all(job.step(part).status is StepStatus.SETTLED for part in parts)
    if join is None or job.state.waits_for_all:
        assert all_have_ended
        return
    usable = {part for part in parts if job.step(part).usable}
    assert usable >= {*join.must}
    assert len(usable) >= join.at_least
    is_late = join.within_s is not None and any(
        job.now >= job.step(part).began_at + join.within_s for part in parts
    )
    assert is_late or all_have_ended or (join.enough is not None and len(usable) >= join.enough)


def check_ready_steps_begin(job: SimulatedJob) -> None:
    for step in job.state.steps.values():
        if uncertain_parts(job, step) or waits_for_review_or_person(job, step.outline.id, step):
            continue
        join, parts = step.outline.join, parts_of(step)
        is_helped = any(
            job.step(helper).status is not StepStatus.SETTLED for helper in step.outline.helpers
        )
        if is_helped:
            continue
        if (
            step.status is StepStatus.WAITING
            and join
            and join.enough
            and not job.state.waits_for_all
        ):
            usable = {part for part in parts if job.step(part).usable}
            assert len(usable) < join.enough or not usable >= {*join.must}
        if (
            step.status is StepStatus.WAITING
            and join is None
            and job.state.phase is Phase.WORKING
            and not job.state.rejected
        ):
            check_wait(job, step)


def uncertain_parts(job: SimulatedJob, step: StepState) -> list[StepId]:
    """Held results that it builds on, above which something has not ended."""
    unsettled = frozenset(
        name for name, one in job.state.steps.items() if one.status is not StepStatus.SETTLED
    )
    may_change = job.state.downstream(unsettled)
    return [
        part
        for part in step.outline.depends_on
        if part in job.state.held.steps and part in may_change
    ]


def check_wait(job: SimulatedJob, step: StepState) -> None:
    """Check that the step waits for an open part.

    If no part is usable, an open role must still be able to change the plan.
    """
    parts = [job.step(part) for part in parts_of(step)]
    if all(part.status is StepStatus.SETTLED for part in parts):
        assert parts
        assert any(handoff.is_of_a_role for handoff in job.state.open.values())
        assert not any(part.usable for part in parts)
