"""Claims with a subject, an attribute and a value, and a judge's settlements of conflicts."""

from __future__ import annotations

from random import Random

from handoff_queue.shared.types.events import ConflictsFound, HandoffIssued, Judged, RetryRequested
from handoff_queue.shared.types.handoff import Citation, Claim
from handoff_queue.shared.types.review import Settlement, Settlements
from handoff_queue.supervisor.lifecycle.conflict_resolution import find_disputes, format_disputes
from tests.doubles.simulated_job import SimulatedJob


def a_claim(
    name: str,
    value: str,
    unit: str | None = None,
    subject: str = "Eiffel Tower",
    attribute: str = "height",
    date: str = "2022",
) -> Claim:
    """Return a claim with its own source: `a_claim("a.c1", "330", "m")`."""
    sentence = f"{subject}: {attribute}: {value} {unit or ''}".strip()
    source = Citation(
        source=f"{name.partition('.')[0]}.md",
        digest=name.encode().hex().ljust(64, "0"),
        start=0,
        end=len(sentence),
        quote=sentence,
    )
    return Claim(
        id=name,
        text=f"{sentence}.",
        sources=(source,),
        subject=subject,
        attribute=attribute,
        value=value,
        unit=unit,
        date=date,
    )


def settle_conflicts(job: SimulatedJob, **accepted: str) -> None:
    """Let the judge accept claims for each conflict.

    `settle_conflicts(job, k1="a.c1", k2="")` accepts a.c1 for the conflict k1, and leaves k2 open.
    """
    settlements = tuple(
        Settlement(conflict=name, stands=tuple(claims.split()), why="Measured.")
        for name, claims in accepted.items()
    )
    result = job.finish(
        "judge", output=Settlements(settlements=settlements).model_dump(mode="json")
    )
    job.append(
        Judged(
            result=result,
            settled=tuple(settlement.conflict for settlement in settlements if settlement.stands),
        )
    )


def check_disputes(job: SimulatedJob) -> None:
    """Check that the judge settled each conflict, or that the answer names it as disputed.

    The judge is asked at most once for each round with conflicts, and once for each retry.
    """
    asked = sum(
        event.assigned_to == "judge" and not event.closes for event in job.events(HandoffIssued)
    )
    retries = len(job.events(RetryRequested))
    assert asked <= sum(bool(event.conflicts) for event in job.events(ConflictsFound)) + retries, (
        "once a round"
    )
    disputes = find_disputes(job.state, job.texts)
    settled = job.state.judged.settled if job.state.judged else ()
    assert {dispute.conflict.id for dispute in disputes if dispute.is_settled} == {*settled}
    text = format_disputes(disputes, "")
    for dispute in disputes:
        assert dispute.is_settled or dispute.format_line(has_markers=True) in text


def settle_randomly(job: SimulatedJob, dice: Random) -> None:
    """Let the judge settle some of the conflicts, or fail."""
    assert job.state.conflicts is not None
    if dice.random() < 0.3:
        job.append(Judged(result=job.finish("judge", "failed"), problem="the judge failed"))
    else:
        conflicts = enumerate(job.state.conflicts.conflicts, start=1)
        settle_conflicts(
            job, **{f"k{number}": dice.choice(["", claims[0]]) for number, claims in conflicts}
        )
