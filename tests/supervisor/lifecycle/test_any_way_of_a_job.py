"""Whatever is planned, answered, lost, doubled, late or killed: every job ends, once, and keeps its rules on the way."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.attempt import finished_event
from shared.wire.approval import ApprovalOf
from shared.wire.events import (
    ApprovalAsked,
    Approved,
    CancelRequested,
    HandoffFinished,
    HandoffIssued,
    JobEnded,
    JobStatus,
    JobSubmitted,
    Rejected,
    RetryRequested,
    Reviewed,
    Routed,
    WebhookTried,
)
from shared.wire.gates import Gates
from shared.wire.handoff import Claim, ResultStatus, StopReason
from shared.wire.ids import HandoffId, JobId, StepId
from shared.wire.limits import JobLimits, OnLimit
from shared.wire.mode import Mode
from shared.wire.names import CLOSING_ROLES
from shared.wire.usage import Usage
from supervisor.lifecycle.commands import Command, EndJob, IssueGroup, IssueRole, PublishAgain, RunRole
from supervisor.lifecycle.ending import next_due
from supervisor.lifecycle.evolve import fold
from supervisor.lifecycle.seen import HandoffSeen, Seen
from supervisor.lifecycle.state import StepStatus
from tests.doubles.chance import any_approvals, any_plan
from tests.doubles.contradictions import a_claim, check_disputes, settles_by_chance
from tests.doubles.handoffs import JOB
from tests.doubles.life import LEASE_S, RESEARCHERS, Life
from tests.doubles.results import a_result_of

MOST_MOVES = 2_000
PAID = Usage(input_tokens=10, output_tokens=1, cost_microusd=10)


class World(Life):
    """A life in which everything between supervisor and worker goes wrong now and then. Keeps the ledger's rules, and checks the job's."""

    def __init__(self, dice: Random) -> None:
        limits = JobLimits(
            max_rounds=dice.randrange(3),
            max_handoffs=dice.choice([3, 12, 200]),
            max_seconds=dice.choice([60, 3_600, 1_000_000]),
            on_limit=dice.choice(list(OnLimit)),
        )
        gates = dice.choice([None, Gates(max_words=1), Gates(min_words=1)])
        webhook_url, mode = dice.choice([None, "https://example.org"]), dice.choice([Mode.TEAM, *Mode])
        super().__init__(limits, webhook_url=webhook_url, mode=mode, approvals=any_approvals(dice), gates=gates)
        self.dice = dice
        self.roles = dice.choice([RESEARCHERS, RESEARCHERS | {"generalist"}])
        self.workflow = any_plan(dice) if self.state.mode is Mode.PIPELINE else None
        self.held: dict[HandoffId, HandoffSeen] = {}
        """How open handoffs stand in the ledger."""
        self.queue: list[HandoffId] = []
        """Messages; some are lost, some come twice."""
        self.runs = 1

    # The supervisor's side

    def advance(self, *suspects: HandoffId) -> None:
        """One wake-up: decide until nothing follows, then publish (or die before that)."""
        ask = {*suspects, *(i for i, one in self.state.open.items() if one.group is None)}
        self.held = {i: one for i, one in self.held.items() if i in self.state.open}
        seen = Seen(self.roles, {i: one for i, one in self.held.items() if i in ask})
        before = set(self.state.open)
        for command in self.goes_on(seen):
            if isinstance(command, PublishAgain):
                self.queue += command.handoffs
            if isinstance(command, RunRole):
                self.queue.append(command.handoff_id)
        for handoff_id in set(self.state.open) - before:
            self.held[handoff_id] = HandoffSeen("issued")
            self.publish(handoff_id)
        assert self.decides(Seen(self.roles)) == (), "what was decided is recorded: nothing is decided twice"
        self.check_due()

    def publish(self, handoff_id: HandoffId) -> None:
        """Once, twice, or not at all."""
        self.queue += [handoff_id] * self.dice.choice([0, 1, 1, 1, 2])

    def record(self, command: Command) -> None:
        if isinstance(command, IssueGroup | IssueRole | EndJob):
            self.check_approved(command)
        if isinstance(command, IssueGroup):
            for step_id in command.steps:
                self.check_start(step_id)
        super().record(command)
        if isinstance(command, IssueGroup):
            for step_id in command.steps:
                handoff = self.handoffs[self.step(step_id).handoff_id or HandoffId("")]
                assert sorted(item.step_id for item in handoff.context) == sorted(handoff.depends_on)

    # What is promised

    def check_start(self, step_id: StepId) -> None:
        step = self.step(step_id)
        assert all(self.step(before).status is StepStatus.SETTLED for before in step.outline.depends_on)
        assert not any(handoff.step_id == step_id for handoff in self.state.open.values()), "two handoffs of one step at once"

    def check_approved(self, command: IssueGroup | IssueRole | EndJob) -> None:
        """Nothing begins or leaves that somebody was to approve of first."""
        needed = {
            IssueGroup: [ApprovalOf.PLAN],
            IssueRole: [ApprovalOf.RESEARCH] if isinstance(command, IssueRole) and command.role in CLOSING_ROLES else [],
            EndJob: [ApprovalOf.ANSWER] if isinstance(command, EndJob) and command.status in (JobStatus.OK, JobStatus.PARTIAL) else [],
        }[type(command)]
        wanted = {*self.state.submitted.approvals.what}
        assert {*needed} & wanted <= {*self.state.approved}
        assert self.state.question is None or (isinstance(command, EndJob) and not needed)

    def check_due(self) -> None:
        due = next_due(self.state, self.now, LEASE_S)
        if self.state.ended is None:
            until = self.state.question.until if self.state.question else self.state.deadline
            assert due is not None, "a job that has not ended is looked at again"
            assert self.now < due <= max(until, self.now + 2)

    def check_end(self) -> None:
        for step in self.state.steps.values():
            assert step.given_to in (None, "generalist")
        assert len(self.events(JobEnded)) == self.runs
        assert self.state.open == {}
        check_disputes(self)
        assert len(self.state.rounds_now) <= self.state.submitted.limits.max_rounds + 1
        assert self.state.reworks <= self.state.submitted.limits.max_rounds
        assert len(self.state.rejected_plans) <= self.state.submitted.limits.max_rounds
        assert self.state.question is None
        assert all(count == 1 for count in Counter(event.handoff_id for event in self.events(HandoffFinished)).values())
        assert fold(JobId(JOB), None, self.journal) == self.state
        at = self.dice.randrange(len(self.journal))
        assert fold(JobId(JOB), fold(JobId(JOB), None, self.journal[:at]), self.journal[at:]) == self.state

    # The workers' side

    def work(self) -> None:
        """Somebody takes a message, or finds that there is nothing to take."""
        if not self.queue:
            return
        handoff_id = self.queue.pop(self.dice.randrange(len(self.queue)))
        standing = self.held.get(handoff_id)
        if handoff_id in self.state.open and standing and not (standing.state == "running" and (standing.lease_until or 0) > self.now):
            self.held[handoff_id] = HandoffSeen("running", lease_until=self.now + LEASE_S)

    def finish_one(self) -> None:
        running = [i for i, one in self.held.items() if one.state == "running" and i in self.state.open]
        if not running:
            return
        handoff_id = self.dice.choice(sorted(running))
        role = self.state.open[handoff_id].assigned_to
        self.held.pop(handoff_id)
        match role:
            case "router":
                mode, to = self.dice.choice([(Mode.TEAM, None), (Mode.SINGLE, "writer")])
                self.happens(Routed(mode=mode, specialist=to, result=self.finishes("router")))
            case "planner" if self.state.plan is None:
                self.plan = any_plan(self.dice)
                self.plans(self.plan)
            case "planner":
                needy = [name for name, step in self.state.steps.items() if step.status is StepStatus.IN_NEED]
                self.answers_needs(**{name: self.dice.choice(["42", None]) for name in needy})
            case "judge":
                settles_by_chance(self, self.dice)
            case "assessor":
                self.judge()
            case "synthesizer":
                self.synthesises()
            case _:
                status = self.dice.choices(list(ResultStatus), [6, 1, 2, 1])[0]
                is_spent = status in (ResultStatus.PARTIAL, ResultStatus.FAILED) and self.dice.random() < 0.1
                step, changes = StepId(handoff_id.partition(".")[0]), {"stop_reason": StopReason.JOB_BUDGET} if is_spent else {}
                self.ends(handoff_id, status, claims=self.any_claims(step), usage=PAID, **changes)
        if self.dice.random() < 0.8:  # the chord's body, or the worker, wakes the supervisor; or nobody does
            self.advance()

    def any_claims(self, step: StepId) -> tuple[Claim, ...]:
        return tuple(a_claim(f"{step}.c{n}", self.dice.choice(["1", "1.0", "2"]), "km") for n in range(1, self.dice.choice([1, 1, 2, 3])))

    def judge(self) -> None:
        steps = sorted(self.state.steps)
        match self.dice.randrange(4):
            case 0:
                self.finishes("assessor", "failed")
                self.happens(Reviewed(round=len(self.state.rounds) + 1, decision=None, problem="no verdict"))
            case 1:
                self.judges(**dict.fromkeys(self.dice.sample(steps, self.dice.randint(1, len(steps))), "wrong"))
            case _:
                self.judges()

    def sweep(self) -> None:
        """What the ledger's sweep finds, or the job itself at its time."""
        lost = [i for i, one in self.held.items() if i in self.state.open and i not in self.queue and one.state == "issued"]
        expired = [i for i, one in self.held.items() if one.state == "running" and (one.lease_until or 0) <= self.now]
        for handoff_id in lost:
            self.held[handoff_id] = HandoffSeen("issued", lost=True)
        self.advance(*lost, *expired)

    def person_answers(self) -> None:
        """Somebody approves, perhaps of another plan, or rejects; perhaps of a question that does not stand any more."""
        asked = self.events(ApprovalAsked)
        if self.state.question is None:
            if asked:
                self.happens(Approved(asked=1), Rejected(asked=1))
        elif self.dice.random() < 0.4:
            some = self.dice.sample(sorted(self.state.steps), self.dice.randint(0, len(self.state.steps)))
            self.rejects("Not like this.", *(some if self.state.question.what is not ApprovalOf.PLAN else ()))
        else:
            self.approves(any_plan(self.dice) if self.state.question.what is ApprovalOf.PLAN and self.dice.random() < 0.3 else None)

    def time_passes(self) -> None:
        self.now += self.dice.choice([0.1, 1.0, LEASE_S + 1])

    def run(self) -> None:
        moves = [self.work, self.work, self.finish_one, self.finish_one, self.sweep, self.advance, self.time_passes]
        for _ in range(MOST_MOVES):
            if self.state.ended:
                return
            self.dice.choice(moves)()
            if not self.state.ended and self.dice.random() < 0.05:
                self.person_answers()
            if self.state.asked and not self.state.ended and self.dice.random() < 0.1:
                self.happens(RetryRequested(max_turns=self.dice.randint(1, 1_000)))
            if self.dice.random() < 0.002:
                self.happens(CancelRequested())
        raise AssertionError(f"it does not end: {self.state.phase}, {self.out}")


@settings(max_examples=500)
@given(st.integers(0, 10**9))
def test_every_job_ends_once_and_keeps_its_rules_on_the_way(seed: int) -> None:
    world = World(Random(seed))
    world.run()
    world.check_end()


@settings(max_examples=200)
@given(st.integers(0, 10**9))
def test_a_step_that_was_ever_usable_never_ends_with_nothing(seed: int) -> None:
    world = World(Random(seed))
    world.run()
    if world.state.status is JobStatus.CANCELLED:  # stopped in the middle of a revision
        return
    once_usable = {issued.step_id for issued in world.events(HandoffIssued) if issued.handoff_id in usable_handoffs(world)}
    assert all(world.state.steps[step_id].usable for step_id in once_usable if step_id in world.state.steps)


def usable_handoffs(world: World) -> set[HandoffId]:
    ends = world.events(HandoffFinished)
    return {end.handoff_id for end in ends if end.status in (ResultStatus.OK, ResultStatus.PARTIAL)}


@settings(max_examples=200)
@given(st.integers(0, 10**9))
def test_every_retry_ends_once_too(seed: int) -> None:
    world = World(Random(seed))
    for _ in range(3):
        world.run()
        world.check_end()
        world.happens(RetryRequested(from_step=world.dice.choice([None, *sorted(world.state.steps)])))
        world.runs += 1


@settings(max_examples=100)
@given(st.integers(0, 10**9))
def test_an_ended_job_stays_as_it_is_whatever_comes_late(seed: int) -> None:
    world = World(Random(seed))
    world.run()
    status, steps = world.state.status, world.state.steps
    late = [finished_event(a_result_of(HandoffId(f"{step}.9"), ResultStatus.OK), "") for step in sorted(steps)]

    world.happens(CancelRequested(), *late, WebhookTried(attempt=1, delivered=True))

    assert (world.state.status, world.state.steps) == (status, steps)
    assert world.decides() == ()


def test_a_journal_begins_with_its_submission() -> None:
    life = Life()

    assert isinstance(life.journal[0].event, JobSubmitted)
    assert fold(JobId(JOB), None, []) is None
