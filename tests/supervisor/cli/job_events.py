"""Helpers that build events and views of a job without a store."""

from __future__ import annotations

from handoff_queue.shared.broker.attempt_outcome import build_handoff_finished_event
from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.types.events import (
    Event,
    FactsChecked,
    HandoffFinished,
    HandoffIssued,
    JobStatus,
    JobSubmitted,
    PlanMade,
    PlanPatched,
    RecordedEvent,
    Reviewed,
    StepOutline,
)
from handoff_queue.shared.types.handoff import BlobRef, HandoffResult, ResultStatus, make_ref
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId, build_handoff_id
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.names import FACT_GATE
from handoff_queue.shared.types.plan import Patch
from handoff_queue.shared.types.review import Verdict
from handoff_queue.shared.types.step_events import CheckVerdict, FactCheck
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.cli.display.job_view import JobView
from handoff_queue.supervisor.lifecycle.fact_gate import UNSURE
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts, list_refs_with_texts
from tests.doubles.handoffs import a_result

JOB = JobId("j-0123456789ab")
RESULT_TEXTS: dict[str, str] = {}
"""JSON of each result that the events refer to, by digest."""
REF = BlobRef(digest="a" * 64, size=1)
SUBMITTED = JobSubmitted(request=REF, title="Compare", limits=JobLimits(), document_count=3)
PLANNED = PlanMade(
    plan=REF,
    steps=(
        StepOutline(id=StepId("left"), specialist="researcher", title="Find out about left"),
        StepOutline(
            id=StepId("both"), specialist="writer", depends_on=(StepId("left"),), title="Write it"
        ),
    ),
)


def issued(step: str, to: str, *, attempt: int = 1, group: str | None = "g1") -> HandoffIssued:
    return HandoffIssued(
        handoff_id=build_handoff_id(step, attempt),
        step_id=StepId(step),
        attempt=attempt,
        assigned_to=to,
        handoff=REF,
        specialist="b" * 64,
        group=group,
    )


def finished(
    step: str, *, attempt: int = 1, status: ResultStatus = ResultStatus.OK, error: str | None = None
) -> HandoffFinished:
    result = a_result(step).model_copy(
        update={
            "handoff_id": build_handoff_id(step, attempt),
            "attempt": attempt,
            "status": status,
            "usage": Usage(input_tokens=1_000, output_tokens=200),
            "turns": 3,
            "needs": error if status is ResultStatus.NEEDS_INPUT else None,
            "error": error if status in (ResultStatus.PARTIAL, ResultStatus.FAILED) else None,
            "model": "offline",
        }
    )
    return build_handoff_finished_event(_stored(result), "")


def reviewed(verdict: Verdict) -> Reviewed:
    result = _stored(a_result("assessor", verdict.model_dump(mode="json")))
    steps, points = tuple(item.step for item in verdict.revisions), len(verdict.open_points)
    return Reviewed(
        round=1,
        decision=verdict.verdict,
        result=make_ref(result.to_json()),
        steps=steps,
        open_points=points,
    )


def replanner_events(patch: Patch) -> tuple[HandoffFinished, PlanPatched]:
    """Return the events of a replanner's result and of the patch that follows from it."""
    result = _stored(a_result("replanner", patch.model_dump(mode="json")))
    added = tuple(
        StepOutline(
            id=step.id, specialist=step.specialist, depends_on=step.depends_on, title=step.task
        )
        for step in patch.add
    )
    plan = REF if added or patch.drop else None
    patched = PlanPatched(
        result=make_ref(result.to_json()),
        plan=plan,
        added=added,
        dropped=patch.drop,
        repeats=patch.repeats,
    )
    return build_handoff_finished_event(result, ""), patched


def fact_check_events(check: FactCheck) -> tuple[HandoffFinished, FactsChecked]:
    """Return the events of a fact-checker's result and of the check that follows from it."""
    result = _stored(a_result(FACT_GATE, check.model_dump(mode="json")))
    is_wrong = check.verdict is CheckVerdict.VETO
    problem = UNSURE if check.verdict is CheckVerdict.CANNOT_SAY else None
    event = FactsChecked(
        result=make_ref(result.to_json()),
        wrong=len(check.wrong),
        is_sent_back=is_wrong,
        problem=problem,
    )
    return build_handoff_finished_event(result, ""), event


def _stored(result: HandoffResult) -> HandoffResult:
    """Store the result for `view_of`, and return it."""
    RESULT_TEXTS[make_ref(result.to_json()).digest] = result.to_json()
    return result


def recorded(*events: Event) -> list[RecordedEvent]:
    return [
        RecordedEvent(version=number, at=100.0 + number, event=event)
        for number, event in enumerate(events, start=1)
    ]


def view_of(
    *events: Event, now: float = 110.0, handoffs: dict[str, HandoffInfo] | None = None
) -> JobView:
    job_info = JobInfo(
        JOB,
        JobStatus.RUNNING,
        len(events),
        "Compare",
        101.0,
        cancelled=False,
        turns=4,
        input_tokens=2_000,
        output_tokens=400,
        cost_microusd=1_500,
    )
    texts = ResultTexts(
        {
            ref.digest: RESULT_TEXTS[ref.digest]
            for event in events
            for ref in list_refs_with_texts(event)
        }
    )  # the views know no other results
    known = {HandoffId(name): info for name, info in (handoffs or {}).items()}
    return JobView(JOB, now=now, job=job_info, handoffs=known, texts=texts).apply_events(
        recorded(*events)
    )
