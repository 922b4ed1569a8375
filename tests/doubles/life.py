"""A job's life without Redis, Celery or models: decisions are recorded as the shell would,
results are made up by the test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, assert_never

from handoff_queue.shared.broker.attempt_outcome import finished_event
from handoff_queue.shared.types.events import (
    Abandoned,
    AnswerMethod,
    Approved,
    ConditionsChecked,
    Event,
    HandoffFinished,
    JobEnded,
    PlanMade,
    Quoted,
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
from handoff_queue.shared.types.quote import Quote
from handoff_queue.shared.types.review import Decision, Revision, Verdict
from handoff_queue.supervisor.engine.decision_recorder import end_task_begun
from handoff_queue.supervisor.engine.pending_writes import PendingWrites
from handoff_queue.supervisor.engine.plan_patches import make_patch_event
from handoff_queue.supervisor.engine.questions import record_question
from handoff_queue.supervisor.lifecycle.arbitration import is_for_arbitration
from handoff_queue.supervisor.lifecycle.commands import (
    AbandonSteps,
    ApproveBySilence,
    AskApproval,
    AskUser,
    CheckConditions,
    CheckGates,
    ChooseAnswer,
    Command,
    DeliverWebhook,
    EndJob,
    FactCheckCommand,
    FindConflicts,
    IssueGroup,
    IssueRole,
    IssueToChild,
    MakePlan,
    MakeQuote,
    PatchPlan,
    PublishAgain,
    RemindUser,
    Route,
    RunRole,
    SendEndTask,
    SkipReview,
    SkipSteps,
    StartChild,
    TellParent,
    TryAgain,
)
from handoff_queue.supervisor.lifecycle.conditions import make_conditions_event, make_skip_event
from handoff_queue.supervisor.lifecycle.decide import decide
from handoff_queue.supervisor.lifecycle.disputes import JUDGE, find_conflicts
from handoff_queue.supervisor.lifecycle.gates import check_gates
from handoff_queue.supervisor.lifecycle.handoffs import step_handoff
from handoff_queue.supervisor.lifecycle.observations import Observations, ObservedHandoff
from handoff_queue.supervisor.lifecycle.reduce import begin, evolve
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.routing import one_step
from handoff_queue.supervisor.lifecycle.state import JobState, StepState
from handoff_queue.supervisor.roles.outcomes import make_plan_event
from tests.doubles.checking import event_of_check
from tests.doubles.handoffs import JOB, a_spec
from tests.doubles.jobs import submission
from tests.doubles.needs import Known, resolved_by, said_of
from tests.doubles.results import a_result_of, a_stand_in, an_issue, an_issue_to_a_child

BEGIN = 1_000_000.0
LEASE_S = 15.0
RESEARCHERS = frozenset({"researcher", "writer"})


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

    def __init__(self, limits: JobLimits | None = None, **submitted: Any) -> None:
        self.now = BEGIN
        first = Recorded(1, self.now, submission(limits=limits, **submitted))
        self.journal = [first]
        self.state: JobState = begin(JobId(JOB), first)
        self.roles = RESEARCHERS
        self.acting: frozenset[str] = frozenset()
        """Specialists that have a tool with effects."""
        self.plan: Plan | None = None
        self.workflow: Plan | None = None
        self.handoffs: dict[str, AgentHandoff] = {}
        self.payloads: dict[str, str] = {}
        """Every HandoffResult and conflict ledger, by digest."""
        self.done: list[Command] = []
        """Commands that record no event: publications, runs of roles, deliveries."""

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
        if isinstance(command, FactCheckCommand):
            self.happens(event_of_check(self.state, command, self.words))
            return
        match command:
            case Route(mode, specialist):
                self.happens(Routed(mode=mode, specialist=specialist))
            case MakePlan(specialist):
                self.plan = self.workflow or one_step("Compare.", specialist or "", "")
                self.happens(self._made(self.plan, is_reviewed=self.workflow is not None))
            case PatchPlan(proposal):
                assert self.plan is not None
                patched, text = make_patch_event(
                    self.state, self.plan, proposal, self.words, self.acting
                )
                self.plan = Plan.from_json(text) if text else self.plan
                self.happens(patched)
            case MakeQuote():
                self.happens(Quoted(quote=Quote()))
            case IssueRole(role, attempt):
                of_quarrel = role == JUDGE and is_for_arbitration(self.state)
                self.happens(
                    an_issue(StepId(role), attempt, role).model_copy(update={"closes": of_quarrel})
                )
            case IssueGroup():
                self._issue(command)
            case IssueToChild(step):
                self.happens(an_issue_to_a_child(self.state, step))
            case AbandonSteps(steps, why):
                stand_ins = tuple(
                    Abandoned(step=step, result=self.stores(a_stand_in(step, why)))
                    for step in steps
                )
                self.happens(StepsAbandoned(steps=stand_ins, why=why))
            case CheckConditions(steps):
                assert self.plan is not None
                self._skips(make_conditions_event(self.state, self.plan, steps, self.words))
            case SkipSteps(steps, why):
                self._skips(make_skip_event(self.state, steps, why))
            case TryAgain(steps):
                self.happens(StepsTriedAgain(steps=steps))
            case FindConflicts():
                found, store = find_conflicts(self.state, self.words)
                self.payloads |= {ref(store).digest: store} if store else {}
                self.happens(found)
            case SkipReview(why):
                self.happens(Reviewed(round=len(self.state.rounds) + 1, decision=None, problem=why))
            case ChooseAnswer(method):
                self.happens(Synthesised(method=method))
            case CheckGates(may_send_back):
                event, vetoes = check_gates(self.state, self.words, may_send_back=may_send_back)
                assert vetoes is None or self.stores(vetoes) == event.result
                self.happens(event)
            case EndJob(status, reason, because):
                self.happens(JobEnded(status=status, reason=reason, because=because))
            case AskUser() | AskApproval() | RemindUser() | ApproveBySilence():
                record_question(
                    command, self.state.submitted.approvals.wait_s, None, asked := PendingWrites()
                )
                self.happens(*asked.events)
            case DeliverWebhook(attempt):
                self.happens(WebhookTried(attempt=attempt, delivered=False, under_way=True))
                self.done.append(command)
            case SendEndTask():
                self.happens(end_task_begun(self.state, command))
                self.done.append(command)
            case PublishAgain() | RunRole() | StartChild() | TellParent():
                self.done.append(command)
            case _:
                assert_never(command)

    def _skips(self, checked: tuple[ConditionsChecked, list[HandoffResult]]) -> None:
        event, results = checked
        for result in results:
            self.stores(result)
        self.happens(event)

    def _issue(self, command: IssueGroup) -> None:
        assert self.plan is not None
        spec = a_spec()
        for index, step_id in enumerate(command.steps):
            handoff = step_handoff(
                self.state, self.plan.by_id[step_id], spec, spec.content_digest, self.words, None
            )
            self.handoffs[handoff.handoff_id] = handoff
            to = dict(command.instead).get(step_id, self.step(step_id).specialist)
            acts = (to in self.acting and handoff.acts_with is None) or None
            issue = an_issue(step_id, handoff.attempt, to, command.group, index)
            self.happens(issue.model_copy(update={"acts": acts}))

    # What happens

    def happens(self, *events: Event) -> None:
        for event in events:
            assert parse_event(event.to_json()) == event, (
                "an event comes back from the journal as it was"
            )
            recorded = Recorded(self.state.version + 1, self.now, event)
            self.journal.append(recorded)
            self.state = evolve(self.state, recorded)

    def stores(self, result: HandoffResult) -> BlobRef:
        text = result.to_json()
        self.payloads[ref(text).digest] = text
        return ref(text)

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
        self.plan = plan or a_plan(**depends_on)
        result = self.finishes("planner", "failed" if degraded else "ok", error=degraded)
        self.happens(self._made(self.plan, result if degraded else None))

    def _made(
        self, plan: Plan, degraded: BlobRef | None = None, *, is_reviewed: bool = True
    ) -> PlanMade:
        return make_plan_event(plan, degraded, is_reviewed=is_reviewed, acting=self.acting)[0]

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
        said, made = said_of(answers), self.state.plan
        result = self.finishes("planner", output=said.model_dump(mode="json"))
        event, texts = resolved_by(known or (self.state, self.plan), said, result)
        self.happens(event)
        if self.state.plan is not made:
            self.plan = Plan.from_json(texts[0])

    def synthesises(self, output: str = "All in all.") -> None:
        result = self.finishes("synthesizer", output=output)
        self.happens(Synthesised(method=AnswerMethod.SYNTHESIZED, result=result))

    def approves(self, plan: Plan | None = None, *, steps: Sequence[str] = ()) -> None:
        assert self.state.question
        self.plan = plan or self.plan
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
        self.payloads[ref(note).digest] = note
        self.happens(
            Rejected(
                asked=self.state.question.version, note=ref(note), steps=tuple(map(StepId, steps))
            )
        )
        return ref(note)

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
