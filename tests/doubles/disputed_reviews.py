"""An assessor that repeats its objections, and the judge's rulings on them."""

from __future__ import annotations

from random import Random

from handoff_queue.shared.types.events import Arbitrated, HandoffIssued, RetryRequested, Reviewed
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.review import Decision, Revision, Ruling, Rulings, Side, Verdict
from handoff_queue.supervisor.lifecycle.review_arbitration import find_disagreements
from tests.doubles.simulated_job import SimulatedJob


def send_back(job: SimulatedJob, *repeats: str, **problems: str) -> None:
    """Let the assessor send back steps: `insist(job, "a", a="wrong", b="wrong")`.

    `repeats`: steps whose problem the assessor has named before.
    """
    verdict = Verdict(
        verdict=Decision.REVISE,
        revisions=tuple(
            Revision(step=StepId(name), problem=problem) for name, problem in problems.items()
        ),
    )
    result = job.finish("assessor", output=verdict.model_dump(mode="json"))
    repeated, number = tuple(map(StepId, repeats)), len(job.state.rounds) + 1
    job.append(
        Reviewed(
            round=number,
            decision=Decision.REVISE,
            result=result,
            steps=tuple(map(StepId, problems)),
            repeats=repeated,
        )
    )


def rule_on_disputes(job: SimulatedJob, **sides: Side) -> None:
    """Let the judge rule for the writer or the assessor of each step."""
    rulings = Rulings(
        rulings=tuple(
            Ruling(step=StepId(step), right=side, why="It stands there.")
            for step, side in sides.items()
        )
    )
    result = job.finish("judge", output=rulings.model_dump(mode="json"))
    by_side = {
        side: tuple(StepId(step) for step, right in sides.items() if right is side) for side in Side
    }
    job.append(
        Arbitrated(result=result, writer=by_side[Side.WRITER], assessor=by_side[Side.ASSESSOR])
    )


def insist_randomly(job: SimulatedJob, dice: Random) -> None:
    """Let the assessor insist on some steps, perhaps on steps that it sent back before."""
    steps = sorted(job.state.steps)
    sent_back = dice.sample(steps, dice.randint(1, len(steps)))
    earlier = {step for review in job.state.rounds_now for step in review.steps}
    send_back(
        job,
        *(step for step in sent_back if step in earlier and dice.random() < 0.7),
        **dict.fromkeys(sent_back, "wrong"),
    )


def rule_randomly(job: SimulatedJob, dice: Random) -> None:
    """Let the judge settle some of the points, or fail."""
    if dice.random() < 0.2:
        job.append(Arbitrated(result=job.finish("judge", "failed"), problem="the judge failed"))
    else:
        rule_on_disputes(
            job, **{step: dice.choice(list(Side)) for step in find_disagreements(job.state)}
        )


def check_disputed_reviews(job: SimulatedJob) -> None:
    """Check that the judge is asked once for all disputes of a job, or of its latest retry."""
    asked = sum(
        event.assigned_to == "judge" and event.closes for event in job.events(HandoffIssued)
    )
    assert len(job.events(Arbitrated)) <= asked <= 1 + len(job.events(RetryRequested))
