"""Records of jobs that never ran: handoffs with the times that a test gives them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from handoff_queue.shared.store.claim_history import ClaimEnd, PastClaim
from handoff_queue.shared.store.jobs import HandoffStanding, JobStanding
from handoff_queue.shared.types.events import (
    Abandoned,
    Event,
    HandoffFinished,
    HandoffIssued,
    JobEnded,
    JobStatus,
    JobSubmitted,
    Recorded,
    StepsAbandoned,
)
from handoff_queue.shared.types.handoff import (
    AgentHandoff,
    ContextResult,
    HandoffResult,
    ResultStatus,
    ref,
)
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId, handoff_id
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.client.report import JobRecord

JOB = JobId("j-0123456789ab")
SPEC = "0" * 64


class Ran:
    """A job that began at 0; times in seconds."""

    def __init__(self, request: str = "Compare things.") -> None:
        self.payloads = dict[str, str]()
        self.standings = dict[HandoffId, HandoffStanding]()
        self._moments = list[tuple[float, Event]]()
        self._happens(
            0.0, JobSubmitted(request=ref(self._kept(request)), title=request, limits=JobLimits())
        )

    def step(
        self,
        name: str,
        at: tuple[float, float, float],
        after: str = "",
        *,
        attempt: int = 1,
        **said: Any,
    ) -> None:
        """A step that was issued, began and ended then. `after`: the steps that it depends on."""
        self._handoff(name, "researcher", at, after, attempt, is_a_role=False, **said)

    def role(
        self, name: str, at: tuple[float, float, float], *, attempt: int = 1, **said: Any
    ) -> None:
        """Record a handoff of a role of the supervisor. The arguments are those of `step`."""
        self._handoff(name, name, at, "", attempt, is_a_role=True, **said)

    def left(
        self, name: str, *spells: tuple[float, float, ClaimEnd], again_at: float | None
    ) -> None:
        """Of a step's first attempt: these processes have left it without a result, and
        `again_at` the last one had it.
        """
        own, lost = handoff_id(StepId(name), 1), sum(how is ClaimEnd.LOST for _, _, how in spells)
        stints = tuple(
            PastClaim(f"w{n}@host:6", began, ended, how)
            for n, (began, ended, how) in enumerate(spells, start=10)
        )
        self.standings[own] = replace(
            self.standings[own], lost_claims=lost, stints=stints, claimed_at=again_at
        )

    def cut(self, name: str, *, calls: int, tokens: int) -> None:
        """Record that `calls` calls of a step's first attempt were cut, and are charged with
        `tokens` tokens.
        """
        own = handoff_id(StepId(name), 1)
        self.standings[own] = replace(self.standings[own], cut_calls=calls, cut_tokens=tokens)

    def given_up(self, name: str, at: tuple[float, float, float], after: str = "") -> None:
        """A step that was issued and began then, and was waited for no longer."""
        self._issued(name, "researcher", at[:2], after, 1, is_a_role=False, task="Do it.")
        own = handoff_id(StepId(name), 1)
        self.standings[own] = replace(self.standings[own], state="dropped")
        stand_in = ref(self._kept("{}"))
        self._happens(
            at[2],
            StepsAbandoned(steps=(Abandoned(step=StepId(name), result=stand_in),), why="late"),
        )

    def runs(self, name: str, at: tuple[float, float], after: str = "") -> None:
        """A step that was issued and began then, and has not ended."""
        self._issued(name, "researcher", at, after, 1, is_a_role=False, task="Do it.")

    def record(self, until: float | None = None) -> JobRecord:
        """End the job with its last handoff, or let it run and be read at `until`."""
        moments = sorted(self._moments, key=lambda one: one[0])
        if until is None:
            moments.append((moments[-1][0], JobEnded(status=JobStatus.OK)))
        journal = tuple(Recorded(n, at, event) for n, (at, event) in enumerate(moments, start=1))
        status = JobStatus.RUNNING if until is not None else JobStatus.OK
        cut = (
            sum(one.cut_calls for one in self.standings.values()),
            sum(one.cut_tokens for one in self.standings.values()),
        )
        books = JobStanding(
            JOB, status, len(journal), "Compare things.", 0.0, 3, 100, 20, 5, cancelled=False
        )
        standing = replace(books, cut_calls=cut[0], cut_tokens=cut[1])
        return JobRecord(
            until if until is not None else journal[-1].at,
            standing,
            journal,
            self.standings,
            self.payloads,
            (),
        )

    def _handoff(
        self,
        name: str,
        who: str,
        at: tuple[float, float, float],
        after: str,
        attempt: int,
        *,
        is_a_role: bool,
        task: str = "Do it.",
        **said: Any,
    ) -> None:
        own = self._issued(name, who, at[:2], after, attempt, is_a_role=is_a_role, task=task)
        result = HandoffResult(
            handoff_id=own,
            job_id=JOB,
            step_id=StepId(name),
            attempt=attempt,
            **{"status": ResultStatus.OK, "output": "It is so.", **said},
        )
        done = ref(self._kept(result.to_json()))
        self._happens(at[2], HandoffFinished(
            handoff_id=own, status=result.status, result=done, usage=result.usage, turns=1, stop_reason=result.stop_reason, confidence=0.9,
        ))  # fmt: skip
        self.standings[own] = replace(self.standings[own], state="done", finished_at=at[2])

    def _issued(
        self,
        name: str,
        who: str,
        at: tuple[float, float],
        after: str,
        attempt: int,
        *,
        is_a_role: bool,
        task: str,
    ) -> HandoffId:
        own = handoff_id(StepId(name), attempt)
        context = tuple(
            ContextResult(step_id=StepId(one), result=ref("{}")) for one in after.split()
        )
        handoff = AgentHandoff(
            handoff_id=own, job_id=JOB, step_id=StepId(name), attempt=attempt, assigned_to=who, specialist=SPEC, task_description=task,
            depends_on=tuple(map(StepId, after.split())), context=context,
        )  # fmt: skip
        given, group = ref(self._kept(handoff.to_json())), None if is_a_role else "g1"
        self._happens(at[0], HandoffIssued(
            handoff_id=own, step_id=StepId(name), attempt=attempt, assigned_to=who, handoff=given, specialist=SPEC, group=group,
        ))  # fmt: skip
        self.standings[own] = HandoffStanding(
            "running", worker="w1@host:7", claims=1, turns=1, input_tokens=100, output_tokens=20, cost_microusd=1_500,
            issued_at=at[0], started_at=at[1],
        )  # fmt: skip
        return own

    def _happens(self, at: float, event: Event) -> None:
        self._moments.append((at, event))

    def _kept(self, text: str) -> str:
        self.payloads[ref(text).digest] = text
        return text
