"""Briefs of the supervisor's roles, made from the state and the payloads of a job. The words are in
`supervisor/roles/briefs.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from handoff_queue.shared.store.presence import ServedSpecialist
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.names import Role
from handoff_queue.shared.types.plan import Plan
from handoff_queue.supervisor.engine.payload_loader import PayloadLoader
from handoff_queue.supervisor.engine.unit_of_work import UnitOfWork
from handoff_queue.supervisor.lifecycle.answer import results_for_answer, usable_sinks
from handoff_queue.supervisor.lifecycle.child_job_assignment import may_have_children
from handoff_queue.supervisor.lifecycle.conflict_resolution import (
    disputes_of,
    payloads_for_disputes,
)
from handoff_queue.supervisor.lifecycle.gaps import gaps_of
from handoff_queue.supervisor.lifecycle.gates import requirements_of
from handoff_queue.supervisor.lifecycle.helper_steps import can_help, steps_left
from handoff_queue.supervisor.lifecycle.replanning import (
    max_new_steps,
    patchable_steps,
    unseen_results,
)
from handoff_queue.supervisor.lifecycle.side_effects import steps_in_review
from handoff_queue.supervisor.lifecycle.state import (
    JobState,
    StepState,
    StepStatus,
)
from handoff_queue.supervisor.lifecycle.user_messages import (
    MAX_CHARS_IN_A_BRIEF,
    request_with_messages,
)
from handoff_queue.supervisor.roles.answer_text import clip
from handoff_queue.supervisor.roles.assessment import verdict_format
from handoff_queue.supervisor.roles.briefs import (
    MAX_REQUEST_CHARS,
    SUB_TEAM,
    Candidate,
    JobContext,
    RejectedPlanBrief,
    assessment_brief,
    needs_brief,
    plan_brief,
    replan_brief,
    route_brief,
    synthesis_brief,
)
from handoff_queue.supervisor.roles.disputed_review import judge_task, payloads_for_judge
from handoff_queue.supervisor.roles.input_requests import NeedsFormat
from handoff_queue.supervisor.roles.planner import PlanFormat
from handoff_queue.supervisor.roles.replanner import patch_schema
from handoff_queue.supervisor.roles.router import RouteFormat

MAX_SHOWN_REQUEST_CHARS = MAX_REQUEST_CHARS - MAX_CHARS_IN_A_BRIEF - 100
"""Most characters of the request in front of the messages of users."""


class RoleTask(NamedTuple):
    """The work of a role."""

    brief: str
    about: tuple[StepId, ...]
    """The steps whose results the role sees."""
    schema: Mapping[str, Any]
    """JSON Schema of its answer."""


def _state_in_words(step: StepState) -> str:
    """Return the state of a step in words: its result's status, `not begun` or `under way`."""
    if step.is_settled and step.result_status:
        return step.result_status.value
    if step.status is StepStatus.WAITING and step.attempt == 0:
        return "not begun"
    return "under way"


class RoleBriefs:
    """Writes the brief of each role. A role sees only its own context and no other role's
    messages.
    """

    def __init__(self, store: Store, loader: PayloadLoader) -> None:
        self._store = store
        self._loader = loader

    def usable_specialists(self, state: JobState) -> Mapping[str, ServedSpecialist]:
        """Return the served specialists that this job may use, by name."""
        allowed_specialists = state.submitted.specialists
        served = self._store.presence.load_served_specialists()
        if not allowed_specialists:
            return served
        usable: dict[str, ServedSpecialist] = {}
        for name, specialist in served.items():
            if name in allowed_specialists:
                usable[name] = specialist
        return usable

    def _candidates(self, state: JobState) -> list[Candidate]:
        """Return the served specialists as planners see them."""
        candidates: list[Candidate] = []
        for name, specialist in self.usable_specialists(state).items():
            spec = specialist.spec
            candidates.append(Candidate(name, spec.description, spec.tools, specialist.queued))
        return candidates

    def _candidates_and_child_job(self, state: JobState) -> list[Candidate]:
        """Return the served specialists and, where allowed, a child job."""
        candidates = self._candidates(state)
        if may_have_children(state.submitted):
            candidates.append(SUB_TEAM)
        return candidates

    def brief(self, state: JobState, role: Role, request: str, writes: UnitOfWork) -> RoleTask:
        """Return the task of a role. The messages of users are a part of the request."""
        request = self._with_messages(state, request, writes)
        match role:
            case Role.ROUTER:
                return self._routing(state, request)
            case Role.PLANNER:
                return self._planning(state, request, writes)
            case Role.REPLANNER:
                return self._replanning(state, request, writes)
            case Role.JUDGE:
                texts = self._loader.texts(state, payloads_for_judge(state), writes)
                brief, schema = judge_task(state, texts)
                return RoleTask(brief, (), schema)
            case Role.ASSESSOR:
                return self._assessment(state, request, writes)
            case Role.SYNTHESIZER:
                return self._synthesis(state, request, writes)

    def _with_messages(self, state: JobState, request: str, writes: UnitOfWork) -> str:
        """Return the request and the messages that users have sent since."""
        if not state.messages:
            return request
        texts = self._loader.texts(state, [message.text for message in state.messages], writes)
        messages = [(message, texts.texts[message.text.digest]) for message in state.messages]
        return request_with_messages(clip(request, MAX_SHOWN_REQUEST_CHARS), messages)

    def _routing(self, state: JobState, request: str) -> RoleTask:
        candidates = self._candidates(state)
        text = route_brief(request, candidates, self._job_context(state))
        return RoleTask(text, (), RouteFormat(_candidate_names(candidates)).schema)

    def _planning(self, state: JobState, request: str, writes: UnitOfWork) -> RoleTask:
        """Return the planner's task: the first plan, or the questions of steps of this plan."""
        if state.plan is None:
            return self._first_plan(state, request)
        return self._needs(state, request, writes)

    def _needs(self, state: JobState, request: str, writes: UnitOfWork) -> RoleTask:
        """Return the planner's task to resolve the questions of steps."""
        plan = self._loader.plan(state, writes)
        asking: dict[StepId, BlobRef] = {}
        with_result: list[StepId] = []
        for step_id, step in state.steps.items():
            if step.result:
                with_result.append(step_id)
                if step.status is StepStatus.IN_NEED:
                    asking[step_id] = step.result
        texts = self._loader.texts(state, asking.values(), writes)
        needs: dict[str, str] = {}
        for step_id, reference in asking.items():
            needs[str(step_id)] = texts.result(reference).needs or ""
        helpers: list[Candidate] = []
        if can_help(state):
            helpers = self._candidates(state)
        text = needs_brief(request, plan, needs, helpers, steps_left(state))
        schema = NeedsFormat(tuple(needs), _candidate_names(helpers)).schema
        return RoleTask(text, tuple(with_result), schema)

    def _replanning(self, state: JobState, request: str, writes: UnitOfWork) -> RoleTask:
        """Return the replanner's task to change the plan after new results."""
        plan = self._loader.plan(state, writes)
        candidates = self._candidates_and_child_job(state)
        step_states: dict[StepId, str] = {}
        settled_steps: list[StepId] = []
        for step_id, step in state.steps.items():
            step_states[step_id] = _state_in_words(step)
            if step.is_settled:
                settled_steps.append(step_id)
        new_steps_left = max_new_steps(state)
        text = replan_brief(
            request,
            plan,
            step_states,
            unseen_results(state),
            candidates,
            new_steps_left,
            state.submitted.limits.max_rounds - state.patches.changes,
            self._job_context(state),
        )
        names = _candidate_names(candidates)
        schema = patch_schema(names, patchable_steps(state), new_steps_left)
        return RoleTask(text, (*plan.given, *settled_steps), schema)

    def _assessment(self, state: JobState, request: str, writes: UnitOfWork) -> RoleTask:
        """Return the assessor's task to review a round of results."""
        plan = self._loader.plan(state, writes)
        texts = self._loader.texts(state, payloads_for_disputes(state), writes)
        conflicts = [dispute.brief() for dispute in disputes_of(state, texts)]
        left = max(0, state.submitted.limits.max_rounds - state.reworks)
        number = len(state.rounds_now) + 1
        verdicts, steps = verdict_format(state), steps_in_review(state)
        text = assessment_brief(request, plan, number, left, conflicts, verdicts.rubric, steps)
        return RoleTask(text, steps, verdicts.schema)

    def _synthesis(self, state: JobState, request: str, writes: UnitOfWork) -> RoleTask:
        """Return the synthesizer's task to write the answer."""
        plan = self._loader.plan(state, writes)
        refs = [*results_for_answer(state)]
        if state.turned_down:
            refs.append(state.turned_down)
        texts = self._loader.texts(state, refs, writes)
        verdict = texts.verdict(state.last_round)
        open_points = verdict.open_points if verdict else ()
        vetoes = texts.objections(state.turned_down) if state.turned_down else ()
        gaps = [f"{gap.step}: {gap.why}" for gap in gaps_of(state, texts)]
        conflicts = [dispute.brief() for dispute in disputes_of(state, texts)]
        text = synthesis_brief(
            request, plan, gaps, open_points, vetoes, conflicts, requirements_of(state)
        )
        return RoleTask(text, usable_sinks(state), self._loader.answer_schema(state))

    def _first_plan(self, state: JobState, request: str) -> RoleTask:
        """Return the planner's task to make the first plan of a job."""
        candidates = self._candidates_and_child_job(state)
        given_steps = tuple(result.step for result in state.submitted.given)
        most_steps = state.submitted.limits.max_steps
        plan_format = PlanFormat(
            _candidate_names(candidates),
            most_steps,
            given_steps,
            state.submitted.approvals.are_wanted,
        )
        text = plan_brief(
            request,
            candidates,
            most_steps,
            self._load_rejected_plans(state),
            self._job_context(state),
        )
        return RoleTask(text, given_steps, plan_format.schema)

    def _job_context(self, state: JobState) -> JobContext:
        """Return the job's inputs and the request of the job that it follows."""
        submitted = state.submitted
        earlier_request = None
        if submitted.after:
            earlier_request = self._loader.text(state, submitted.after.request)
        return JobContext(submitted.given, earlier_request)

    def _load_rejected_plans(self, state: JobState) -> list[RejectedPlanBrief]:
        """Return the plans that the user rejected, with the user's notes."""

        def plan(ref: BlobRef) -> Plan:
            return Plan.from_json(self._loader.text(state, ref))

        briefs: list[RejectedPlanBrief] = []
        for rejected_plan in state.rejected_plans:
            note = ""
            if rejected_plan.note:
                note = self._loader.text(state, rejected_plan.note)
            own_plan = None
            if rejected_plan.own_plan:
                own_plan = plan(rejected_plan.own_plan)
            briefs.append(RejectedPlanBrief(plan(rejected_plan.plan), note, own_plan))
        return briefs


def _candidate_names(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    return tuple(candidate.name for candidate in candidates)
