"""A reviewer that insists, and the judge's ruling."""

from __future__ import annotations

from random import Random

from handoff_queue.shared.types.events import Arbitrated, HandoffIssued, RetryRequested, Reviewed
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.review import Decision, Revision, Ruling, Rulings, Side, Verdict
from handoff_queue.supervisor.lifecycle.arbitration import quarrels
from tests.doubles.simulated_job import SimulatedJob


def insist(job: SimulatedJob, *repeats: str, **problems: str) -> None:
    """REVISE; `repeats` were asked for before."""
    verdict = Verdict(
        verdict=Decision.REVISE,
        revisions=tuple(Revision(step=StepId(one), problem=said) for one, said in problems.items()),
    )
    result = job.finish("assessor", output=verdict.model_dump(mode="json"))
    again, number = tuple(map(StepId, repeats)), len(job.state.rounds) + 1
    job.append(
        Reviewed(
            round=number,
            decision=Decision.REVISE,
            result=result,
            steps=tuple(map(StepId, problems)),
            repeats=again,
        )
    )


def rule(job: SimulatedJob, **sides: Side) -> None:
    said = Rulings(
        rulings=tuple(
            Ruling(step=StepId(step), right=side, why="It stands there.")
            for step, side in sides.items()
        )
    )
    result = job.finish("judge", output=said.model_dump(mode="json"))
    named = {
        side: tuple(StepId(step) for step, right in sides.items() if right is side) for side in Side
    }
    job.append(Arbitrated(result=result, writer=named[Side.WRITER], reviewer=named[Side.REVIEWER]))


def insist_randomly(job: SimulatedJob, dice: Random) -> None:
    """Let the reviewer insist on some steps, perhaps on steps that it sent back before."""
    steps = sorted(job.state.steps)
    named = dice.sample(steps, dice.randint(1, len(steps)))
    before = {step for review in job.state.rounds_now for step in review.steps}
    insist(
        job,
        *(step for step in named if step in before and dice.random() < 0.7),
        **dict.fromkeys(named, "wrong"),
    )


def rule_randomly(job: SimulatedJob, dice: Random) -> None:
    """Let the judge settle some of the points, or fail."""
    if dice.random() < 0.2:
        job.append(Arbitrated(result=job.finish("judge", "failed"), problem="the judge failed"))
    else:
        rule(job, **{step: dice.choice(list(Side)) for step in quarrels(job.state)})


def check_disputed_reviews(job: SimulatedJob) -> None:
    """Check that the judge is asked once for all disputes of a job, or of its latest retry."""
    asked = sum(
        event.assigned_to == "judge" and event.closes for event in job.events(HandoffIssued)
    )
    assert len(job.events(Arbitrated)) <= asked <= 1 + len(job.events(RetryRequested))
