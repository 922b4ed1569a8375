"""Claims in parts, and a judge's word on them."""

from __future__ import annotations

from random import Random

from handoff_queue.shared.types.events import ConflictsFound, HandoffIssued, Judged, RetryRequested
from handoff_queue.shared.types.handoff import Citation, Claim
from handoff_queue.shared.types.review import Settlement, Settlements
from handoff_queue.supervisor.lifecycle.disputes import disputes_of, disputes_section
from tests.doubles.simulated_job import SimulatedJob


def a_claim(
    name: str,
    value: str,
    unit: str | None = None,
    about: str = "Eiffel Tower",
    what: str = "height",
    date: str = "2022",
) -> Claim:
    """`a_claim("a.c1", "330", "m")`: a claim with its own source."""
    said = f"{about}: {what}: {value} {unit or ''}".strip()
    source = Citation(
        source=f"{name.partition('.')[0]}.md",
        digest=name.encode().hex().ljust(64, "0"),
        start=0,
        end=len(said),
        quote=said,
    )
    return Claim(
        id=name,
        text=f"{said}.",
        sources=(source,),
        subject=about,
        attribute=what,
        value=value,
        unit=unit,
        date=date,
    )


def settle_conflicts(job: SimulatedJob, **stands: str) -> None:
    """`settle_conflicts(job, k1="a.c1", k2="")`: k2 stays disputed."""
    said = tuple(
        Settlement(conflict=one, stands=tuple(claims.split()), why="Measured.")
        for one, claims in stands.items()
    )
    result = job.finish("judge", output=Settlements(settlements=said).model_dump(mode="json"))
    job.append(Judged(result=result, settled=tuple(one.conflict for one in said if one.stands)))


def check_disputes(job: SimulatedJob) -> None:
    """Check that every conflict is settled by the judge or disputed in the answer.

    Without a conflict, the judge is not asked.
    """
    asked = sum(
        event.assigned_to == "judge" and not event.closes for event in job.events(HandoffIssued)
    )
    again = len(job.events(RetryRequested))
    assert asked <= sum(bool(event.conflicts) for event in job.events(ConflictsFound)) + again, (
        "once a round"
    )
    found = disputes_of(job.state, job.texts)
    kept = job.state.judged.settled if job.state.judged else ()
    assert {one.conflict.id for one in found if one.is_settled} == {*kept}
    text = disputes_section(found, "")
    assert all(one.line(marked=True) in text for one in found if not one.is_settled)


def settle_randomly(job: SimulatedJob, dice: Random) -> None:
    """Let the judge settle some of the conflicts, or fail."""
    assert job.state.conflicts is not None
    if dice.random() < 0.3:
        job.append(Judged(result=job.finish("judge", "failed"), problem="the judge failed"))
    else:
        found = enumerate(job.state.conflicts.conflicts, start=1)
        settle_conflicts(job, **{f"k{n}": dice.choice(["", claims[0]]) for n, claims in found})
