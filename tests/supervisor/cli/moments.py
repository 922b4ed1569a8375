"""Views of jobs, made by hand."""

from __future__ import annotations

from shared.ledger.jobs import HandoffStanding, JobStanding
from shared.wire.events import Event, HandoffFinished, HandoffIssued, JobSubmitted, PlanMade, Recorded, StepOutline
from shared.wire.handoff import BlobRef, ResultStatus, StopReason
from shared.wire.ids import HandoffId, JobId, StepId, handoff_id
from shared.wire.limits import JobLimits
from shared.wire.usage import Usage
from supervisor.cli.view import View

JOB = JobId("j-0123456789ab")
REF = BlobRef(digest="a" * 64, size=1)
SUBMITTED = JobSubmitted(request=REF, title="Compare", limits=JobLimits(), document_count=3)
PLANNED = PlanMade(
    plan=REF,
    steps=(
        StepOutline(id=StepId("left"), specialist="researcher", title="Find out about left"),
        StepOutline(id=StepId("both"), specialist="writer", depends_on=(StepId("left"),), title="Write it"),
    ),
)


def issued(step: str, to: str, *, attempt: int = 1, group: str | None = "g1") -> HandoffIssued:
    return HandoffIssued(
        handoff_id=handoff_id(step, attempt),
        step_id=StepId(step),
        attempt=attempt,
        assigned_to=to,
        handoff=REF,
        specialist="b" * 64,
        group=group,
    )


def finished(step: str, *, attempt: int = 1, status: ResultStatus = ResultStatus.OK, error: str | None = None) -> HandoffFinished:
    return HandoffFinished(
        handoff_id=handoff_id(step, attempt),
        status=status,
        result=REF,
        usage=Usage(input_tokens=1_000, output_tokens=200),
        turns=3,
        stop_reason=StopReason.FINISHED,
        confidence=0.9,
        error=error,
        model="offline",
    )


def recorded(*events: Event) -> list[Recorded]:
    return [Recorded(version=number, at=100.0 + number, event=event) for number, event in enumerate(events, start=1)]


def view_of(*events: Event, now: float = 110.0, standings: dict[str, HandoffStanding] | None = None) -> View:
    books = JobStanding(JOB, "running", len(events), "Compare", 101.0, 4, 2_000, 400, 1_500, cancelled=False)
    known = {HandoffId(name): standing for name, standing in (standings or {}).items()}
    return View(JOB, now=now, books=books, standings=known).told(recorded(*events))
