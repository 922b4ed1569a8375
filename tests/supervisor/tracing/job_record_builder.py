"""Builder for the record of a job that never ran, with handoffs at given times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from handoff_queue.shared.store.handoff_info import ClaimEnd, HandoffInfo, PastClaim
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.types.events import (
    AbandonedStep,
    Event,
    HandoffFinished,
    HandoffIssued,
    JobEnded,
    JobStatus,
    JobSubmitted,
    RecordedEvent,
    StepsAbandoned,
)
from handoff_queue.shared.types.handoff import (
    AgentHandoff,
    ContextResult,
    HandoffResult,
    ResultStatus,
    make_ref,
)
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId, build_handoff_id
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.client.job_record import JobRecord

JOB = JobId("j-0123456789ab")
SPEC = "0" * 64


class JobRecordBuilder:
    """Record of a job that was submitted at 0. All times are seconds."""

    def __init__(self, request: str = "Compare things.") -> None:
        self.payloads = dict[str, str]()
        self.handoffs = dict[HandoffId, HandoffInfo]()
        self._timed_events = list[tuple[float, Event]]()
        self._add_event(
            0.0,
            JobSubmitted(
                request=make_ref(self._stored(request)), title=request, limits=JobLimits()
            ),
        )

    def step(
        self,
        name: str,
        at: tuple[float, float, float],
        after: str = "",
        *,
        attempt: int = 1,
        **result_fields: Any,
    ) -> None:
        """Record a step that was issued, started and finished at these times.

        `after` names its dependencies, separated by blanks.
        """
        self._handoff(name, "researcher", at, after, attempt, is_a_role=False, **result_fields)

    def role(
        self, name: str, at: tuple[float, float, float], *, attempt: int = 1, **result_fields: Any
    ) -> None:
        """Record a handoff of a role of the supervisor. The arguments are those of `step`."""
        self._handoff(name, name, at, "", attempt, is_a_role=True, **result_fields)

    def past_claims(
        self, name: str, *claims: tuple[float, float, ClaimEnd], last_claim_at: float | None
    ) -> None:
        """Record claims of a step's first attempt that ended without a result.

        Each claim is the start, the end and the reason of the end. `last_claim_at` is the
        start of the last claim, or None.
        """
        claimed = build_handoff_id(StepId(name), 1)
        lost = sum(reason is ClaimEnd.LOST for _, _, reason in claims)
        past = tuple(
            PastClaim(f"w{n}@host:6", began, ended, reason)
            for n, (began, ended, reason) in enumerate(claims, start=10)
        )
        self.handoffs[claimed] = replace(
            self.handoffs[claimed], lost_claims=lost, past_claims=past, claimed_at=last_claim_at
        )

    def cut_calls(self, name: str, *, calls: int, tokens: int) -> None:
        """Record that `calls` calls of a step's first attempt were cut and cost `tokens` tokens."""
        first = build_handoff_id(StepId(name), 1)
        self.handoffs[first] = replace(self.handoffs[first], cut_calls=calls, cut_tokens=tokens)

    def abandoned(self, name: str, at: tuple[float, float, float], after: str = "") -> None:
        """Record a step that was issued, started and abandoned at these times."""
        self.dropped(name, at[:2], after)
        stand_in = make_ref(self._stored("{}"))
        self._add_event(
            at[2],
            StepsAbandoned(steps=(AbandonedStep(step=StepId(name), result=stand_in),), why="late"),
        )

    def dropped(self, name: str, at: tuple[float, float], after: str = "") -> None:
        """Record a step that was issued and started at these times, and was dropped before its
        end.
        """
        dropped = self._issued(name, "researcher", at, after, 1, is_a_role=False, task="Do it.")
        self.handoffs[dropped] = replace(self.handoffs[dropped], state="dropped")

    def running(self, name: str, at: tuple[float, float], after: str = "") -> None:
        """Record a step that was issued and started at these times, and still runs."""
        self._issued(name, "researcher", at, after, 1, is_a_role=False, task="Do it.")

    def record(self, until: float | None = None, *, cancelled_at: float | None = None) -> JobRecord:
        """Return the record of a job that ends with its last handoff, that still runs at
        `until`, or that was cancelled.
        """
        timed = sorted(self._timed_events, key=lambda item: item[0])
        status = JobStatus.OK
        if until is not None:
            status = JobStatus.RUNNING
        elif cancelled_at is not None:
            status = JobStatus.CANCELLED
            timed.append((cancelled_at, JobEnded(status=status)))
        else:
            timed.append((timed[-1][0], JobEnded(status=status)))
        journal = tuple(RecordedEvent(n, at, event) for n, (at, event) in enumerate(timed, start=1))
        cut_calls = sum(each.cut_calls for each in self.handoffs.values())
        cut_tokens = sum(each.cut_tokens for each in self.handoffs.values())
        account = JobInfo(
            JOB,
            status,
            len(journal),
            "Compare things.",
            0.0,
            cancelled=False,
            turns=3,
            input_tokens=100,
            output_tokens=20,
            cost_microusd=5,
        )
        info = replace(account, cut_calls=cut_calls, cut_tokens=cut_tokens)
        return JobRecord(
            until if until is not None else journal[-1].at,
            info,
            journal,
            self.handoffs,
            self.payloads,
            (),
        )

    def _handoff(
        self,
        name: str,
        assignee: str,
        at: tuple[float, float, float],
        after: str,
        attempt: int,
        *,
        is_a_role: bool,
        task: str = "Do it.",
        **result_fields: Any,
    ) -> None:
        issued = self._issued(
            name, assignee, at[:2], after, attempt, is_a_role=is_a_role, task=task
        )
        result = HandoffResult(
            handoff_id=issued,
            job_id=JOB,
            step_id=StepId(name),
            attempt=attempt,
            **{"status": ResultStatus.OK, "output": "It is so.", **result_fields},
        )
        result_ref = make_ref(self._stored(result.to_json()))
        self._add_event(
            at[2],
            HandoffFinished(
                handoff_id=issued,
                status=result.status,
                result=result_ref,
                usage=result.usage,
                turns=1,
                stop_reason=result.stop_reason,
                confidence=0.9,
            ),
        )
        self.handoffs[issued] = replace(self.handoffs[issued], state="done", finished_at=at[2])

    def _issued(
        self,
        name: str,
        assignee: str,
        at: tuple[float, float],
        after: str,
        attempt: int,
        *,
        is_a_role: bool,
        task: str,
    ) -> HandoffId:
        issued = build_handoff_id(StepId(name), attempt)
        context = tuple(
            ContextResult(step_id=StepId(step), result=make_ref("{}")) for step in after.split()
        )
        handoff = AgentHandoff(
            handoff_id=issued,
            job_id=JOB,
            step_id=StepId(name),
            attempt=attempt,
            assigned_to=assignee,
            specialist=SPEC,
            task_description=task,
            depends_on=tuple(map(StepId, after.split())),
            context=context,
        )
        handoff_ref = make_ref(self._stored(handoff.to_json()))
        group = None if is_a_role else "g1"
        self._add_event(
            at[0],
            HandoffIssued(
                handoff_id=issued,
                step_id=StepId(name),
                attempt=attempt,
                assigned_to=assignee,
                handoff=handoff_ref,
                specialist=SPEC,
                group=group,
            ),
        )
        self.handoffs[issued] = HandoffInfo(
            "running",
            worker="w1@host:7",
            claims=1,
            turns=1,
            input_tokens=100,
            output_tokens=20,
            cost_microusd=1_500,
            issued_at=at[0],
            started_at=at[1],
        )
        return issued

    def _add_event(self, at: float, event: Event) -> None:
        self._timed_events.append((at, event))

    def _stored(self, text: str) -> str:
        self.payloads[make_ref(text).digest] = text
        return text
