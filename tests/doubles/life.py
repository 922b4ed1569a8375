"""A job's life without Redis, Celery or models: decisions are recorded as the shell would,
results are made up by the test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

from handoff_queue.shared.broker.attempt_outcome import finished_event
from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.store.presence import ServedSpecialist
from handoff_queue.shared.types.events import (
    AnswerMethod,
    Approved,
    Event,
    HandoffFinished,
    PlanMade,
    Recorded,
    Rejected,
    Reviewed,
    Synthesised,
    parse_event,
)
from handoff_queue.shared.types.handoff import (
    AgentHandoff,
    BlobRef,
    HandoffResult,
    ResultStatus,
    ref,
)
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.plan import Patch, Plan, Step, Synthesis
from handoff_queue.shared.types.review import Decision, Revision, Verdict
from handoff_queue.supervisor.engine.decision_recorder import DecisionRecorder
from handoff_queue.supervisor.engine.pending_writes import PendingWrites
from handoff_queue.supervisor.lifecycle.commands import (
    Command,
)
from handoff_queue.supervisor.lifecycle.decide import decide
from handoff_queue.supervisor.lifecycle.observations import Observations, ObservedHandoff
from handoff_queue.supervisor.lifecycle.reduce import begin, evolve
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState, StepState
from handoff_queue.supervisor.roles.outcomes import make_plan_event
from tests.doubles.handoffs import JOB, a_spec
from tests.doubles.jobs import submission
from tests.doubles.memory_store import memory_store
from tests.doubles.needs import Known, resolved_by, said_of
from tests.doubles.results import a_result_of

BEGIN = 1_000_000.0
LEASE_S = 15.0
RESEARCHERS = frozenset({"researcher", "writer"})
REQUEST = "Compare things."
TOOL_WITH_EFFECT = "send"


@cache
def served(names: frozenset[str], acting: frozenset[str]) -> dict[str, ServedSpecialist]:
    """Return the specialists that workers serve. `acting`: have a tool with effects."""
    found = {}
    for name in names:
        tools = (TOOL_WITH_EFFECT,) if name in acting else ()
        spec = a_spec(*tools, name=name)
        found[name] = ServedSpecialist(
            spec, spec.content_digest, ("worker@here",), 1, 0, effects=frozenset(tools)
        )
    return found


@lru_cache(maxsize=1_000)
def parsed(text: str) -> Plan:
    return Plan.from_json(text)


def a_plan(synthesis: Synthesis = Synthesis.MERGE, /, **depends_on: str) -> Plan:
    """`a_plan(a="", b="a", c="a b")`: steps and their dependencies."""
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


class Life:
    """One job. `goes_on()` decides and records until nothing follows; the test says what
    happens in between.
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
        self.children: dict[JobId, list[Recorded]] = {}
        """Journals of child jobs."""
        if workflow is not None:
            submitted["workflow"] = self.keeps(workflow.to_json())
        if answer_schema is not None:
            submitted["answer_schema"] = self.keeps(answer_schema)
        self.keeps(REQUEST)
        first = Recorded(1, self.now, submission(REQUEST, limits, **submitted))
        self.journal = [first]
        self.state: JobState = begin(JobId(JOB), first)
        self.roles = RESEARCHERS
        self.acting: frozenset[str] = frozenset()
        """Specialists that have a tool with effects."""
        self.handoffs: dict[str, AgentHandoff] = {}
        """Every issued handoff to a specialist."""
        self.done: list[Command] = []
        """Commands that run after a commit: publications, runs of roles, deliveries."""
        store, self._presence = memory_store(self.payloads, self.children)
        self._recorder = DecisionRecorder(store, PayloadCache(store))

    # The supervisor's side

    def seen(
        self, **handoffs: ObservedHandoff
    ) -> Observations:  # a_1=HandoffSeen(...) speaks of the handoff a.1
        return Observations(
            self.roles,
            {HandoffId(name.replace("_", ".")): found for name, found in handoffs.items()},
            acting=self.acting,
        )

    def decides(self, seen: Observations | None = None) -> tuple[Command, ...]:
        return decide(self.state, seen or self.seen(), self.now)

    def goes_on(self, seen: Observations | None = None) -> list[Command]:
        """Everything that follows now, recorded."""
        followed: list[Command] = []
        while commands := self.decides(seen):
            before = len(self.journal)
            for command in commands:
                self.record(command)
            followed += commands
            seen = replace(seen, handoffs={}) if seen else None
            if len(self.journal) == before:
                break
        return followed

    def record(self, command: Command) -> None:
        """Record a command as the supervisor does, and apply its events."""
        self._presence.specialists = served(self.roles, self.acting)
        writes = PendingWrites()
        self._recorder.record(self.state, command, writes)
        self.payloads |= writes.texts
        assert not writes.unreadable
        for group in writes.groups:
            self.handoffs |= {one.handoff.handoff_id: one.handoff for one in group}
        self.happens(*writes.events)
        self.done += writes.effects

    @property
    def plan(self) -> Plan | None:
        return parsed(self.payloads[self.state.plan.plan.digest]) if self.state.plan else None

    # What happens

    def happens(self, *events: Event) -> None:
        for event in events:
            assert parse_event(event.to_json()) == event, (
                "an event comes back from the journal as it was"
            )
            recorded = Recorded(self.state.version + 1, self.now, event)
            self.journal.append(recorded)
            self.state = evolve(self.state, recorded)

    def keeps(self, text: str) -> BlobRef:
        made = ref(text)
        self.payloads[made.digest] = text
        return made

    def stores(self, result: HandoffResult) -> BlobRef:
        return self.keeps(result.to_json())

    def ends(
        self, of: HandoffId, status: ResultStatus = ResultStatus.OK, **changes: Any
    ) -> BlobRef:
        """A handoff has a result. `changes`: of the result."""
        result = a_result_of(of, status, **changes)
        self.happens(finished_event(result, ""))
        return self.stores(result)

    def finishes(self, step: str, status: str = "ok", **changes: Any) -> BlobRef:
        """The latest handoff of a step, or of a role, has a result."""
        latest = max(
            (i for i, one in self.state.open.items() if one.step_id == step),
            key=lambda i: self.state.open[i].attempt,
        )
        return self.ends(latest, ResultStatus(status), **changes)

    def plans(
        self, plan: Plan | None = None, /, *, degraded: str | None = None, **depends_on: str
    ) -> None:
        result = self.finishes("planner", "failed" if degraded else "ok", error=degraded)
        self.happens(self._made(plan or a_plan(**depends_on), result if degraded else None))

    def _made(self, plan: Plan, degraded: BlobRef | None = None) -> PlanMade:
        event, text = make_plan_event(plan, degraded, is_reviewed=True, acting=self.acting)
        self.keeps(text)
        return event

    def replans(self, patch: Patch | None = None, /, *, status: str = "ok") -> None:
        """The replanner proposes this; None: that the plan goes on as it is."""
        self.finishes("replanner", status, output=(patch or Patch()).model_dump(mode="json"))

    def judges(self, *open_points: str, **problems: str) -> None:
        """`judges()` is PASS; `judges(a="wrong")` is REVISE."""
        revisions = tuple(
            Revision(step=StepId(step), problem=problem) for step, problem in problems.items()
        )
        verdict = Verdict(
            verdict=Decision.REVISE if revisions else Decision.PASS,
            revisions=revisions,
            open_points=open_points,
        )
        result = self.finishes("assessor", output=verdict.model_dump(mode="json"))
        round_, named, points = (
            len(self.state.rounds) + 1,
            tuple(one.step for one in revisions),
            len(open_points),
        )
        self.happens(
            Reviewed(
                round=round_,
                decision=verdict.verdict,
                result=result,
                steps=named,
                open_points=points,
            )
        )

    def answers_needs(self, known: Known | None = None, /, **answers: str | Step | None) -> None:
        """`answers_needs(a="42", b=None, c=a_helper("d"))`: None gives the step up. `known`:
        the job as the planner knew it.
        """
        said = said_of(answers)
        result = self.finishes("planner", output=said.model_dump(mode="json"))
        event, texts = resolved_by(known or (self.state, self.plan), said, result)
        for text in texts:
            self.keeps(text)
        self.happens(event)

    def synthesises(self, output: str = "All in all.") -> None:
        result = self.finishes("synthesizer", output=output)
        self.happens(Synthesised(method=AnswerMethod.SYNTHESIZED, result=result))

    def approves(self, plan: Plan | None = None, *, steps: Sequence[str] = ()) -> None:
        assert self.state.question
        self.happens(
            Approved(
                asked=self.state.question.version,
                plan=self._made(plan) if plan else None,
                steps=tuple(map(StepId, steps)),
            )
        )

    def rejects(self, note: str = "No.", *steps: str) -> BlobRef:
        """The note, as it is stored."""
        assert self.state.question
        kept = self.keeps(note)
        self.happens(
            Rejected(asked=self.state.question.version, note=kept, steps=tuple(map(StepId, steps)))
        )
        return kept

    # How it stands

    def step(self, name: str) -> StepState:
        return self.state.steps[StepId(name)]

    @property
    def words(self) -> ResultTexts:
        return ResultTexts(self.payloads)

    def result_of(self, handoff: str) -> BlobRef:
        """`a.1`: the first attempt at a."""
        found: BlobRef = next(
            event.result for event in self.events(HandoffFinished) if event.handoff_id == handoff
        )
        return found

    def why(self, name: str) -> str | None:
        """Return the reason for a step's result if it is not `ok`."""
        return self.words.why(self.step(name).trouble)

    @property
    def out(self) -> set[str]:
        """Return the steps and roles with an open handoff."""
        return {handoff.step_id for handoff in self.state.open.values()}

    def events(self, kind: type[Any]) -> list[Any]:
        return [recorded.event for recorded in self.journal if isinstance(recorded.event, kind)]


def planned(
    plan: Plan | None = None, /, *, limits: JobLimits | None = None, **depends_on: str
) -> Life:
    """A job whose first steps are out."""
    life = Life(limits)
    life.goes_on()
    life.plans(plan, **depends_on)
    life.goes_on()
    return life


def done(life: Life, *names: str) -> None:
    for name in names:
        life.finishes(name)
    life.goes_on()
