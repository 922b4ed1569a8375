"""Invariants of steps with effects: no effect happens twice, or before the approval."""

from __future__ import annotations

from random import Random

from handoff_queue.shared.types.condition_syntax import When
from handoff_queue.shared.types.events import HandoffFinished, HandoffIssued, StepsAbandoned
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.plan_validation import find_steps_after_review
from handoff_queue.shared.types.step import AFTER_REVIEW, Step
from handoff_queue.supervisor.lifecycle.helper_steps import find_helpers
from handoff_queue.supervisor.lifecycle.review_arbitration import is_accepted
from handoff_queue.supervisor.lifecycle.side_effects import (
    find_review_dependents,
    has_open_condition,
    is_passed,
)
from handoff_queue.supervisor.lifecycle.state import StepState, StepStatus
from tests.doubles.simulated_job import SimulatedJob


def with_random_conditions(dice: Random, plan: Plan) -> Plan:
    """Return the plan with a few random steps that wait for the review, a person or a condition."""
    steps = tuple(_marked(dice, step) for step in plan.steps)
    if len(find_steps_after_review(steps)) == len(steps):
        return plan
    return Plan.model_validate({**dict(plan), "steps": steps})


def _marked(dice: Random, step: Step) -> Step:
    marks = {
        "after": AFTER_REVIEW if dice.random() < 0.15 else None,
        "approve": dice.random() < 0.15 or None,
        "when": _condition(dice, step) if step.depends_on and dice.random() < 0.15 else None,
    }
    return step.model_copy(update=marks)


def _condition(dice: Random, step: Step) -> When:
    """Return a random condition on the end of a dependency. Its outcome may be an error."""
    before = dice.choice(step.depends_on)
    texts = [f'{before}.status == "ok"', f'{before}.status != "ok"', f"{before}.output.x == 1"]
    return When(text=dice.choice(texts), steps={before: before})


def check_acts_once(job: SimulatedJob, step_id: StepId, named: set[StepId]) -> None:
    """Check that the step has had no effect, or that a person repeats it by name.

    `named`: steps that a person repeats by name. The function removes this step.
    """
    step = job.step(step_id)
    assert not may_have_acted(job, step_id) or step_id in named, f"{step_id} would act twice"
    named.discard(step_id)
    check_is_covered(job, step_id, step)


def check_is_covered(job: SimulatedJob, step_id: StepId, step: StepState) -> None:
    """Check that the condition, the review and the approval of a starting step are complete."""
    assert not has_open_condition(step)
    if step_id in find_review_dependents(job.state):
        assert job.state.review_over
        assert is_accepted(job.state)
    wanted = {*job.state.submitted.approvals.what} & {ApprovalOf.ANSWER, ApprovalOf.RESEARCH}
    acts = step.outline.specialist in job.acting and step_id not in find_helpers(job.state)
    if step.outline.approve or (wanted and acts):
        assert step.is_approved


def may_have_acted(job: SimulatedJob, step_id: StepId) -> bool:
    """Return whether the latest attempt at a step may have run a tool with effects."""
    issued = [event for event in job.events(HandoffIssued) if event.step_id == step_id]
    if not issued or not issued[-1].acts:
        return False
    ends = [
        event for event in job.events(HandoffFinished) if event.handoff_id == issued[-1].handoff_id
    ]
    if ends:
        return bool(ends[0].acted)
    return any(
        step_id in {abandoned.step for abandoned in event.steps}
        for event in job.events(StepsAbandoned)
    )


def waits_for_review_or_person(job: SimulatedJob, step_id: StepId, step: StepState) -> bool:
    """Return whether a waiting step waits for the review or for an approval."""
    if step.status is not StepStatus.WAITING:
        return False
    question = job.state.question
    is_asked = question is not None and question.what is ApprovalOf.STEP
    waits = step_id in find_review_dependents(job.state) and not is_passed(job.state)
    return waits or is_asked


def acts_randomly(
    dice: Random, job: SimulatedJob, step_id: StepId, status: ResultStatus
) -> bool | None:
    """Return the `acted` of the result: whether a tool with effects may have run."""
    issued = next(handoff for handoff in job.state.open.values() if handoff.step_id == step_id)
    if not issued.acts:
        return None
    return dice.random() < (0.5 if status is ResultStatus.FAILED else 0.8) or None
