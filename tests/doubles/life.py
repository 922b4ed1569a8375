"""A job's life without Redis, Celery or models: decisions are recorded as the shell would, results are made up by the test."""

from __future__ import annotations

from typing import Any, assert_never

from shared.attempt import finished_event
from shared.wire.events import (
    Abandoned,
    AnswerMethod,
    ApprovalAsked,
    ApprovalReminded,
    Approved,
    DecisionAsked,
    Event,
    HandoffFinished,
    JobEnded,
    NeedsResolved,
    Recorded,
    Rejected,
    Reviewed,
    Routed,
    StepsAbandoned,
    StepsTriedAgain,
    Synthesised,
    WebhookTried,
    parse_event,
)
from shared.wire.handoff import AgentHandoff, BlobRef, HandoffResult, ResultStatus, ref
from shared.wire.ids import HandoffId, JobId, StepId
from shared.wire.limits import JobLimits
from shared.wire.plan import Plan, Step, Synthesis
from shared.wire.resolutions import Resolution, Resolutions
from shared.wire.verdict import Decision, Revision, Verdict
from supervisor.lifecycle.beginning import one_step
from supervisor.lifecycle.commands import (
    AbandonSteps,
    AskApproval,
    AskUser,
    CheckGates,
    ChooseAnswer,
    Command,
    DeliverWebhook,
    EndJob,
    FindConflicts,
    GoOn,
    IssueGroup,
    IssueRole,
    MakePlan,
    PublishAgain,
    RemindUser,
    Route,
    RunRole,
    SkipReview,
    TryAgain,
)
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.disputes import found_in
from supervisor.lifecycle.evolve import begin, evolve
from supervisor.lifecycle.gates import checked
from supervisor.lifecycle.handoffs import step_handoff
from supervisor.lifecycle.seen import HandoffSeen, Seen
from supervisor.lifecycle.state import JobState, StepState
from supervisor.lifecycle.words import Words
from supervisor.roles.outcomes import plan_made
from tests.doubles.handoffs import JOB, a_spec
from tests.doubles.jobs import submission
from tests.doubles.results import a_result_of, a_stand_in, an_issue

BEGIN = 1_000_000.0
LEASE_S = 15.0
RESEARCHERS = frozenset({"researcher", "writer"})


def a_plan(synthesis: Synthesis = Synthesis.MERGE, /, **depends_on: str) -> Plan:
    """`a_plan(a="", b="a", c="a b")`: steps and what they depend on."""
    steps = [
        Step(id=StepId(name), specialist="researcher", task=f"Do {name}.", depends_on=tuple(map(StepId, before.split())))
        for name, before in depends_on.items()
    ]
    return Plan(steps=tuple(steps), synthesis=synthesis)


class Life:
    """One job. `goes_on()` decides and records until nothing follows; the test says what happens in between."""

    def __init__(self, limits: JobLimits | None = None, **submitted: Any) -> None:
        self.now = BEGIN
        first = Recorded(1, self.now, submission(limits=limits, **submitted))
        self.journal = [first]
        self.state: JobState = begin(JobId(JOB), first)
        self.roles = RESEARCHERS
        self.plan: Plan | None = None
        self.workflow: Plan | None = None
        self.handoffs: dict[str, AgentHandoff] = {}
        self.payloads: dict[str, str] = {}
        """Every HandoffResult and conflict ledger, by digest."""
        self.done: list[Command] = []
        """What was decided and is no event: published again, run, delivered."""

    # What the supervisor does

    def seen(self, **handoffs: HandoffSeen) -> Seen:
        """`a_1=HandoffSeen(...)` speaks of the handoff a.1."""
        return Seen(self.roles, {HandoffId(name.replace("_", ".")): found for name, found in handoffs.items()})

    def decides(self, seen: Seen | None = None) -> tuple[Command, ...]:
        return decide(self.state, seen or self.seen(), self.now)

    def goes_on(self, seen: Seen | None = None) -> list[Command]:
        """Everything that follows now, recorded."""
        followed: list[Command] = []
        while commands := self.decides(seen):
            before = len(self.journal)
            for command in commands:
                self.record(command)
            followed += commands
            seen = None
            if len(self.journal) == before:
                break
        return followed

    def record(self, command: Command) -> None:
        match command:
            case Route(mode, specialist):
                self.happens(Routed(mode=mode, specialist=specialist))
            case MakePlan(specialist):
                self.plan = self.workflow or one_step("Compare.", specialist or "", "")
                self.happens(plan_made(self.plan, is_reviewed=self.workflow is not None)[0])
            case IssueRole(role, attempt):
                self.happens(an_issue(StepId(role), attempt, role))
            case IssueGroup(group, steps):
                self._issue(group, steps)
            case AbandonSteps(steps, why):
                stand_ins = tuple(Abandoned(step=step, result=self.stores(a_stand_in(step, why))) for step in steps)
                self.happens(StepsAbandoned(steps=stand_ins, why=why))
            case TryAgain(steps):
                self.happens(StepsTriedAgain(steps=steps))
            case FindConflicts():
                found, ledger = found_in(self.state, self.words)
                self.payloads |= {ref(ledger).digest: ledger} if ledger else {}
                self.happens(found)
            case SkipReview(why):
                self.happens(Reviewed(round=len(self.state.rounds) + 1, decision=None, problem=why))
            case ChooseAnswer(method):
                self.happens(Synthesised(method=method))
            case CheckGates(may_send_back):
                event, vetoes = checked(self.state, self.words, may_send_back=may_send_back)
                assert vetoes is None or self.stores(vetoes) == event.result
                self.happens(event)
            case EndJob(status, reason, because):
                self.happens(JobEnded(status=status, reason=reason, because=because))
            case AskUser(why):
                self.happens(DecisionAsked(why=why))
            case AskApproval(what, why):
                self.happens(ApprovalAsked(what=what, why=why, wait_s=self.state.submitted.approvals.wait_s))
            case RemindUser(asked, number):
                self.happens(ApprovalReminded(asked=asked, number=number))
            case GoOn(asked):
                self.happens(Approved(asked=asked, by="timeout"))
            case DeliverWebhook(attempt):
                self.happens(WebhookTried(attempt=attempt, delivered=False, under_way=True))
                self.done.append(command)
            case PublishAgain() | RunRole():
                self.done.append(command)
            case _:
                assert_never(command)

    def _issue(self, group: str, steps: tuple[StepId, ...]) -> None:
        assert self.plan is not None
        spec = a_spec()
        for index, step_id in enumerate(steps):
            handoff = step_handoff(self.state, self.plan.by_id[step_id], spec, spec.content_digest, self.words, None)
            self.handoffs[handoff.handoff_id] = handoff
            self.happens(an_issue(step_id, handoff.attempt, "researcher", group, index))

    # What happens

    def happens(self, *events: Event) -> None:
        for event in events:
            assert parse_event(event.to_json()) == event, "an event comes back from the journal as it was"
            recorded = Recorded(self.state.version + 1, self.now, event)
            self.journal.append(recorded)
            self.state = evolve(self.state, recorded)

    def stores(self, result: HandoffResult) -> BlobRef:
        text = result.to_json()
        self.payloads[ref(text).digest] = text
        return ref(text)

    def ends(self, of: HandoffId, status: ResultStatus = ResultStatus.OK, **changes: Any) -> BlobRef:
        """A handoff has a result. `changes`: of the result."""
        result = a_result_of(of, status, **changes)
        self.happens(finished_event(result, ""))
        return self.stores(result)

    def finishes(self, step: str, status: str = "ok", **changes: Any) -> BlobRef:
        """The latest handoff of a step, or of a role, has a result."""
        latest = max((i for i, one in self.state.open.items() if one.step_id == step), key=lambda i: self.state.open[i].attempt)
        return self.ends(latest, ResultStatus(status), **changes)

    def plans(self, plan: Plan | None = None, /, *, degraded: str | None = None, **depends_on: str) -> None:
        self.plan = plan or a_plan(**depends_on)
        result = self.finishes("planner", "failed" if degraded else "ok", error=degraded)
        event, _ = plan_made(self.plan, result if degraded else None)
        self.happens(event)

    def judges(self, *open_points: str, **problems: str) -> None:
        """`judges()` is PASS; `judges(a="wrong")` is REVISE."""
        revisions = tuple(Revision(step=StepId(step), problem=problem) for step, problem in problems.items())
        verdict = Verdict(verdict=Decision.REVISE if revisions else Decision.PASS, revisions=revisions, open_points=open_points)
        result = self.finishes("assessor", output=verdict.model_dump(mode="json"))
        named = tuple(revision.step for revision in revisions)
        number, points = len(self.state.rounds) + 1, len(open_points)
        self.happens(Reviewed(round=number, decision=verdict.verdict, result=result, steps=named, open_points=points))

    def answers_needs(self, **answers: str | None) -> None:
        """`answers_needs(a="42", b=None)`: None gives the step up."""
        said = Resolutions(resolutions=tuple(Resolution(step=StepId(step), answer=answer) for step, answer in answers.items()))
        result = self.finishes("planner", output=said.model_dump(mode="json"))
        answered = tuple(item.step for item in said.resolutions if item.answer)
        given_up = tuple(item.step for item in said.resolutions if not item.answer)
        self.happens(NeedsResolved(result=result, answered=answered, given_up=given_up))

    def synthesises(self, output: str = "All in all.") -> None:
        result = self.finishes("synthesizer", output=output)
        self.happens(Synthesised(method=AnswerMethod.SYNTHESIZED, result=result))

    def approves(self, plan: Plan | None = None) -> None:
        assert self.state.question
        self.plan = plan or self.plan
        self.happens(Approved(asked=self.state.question.version, plan=plan_made(plan)[0] if plan else None))

    def rejects(self, note: str = "No.", *steps: str) -> BlobRef:
        """The note, as it is stored."""
        assert self.state.question
        self.payloads[ref(note).digest] = note
        self.happens(Rejected(asked=self.state.question.version, note=ref(note), steps=tuple(map(StepId, steps))))
        return ref(note)

    # How it stands

    def step(self, name: str) -> StepState:
        return self.state.steps[StepId(name)]

    @property
    def words(self) -> Words:
        return Words(self.payloads)

    def result_of(self, handoff: str) -> BlobRef:
        """`a.1`: the first attempt at a."""
        found: BlobRef = next(event.result for event in self.events(HandoffFinished) if event.handoff_id == handoff)
        return found

    def why(self, name: str) -> str | None:
        """Why a step's result is not `ok`."""
        return self.words.why(self.step(name).trouble)

    @property
    def out(self) -> set[str]:
        """The steps and roles that somebody is at work on."""
        return {handoff.step_id for handoff in self.state.open.values()}

    def events(self, kind: type[Any]) -> list[Any]:
        return [recorded.event for recorded in self.journal if isinstance(recorded.event, kind)]


def planned(plan: Plan | None = None, /, *, limits: JobLimits | None = None, **depends_on: str) -> Life:
    """A job whose first steps are out."""
    life = Life(limits)
    life.goes_on()
    life.plans(plan, **depends_on)
    life.goes_on()
    return life


def group(name: str, *steps: str) -> IssueGroup:
    return IssueGroup(name, tuple(map(StepId, steps)))


def given_up(why: str, *steps: str) -> AbandonSteps:
    return AbandonSteps(tuple(map(StepId, steps)), why)


def again(*handoffs: str) -> PublishAgain:
    return PublishAgain(tuple(map(HandoffId, handoffs)))


def run(handoff: str) -> RunRole:
    return RunRole(HandoffId(handoff))


def done(life: Life, *names: str) -> None:
    for name in names:
        life.finishes(name)
    life.goes_on()
