"""One job without Redis, Celery or models. The supervisor's recorder records each decision,
and the test supplies the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

from handoff_queue.shared.broker.attempt_outcome import build_handoff_finished_event
from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.store.presence import ServedSpecialist
from handoff_queue.shared.types.events import (
    AnswerMethod,
    Approved,
    Event,
    HandoffFinished,
    PlanMade,
    RecordedEvent,
    Rejected,
    Reviewed,
    Synthesized,
    parse_event,
)
from handoff_queue.shared.types.handoff import (
    AgentHandoff,
    BlobRef,
    HandoffResult,
    ResultStatus,
    make_ref,
)
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.plan import Patch, Plan, Synthesis
from handoff_queue.shared.types.review import Decision, Revision, Verdict
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.engine.decision_recorder import DecisionRecorder
from handoff_queue.supervisor.engine.unit_of_work import UnitOfWork
from handoff_queue.supervisor.lifecycle.commands import (
    Command,
)
from handoff_queue.supervisor.lifecycle.decide import decide
from handoff_queue.supervisor.lifecycle.observations import Observations, ObservedHandoff
from handoff_queue.supervisor.lifecycle.reduce import begin, evolve
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState, StepState
from handoff_queue.supervisor.roles.role_events import make_plan_event
from tests.doubles.handoffs import JOB, a_spec
from tests.doubles.input_resolutions import PlannerView, resolution_event, resolutions_of
from tests.doubles.jobs import submission
from tests.doubles.memory_store import memory_store
from tests.doubles.results import a_result_of

BEGIN = 1_000_000.0
LEASE_S = 15.0
RESEARCHERS = frozenset({"researcher", "writer"})
REQUEST = "Compare things."
TOOL_WITH_EFFECT = "send"


@cache
def served(names: frozenset[str], acting: frozenset[str]) -> dict[str, ServedSpecialist]:
    """Return the served specialists. `acting`: names of specialists that have a tool with
    effects.
    """
    specialists = {}
    for name in names:
        tools = (TOOL_WITH_EFFECT,) if name in acting else ()
        spec = a_spec(*tools, name=name)
        specialists[name] = ServedSpecialist(
            spec, spec.content_digest, ("worker@here",), 1, 0, effects=frozenset(tools)
        )
    return specialists


@lru_cache(maxsize=1_000)
def parsed(text: str) -> Plan:
    return Plan.from_json(text)


def a_plan(synthesis: Synthesis = Synthesis.MERGE, /, **depends_on: str) -> Plan:
    """Return a plan from the dependencies of its steps: `a_plan(a="", b="a", c="a b")`."""
    steps = [
        Step(
            id=StepId(name),
            specialist="researcher",
            task=f"Do {name}.",
            depends_on=tuple(map(StepId, before.split())),
        )
        for name, before in depends_on.items()
    ]
    return Plan(steps=tuple(steps), synthesis=synthesis)


class SimulatedJob:
    """One job. `advance()` decides and records until nothing follows. Between two calls, the
    test supplies results and other events.
    """

    def __init__(
        self,
        limits: JobLimits | None = None,
        workflow: Plan | None = None,
        answer_schema: str | None = None,
        **submitted: Any,
    ) -> None:
        self.now = BEGIN
        self.payloads: dict[str, str] = {}
        """Stored texts by digest."""
        self.children: dict[JobId, list[RecordedEvent]] = {}
        """Journals of child jobs."""
        if workflow is not None:
            submitted["workflow"] = self.store_text(workflow.to_json())
        if answer_schema is not None:
            submitted["answer_schema"] = self.store_text(answer_schema)
        self.store_text(REQUEST)
        first = RecordedEvent(1, self.now, submission(REQUEST, limits, **submitted))
        self.journal = [first]
        self.state: JobState = begin(JobId(JOB), first)
        self.specialists = RESEARCHERS
        self.acting: frozenset[str] = frozenset()
        """Specialists that have a tool with effects."""
        self.handoffs: dict[str, AgentHandoff] = {}
        """Every issued handoff to a specialist."""
        self.effects: list[Command] = []
        """Commands that run after a commit: publications, runs of roles, deliveries."""
        store, self._presence = memory_store(self.payloads, self.children)
        self._recorder = DecisionRecorder(store, PayloadCache(store))

    # The supervisor's side

    def observations(self, **handoffs: ObservedHandoff) -> Observations:
        """Return observations. The argument `a_1` is the observation of the handoff a.1."""
        return Observations(
            self.specialists,
            {
                HandoffId(name.replace("_", ".")): observation
                for name, observation in handoffs.items()
            },
            acting=self.acting,
        )

    def next_commands(self, observed: Observations | None = None) -> tuple[Command, ...]:
        return decide(self.state, observed or self.observations(), self.now)

    def advance(self, observed: Observations | None = None) -> list[Command]:
        """Record every decision that follows now, and return the commands."""
        executed: list[Command] = []
        while commands := self.next_commands(observed):
            before = len(self.journal)
            for command in commands:
                self.record(command)
            executed += commands
            observed = replace(observed, handoffs={}) if observed else None
            if len(self.journal) == before:
                break
        return executed

    def record(self, command: Command) -> None:
        """Record a command as the supervisor does, and apply its events."""
        self._presence.specialists = served(self.specialists, self.acting)
        writes = UnitOfWork()
        self._recorder.record(self.state, command, writes)
        self.payloads |= writes.texts
        assert not writes.unreadable
        for group in writes.groups:
            self.handoffs |= {planned.handoff.handoff_id: planned.handoff for planned in group}
        self.append(*writes.events)
        self.effects += writes.effects

    @property
    def plan(self) -> Plan | None:
        return parsed(self.payloads[self.state.plan.plan.digest]) if self.state.plan else None

    # Events

    def append(self, *events: Event) -> None:
        for event in events:
            assert parse_event(event.to_json()) == event, "an event survives serialisation"
            recorded = RecordedEvent(self.state.version + 1, self.now, event)
            self.journal.append(recorded)
            self.state = evolve(self.state, recorded)

    def store_text(self, text: str) -> BlobRef:
        stored = make_ref(text)
        self.payloads[stored.digest] = text
        return stored

    def store_result(self, result: HandoffResult) -> BlobRef:
        return self.store_text(result.to_json())

    def finish_handoff(
        self, of: HandoffId, status: ResultStatus = ResultStatus.OK, **changes: Any
    ) -> BlobRef:
        """Finish a handoff. `changes`: fields of its result."""
        result = a_result_of(of, status, **changes)
        self.append(build_handoff_finished_event(result, ""))
        return self.store_result(result)

    def finish(self, step: str, status: str = "ok", **changes: Any) -> BlobRef:
        """Finish the latest handoff of a step or of a role."""
        latest = max(
            (i for i, handoff in self.state.open.items() if handoff.step_id == step),
            key=lambda i: self.state.open[i].attempt,
        )
        return self.finish_handoff(latest, ResultStatus(status), **changes)

    def make_plan(
        self, plan: Plan | None = None, /, *, degraded: str | None = None, **depends_on: str
    ) -> None:
        result = self.finish("planner", "failed" if degraded else "ok", error=degraded)
        self.append(self._plan_event(plan or a_plan(**depends_on), result if degraded else None))

    def _plan_event(self, plan: Plan, degraded: BlobRef | None = None) -> PlanMade:
        event, text = make_plan_event(plan, degraded, is_reviewed=True, acting=self.acting)
        self.store_text(text)
        return event

    def patch_plan(self, patch: Patch | None = None, /, *, status: str = "ok") -> None:
        """Finish the replanner with this patch. None: the plan stays."""
        self.finish("replanner", status, output=(patch or Patch()).model_dump(mode="json"))

    def review(self, *open_points: str, **problems: str) -> None:
        """Let the assessor pass the results, or send back steps with their problems.

        `review()` is PASS, and `review(a="wrong")` is REVISE.
        """
        revisions = tuple(
            Revision(step=StepId(step), problem=problem) for step, problem in problems.items()
        )
        verdict = Verdict(
            verdict=Decision.REVISE if revisions else Decision.PASS,
            revisions=revisions,
            open_points=open_points,
        )
        result = self.finish("assessor", output=verdict.model_dump(mode="json"))
        round_, named, points = (
            len(self.state.rounds) + 1,
            tuple(revision.step for revision in revisions),
            len(open_points),
        )
        self.append(
            Reviewed(
                round=round_,
                decision=verdict.verdict,
                result=result,
                steps=named,
                open_points=points,
            )
        )

    def resolve_needs(
        self, planner_view: PlannerView | None = None, /, **answers: str | Step | None
    ) -> None:
        """Let the planner answer the needs of steps: with a text, an input step, or None.

        `resolve_needs(a="42", b=None, c=an_input_step("d"))`: None gives the step up.
        `planner_view`: the job's state and plan when the planner was called.
        """
        resolutions = resolutions_of(answers)
        result = self.finish("planner", output=resolutions.model_dump(mode="json"))
        event, texts = resolution_event(
            planner_view or (self.state, self.plan), resolutions, result
        )
        for text in texts:
            self.store_text(text)
        self.append(event)

    def synthesize(self, output: str = "All in all.") -> None:
        result = self.finish("synthesizer", output=output)
        self.append(Synthesized(method=AnswerMethod.SYNTHESIZED, result=result))

    def approve(self, plan: Plan | None = None, *, steps: Sequence[str] = ()) -> None:
        assert self.state.question
        self.append(
            Approved(
                asked=self.state.question.version,
                plan=self._plan_event(plan) if plan else None,
                steps=tuple(map(StepId, steps)),
            )
        )

    def reject(self, note: str = "No.", *steps: str) -> BlobRef:
        """Reject the open question with a note, and return the stored note."""
        assert self.state.question
        stored = self.store_text(note)
        self.append(
            Rejected(
                asked=self.state.question.version, note=stored, steps=tuple(map(StepId, steps))
            )
        )
        return stored

    # The job's state

    def step(self, name: str) -> StepState:
        return self.state.steps[StepId(name)]

    @property
    def texts(self) -> ResultTexts:
        return ResultTexts(self.payloads)

    def result_of(self, handoff: str) -> BlobRef:
        """Return the result of a handoff, such as `a.1`."""
        result: BlobRef = next(
            event.result for event in self.events(HandoffFinished) if event.handoff_id == handoff
        )
        return result

    def failure_reason(self, name: str) -> str | None:
        """Return the reason for a step's result if it is not `ok`."""
        return self.texts.explain(self.step(name).problem_result)

    @property
    def open_names(self) -> set[str]:
        """Return the steps and roles with an open handoff."""
        return {handoff.step_id for handoff in self.state.open.values()}

    def events(self, kind: type[Any]) -> list[Any]:
        return [recorded.event for recorded in self.journal if isinstance(recorded.event, kind)]


def planned(
    plan: Plan | None = None, /, *, limits: JobLimits | None = None, **depends_on: str
) -> SimulatedJob:
    """Return a job whose first steps are issued."""
    job = SimulatedJob(limits)
    job.advance()
    job.make_plan(plan, **depends_on)
    job.advance()
    return job


def finish_steps(job: SimulatedJob, *names: str) -> None:
    for name in names:
        job.finish(name)
    job.advance()
