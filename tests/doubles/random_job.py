"""A random simulation of one job: plans, patches, answers, and lost, duplicate or late messages.

It checks the invariants of a job at every step.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from handoff_queue.shared.types.events import (
    ApprovalAsked,
    Approved,
    CancelRequested,
    HandoffFinished,
    JobEnded,
    JobStatus,
    Rejected,
    RetryRequested,
    Reviewed,
    Routed,
    UserMessageSent,
    UserMessageTaken,
)
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.handoff import Claim, ResultStatus, StopReason
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId
from handoff_queue.shared.types.job_options import ApprovalOf, Mode
from handoff_queue.shared.types.limits import JobLimits, OnLimit
from handoff_queue.shared.types.names import CLOSING_ROLES, FACT_GATE, Role
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.step import Step
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.lifecycle.commands import (
    Command,
    EndJob,
    IssueFactCheck,
    IssueGroup,
    IssueRole,
    IssueToChild,
    PublishAgain,
    RunRole,
    StartChild,
)
from handoff_queue.supervisor.lifecycle.helper_steps import count_steps_left, find_helpers
from handoff_queue.supervisor.lifecycle.job_end import compute_next_due
from handoff_queue.supervisor.lifecycle.observations import Observations, ObservedHandoff
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.side_effects import find_review_dependents
from handoff_queue.supervisor.lifecycle.state import StepStatus
from tests.doubles.conflicting_claims import a_claim, check_disputes, settle_randomly
from tests.doubles.disputed_reviews import check_disputed_reviews, insist_randomly, rule_randomly
from tests.doubles.effect_invariants import acts_randomly, check_acts_once, with_random_conditions
from tests.doubles.fact_check_invariants import (
    check_fact_check_begin,
    check_facts_randomly,
    check_facts_were_checked,
)
from tests.doubles.handoffs import JOB
from tests.doubles.input_resolutions import PlannerView, an_input_step
from tests.doubles.join_invariants import check_ready_steps_begin, check_step_begin
from tests.doubles.random_calls import answer_call_randomly, asks_randomly, release_answered
from tests.doubles.random_inputs import any_approvals, any_patch, any_plan
from tests.doubles.simulated_job import LEASE_S, RESEARCHERS, SimulatedJob

MAX_ACTIONS = 2_000
ANSWERED = [status for status in ResultStatus if status is not ResultStatus.SKIPPED]
"""Statuses that a specialist can report."""
PAID = Usage(input_tokens=10, output_tokens=1, cost_microusd=10)


class RandomJob(SimulatedJob):
    """A job with random faults between supervisor and worker. It keeps the rules of the store, and
    checks the invariants of the job.
    """

    def __init__(self, dice: Random, mode: Mode | None = None) -> None:
        """Draw the limits, the mode, the gates and the approvals of the job.

        `mode`: the job's mode, or None for a random mode.
        """
        limits = JobLimits(
            max_rounds=dice.randrange(3),
            max_handoffs=dice.choice([3, 12, 200]),
            max_steps=dice.choice([8, 9, 20]),
            max_seconds=dice.choice([60, 3_600, 1_000_000]),
            on_limit=dice.choice(list(OnLimit)),
        )
        checked = [
            Gates(fact_checker="writer"),
            Gates(max_words=9, fact_checker="writer"),
            Gates(fact_checker="lawyer"),
        ]
        gates = dice.choice([None, Gates(max_words=1), Gates(min_words=1), *checked])
        webhook_url = dice.choice([None, "https://example.org"])
        mode = mode or dice.choice([Mode.TEAM, *Mode])
        approvals = any_approvals(dice)
        specialists = dice.choice([RESEARCHERS, RESEARCHERS | {"generalist"}])
        acting = dice.choice([frozenset(), frozenset(), frozenset({"researcher"})])
        self.dice = dice
        super().__init__(
            limits,
            self.any_plan() if mode is Mode.PIPELINE else None,
            webhook_url=webhook_url,
            mode=mode,
            approvals=approvals,
            gates=gates,
        )
        self.specialists, self.acting = specialists, acting
        self.redo_steps: set[StepId] = set()
        """Steps that a person repeats by name."""
        self.observed_handoffs: dict[HandoffId, ObservedHandoff] = {}
        """State of each open handoff in the store."""
        self.queue: list[HandoffId] = []
        """Published messages. Some were lost, and some are duplicates."""
        self.planner_view: PlannerView = (self.state, None)
        """State and plan of the job at the planner's last call."""
        self.runs = 1

    # The supervisor's side

    def wake_up(self, *suspects: HandoffId) -> None:
        """Evaluate the job until no command follows, then publish the new handoffs.

        `suspects`: handoffs whose state in the store the supervisor reads.
        """
        observed_ids = {
            *suspects,
            *(i for i, handoff in self.state.open.items() if handoff.group is None),
        }
        self.observed_handoffs = {
            i: observed for i, observed in self.observed_handoffs.items() if i in self.state.open
        }
        is_away = (
            self.state.submitted.fact_checker not in self.specialists or self.dice.random() < 0.1
        )
        observations = Observations(
            self.specialists,
            {i: observed for i, observed in self.observed_handoffs.items() if i in observed_ids},
            is_fact_checker_away=is_away,
            acting=self.acting,
        )
        before = set(self.state.open)
        for command in self.advance(observations):
            if isinstance(command, PublishAgain):
                self.queue += command.handoffs
            if isinstance(command, RunRole | StartChild):
                self.queue.append(command.handoff_id)
        for handoff_id in set(self.state.open) - before:
            self.observed_handoffs[handoff_id] = ObservedHandoff("issued")
            self.publish(handoff_id)
        assert self.next_commands(Observations(self.specialists, acting=self.acting)) == (), (
            "a second evaluation decides nothing"
        )
        if not self.state.question and self.state.asked_at is None and not self.state.ended:
            check_ready_steps_begin(self)
        self.check_due()

    def publish(self, handoff_id: HandoffId) -> None:
        """Put the message of a handoff into the queue: once, twice or not at all."""
        self.queue += [handoff_id] * self.dice.choice([0, 1, 1, 1, 2])

    def record(self, command: Command) -> None:
        if isinstance(command, IssueGroup | IssueToChild | IssueRole | EndJob):
            self.check_approved(command)
        if isinstance(command, IssueGroup):
            for step_id in command.steps:
                self.check_start(step_id)
        if isinstance(command, IssueToChild):
            self.check_start(command.step)
        if isinstance(command, IssueFactCheck):
            check_fact_check_begin(self)
        super().record(command)
        if command == IssueRole(Role.PLANNER, self.state.role_attempts.get("planner", 0)):
            self.planner_view = (self.state, self.plan)
        if isinstance(command, IssueGroup):
            for step_id in command.steps:
                handoff = self.handoffs[self.step(step_id).handoff_id or HandoffId("")]
                assert sorted(item.step_id for item in handoff.context) == sorted(
                    handoff.depends_on
                )

    # Invariants

    def check_start(self, step_id: StepId) -> None:
        """Check that a step may begin: by its join and its effects, and with no open handoff."""
        step = self.step(step_id)
        check_step_begin(self, step)
        check_acts_once(self, step_id, self.redo_steps)
        assert not any(handoff.step_id == step_id for handoff in self.state.open.values()), (
            "two handoffs of one step at once"
        )

    def check_approved(self, command: IssueGroup | IssueToChild | IssueRole | EndJob) -> None:
        """Check that nothing begins and no answer leaves before the required approval."""
        required = {
            IssueGroup: [ApprovalOf.PLAN],
            IssueToChild: [ApprovalOf.PLAN],
            IssueRole: [ApprovalOf.RESEARCH]
            if isinstance(command, IssueRole) and command.role in CLOSING_ROLES
            else [],
            EndJob: [ApprovalOf.ANSWER]
            if isinstance(command, EndJob) and command.status in (JobStatus.OK, JobStatus.PARTIAL)
            else [],
        }[type(command)]
        wanted = {*self.state.submitted.approvals.what}
        assert {*required} & wanted <= {*self.state.approved}
        assert (
            self.state.question is None
            or self.state.asks_about_steps
            or (isinstance(command, EndJob) and not required)
        )

    def check_due(self) -> None:
        due = compute_next_due(self.state, self.now, LEASE_S)
        if self.state.ended is None:
            end = self.state.question.until if self.state.question else self.state.deadline
            assert due is not None, "a job that has not ended has a due time"
            assert self.now < due <= max(end, self.now + 2)

    def check_end(self) -> None:
        for step in self.state.steps.values():
            assert step.given_to in (None, "generalist")
        assert len(self.events(JobEnded)) == self.runs
        assert self.state.open == {}
        check_disputes(self)
        check_disputed_reviews(self)
        check_facts_were_checked(self)
        extra_rounds = self.state.patches.changes if find_review_dependents(self.state) else 0
        most = self.state.submitted.limits.max_rounds + 1 + extra_rounds
        assert len(self.state.rounds_now) <= most
        assert self.state.reworks <= self.state.submitted.limits.max_rounds
        assert self.state.patches.changes <= self.state.submitted.limits.max_rounds
        assert len(self.state.steps) <= self.state.submitted.limits.max_steps
        assert len(self.state.rejected_plans) <= self.state.submitted.limits.max_rounds
        assert self.state.question is None
        assert self.state.asked_calls == ()
        assert all(
            count == 1
            for count in Counter(
                event.handoff_id for event in self.events(HandoffFinished)
            ).values()
        )
        assert fold(JobId(JOB), None, self.journal) == self.state
        at = self.dice.randrange(len(self.journal))
        assert (
            fold(JobId(JOB), fold(JobId(JOB), None, self.journal[:at]), self.journal[at:])
            == self.state
        )

    # The workers' side

    def work(self) -> None:
        """Let a worker take one message. The message may be out of date."""
        if not self.queue:
            return
        handoff_id = self.queue.pop(self.dice.randrange(len(self.queue)))
        observed = self.observed_handoffs.get(handoff_id)
        if (
            handoff_id in self.state.open
            and observed
            and not observed.waits
            and not (observed.state == "running" and (observed.lease_until or 0) > self.now)
        ):
            self.observed_handoffs[handoff_id] = ObservedHandoff(
                "running", lease_until=self.now + LEASE_S
            )

    def finish_one(self) -> None:
        running = [
            i
            for i, observed in self.observed_handoffs.items()
            if observed.state == "running" and i in self.state.open
        ]
        if not running:
            return
        handoff_id = self.dice.choice(sorted(running))
        if asks_randomly(self, self.dice, handoff_id):
            return
        role = self.state.open[handoff_id].assigned_to
        self.observed_handoffs.pop(handoff_id)
        match role:
            case _ if handoff_id.startswith(FACT_GATE):
                check_facts_randomly(self, self.dice)
            case "router":
                mode, specialist = self.dice.choice([(Mode.TEAM, None), (Mode.SINGLE, "writer")])
                self.append(Routed(mode=mode, specialist=specialist, result=self.finish("router")))
            case "planner" if self.state.plan is None:
                self.make_plan(self.any_plan())
            case "planner":
                in_need = [
                    name
                    for name, step in self.planner_view[0].steps.items()
                    if step.status is StepStatus.IN_NEED
                ]
                self.resolve_needs(
                    self.planner_view, **{name: self.any_answer(name) for name in in_need}
                )
            case "replanner":
                assert self.plan is not None
                patch = any_patch(self.dice, self.plan, len(self.journal))
                self.patch_plan(patch, status=self.dice.choice(["ok", "ok", "ok", "failed"]))
            case "judge":
                is_ruling = self.state.open[handoff_id].closes
                (rule_randomly if is_ruling else settle_randomly)(self, self.dice)
            case "assessor":
                self.review_randomly()
            case "synthesizer":
                self.synthesize()
            case _:
                status = self.dice.choices(ANSWERED, [6, 1, 2, 1])[0]
                is_spent = (
                    status in (ResultStatus.PARTIAL, ResultStatus.FAILED)
                    and self.dice.random() < 0.1
                )
                step = StepId(handoff_id.partition(".")[0])
                changes: dict[str, Any] = {"stop_reason": StopReason.JOB_BUDGET} if is_spent else {}
                changes["acted"] = acts_randomly(self.dice, self, step, status)
                self.finish_handoff(
                    handoff_id, status, claims=self.any_claims(step), usage=PAID, **changes
                )
        if (
            self.dice.random() < 0.8
        ):  # Most times the chord's body or the worker wakes the supervisor.
            self.wake_up()

    def any_plan(self) -> Plan:
        return with_random_conditions(self.dice, any_plan(self.dice))

    def any_answer(self, name: StepId) -> str | Step | None:
        """Return a random answer for a step in need. Two steps may wait for the same input step."""
        state = self.planner_view[0]
        if count_steps_left(state) and name not in find_helpers(state) and self.dice.random() < 0.7:
            return an_input_step(f"h{len(self.journal)}")
        return self.dice.choice(["42", None])

    def any_claims(self, step: StepId) -> tuple[Claim, ...]:
        return tuple(
            a_claim(f"{step}.c{n}", self.dice.choice(["1", "1.0", "2"]), "km")
            for n in range(1, self.dice.choice([1, 1, 2, 3]))
        )

    def review_randomly(self) -> None:
        match self.dice.randrange(4):
            case 0:
                self.finish("assessor", "failed")
                self.append(
                    Reviewed(round=len(self.state.rounds) + 1, decision=None, problem="no verdict")
                )
            case 1:
                insist_randomly(self, self.dice)
            case _:
                self.review()

    def sweep(self) -> None:
        """Advance the job as the sweeper does, or at its due time."""
        lost = [
            i
            for i, observed in self.observed_handoffs.items()
            if i in self.state.open
            and i not in self.queue
            and observed.state == "issued"
            and not observed.waits
        ]
        expired = [
            i
            for i, observed in self.observed_handoffs.items()
            if observed.state == "running" and (observed.lease_until or 0) <= self.now
        ]
        for handoff_id in lost:
            self.observed_handoffs[handoff_id] = ObservedHandoff("issued", lost=True)
        self.wake_up(*lost, *expired)

    def answer_as_person(self) -> None:
        """Let a person approve, perhaps a changed plan, or reject.

        The answer may be for a question that is no longer open.
        """
        asked = self.events(ApprovalAsked)
        if self.state.question is None:
            if asked:
                self.append(Approved(asked=1), Rejected(asked=1))
        elif self.dice.random() < 0.4:
            steps = self.dice.sample(
                sorted(self.state.steps), self.dice.randint(0, len(self.state.steps))
            )
            subject = self.state.question.what
            if subject not in (ApprovalOf.PLAN, ApprovalOf.STEP):
                self.redo_steps |= {*steps}
            self.reject("Not like this.", *(steps if subject is not ApprovalOf.PLAN else ()))
        else:
            self.approve(
                self.any_plan()
                if self.state.question.what is ApprovalOf.PLAN and self.dice.random() < 0.3
                else None
            )

    def speak_as_user(self) -> None:
        """Send a message to one step or to all. Some running agents take an earlier message."""
        for message in self.state.messages:
            for handoff_id in self.state.open:
                known = {taken.handoff_id for taken in message.taken}
                if handoff_id not in known and self.dice.random() < 0.5:
                    self.append(
                        UserMessageTaken(
                            message_id=message.message_id, handoff_id=handoff_id, turn=1
                        )
                    )
        step = self.dice.choice([None, *self.state.steps])
        text = self.store_text(f"message {len(self.state.messages)}")
        message_id = f"{len(self.state.messages):016x}"
        self.append(UserMessageSent(message_id=message_id, text=text, step=step))

    def time_passes(self) -> None:
        self.now += self.dice.choice([0.1, 1.0, LEASE_S + 1])

    def run(self) -> None:
        actions = [
            self.work,
            self.work,
            self.finish_one,
            self.finish_one,
            self.sweep,
            self.wake_up,
            self.time_passes,
        ]
        for _ in range(MAX_ACTIONS):
            if self.state.ended:
                return
            self.dice.choice(actions)()
            if not self.state.ended and self.dice.random() < 0.05:
                self.answer_as_person()
            if (
                self.state.asked_at is not None
                and not self.state.ended
                and self.dice.random() < 0.1
            ):
                self.append(RetryRequested(max_turns=self.dice.randint(1, 1_000)))
            if not self.state.ended and self.dice.random() < 0.1:
                answer_call_randomly(self, self.dice)
            release_answered(self)
            if self.dice.random() < 0.002:
                self.append(CancelRequested())
            if self.dice.random() < 0.01 and not self.state.ended:
                self.speak_as_user()
        raise AssertionError(f"it does not end: {self.state.phase}, {self.open_names}")
