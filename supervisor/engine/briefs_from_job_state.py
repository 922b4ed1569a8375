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
from handoff_queue.shared.types.origins import WEB, Origin
from handoff_queue.shared.types.plan import Plan
from handoff_queue.supervisor.engine.payload_loader import PayloadLoader
from handoff_queue.supervisor.engine.unit_of_work import UnitOfWork
from handoff_queue.supervisor.lifecycle.answer import find_usable_sinks, list_results_for_answer
from handoff_queue.supervisor.lifecycle.child_jobs import may_have_children
from handoff_queue.supervisor.lifecycle.conflict_resolution import (
    find_disputes,
    list_dispute_payloads,
)
from handoff_queue.supervisor.lifecycle.gaps import find_gaps
from handoff_queue.supervisor.lifecycle.gates import list_requirements
from handoff_queue.supervisor.lifecycle.helper_steps import can_help, count_steps_left
from handoff_queue.supervisor.lifecycle.replanning import (
    compute_max_new_steps,
    find_patchable_steps,
    find_unseen_results,
)
from handoff_queue.supervisor.lifecycle.side_effects import list_reviewed_steps
from handoff_queue.supervisor.lifecycle.state import (
    JobState,
    StepState,
    StepStatus,
)
from handoff_queue.supervisor.lifecycle.user_messages import (
    MAX_CHARS_IN_A_BRIEF,
    add_messages_to_request,
)
from handoff_queue.supervisor.roles.answer_text import clip
from handoff_queue.supervisor.roles.assessment import build_verdict_format
from handoff_queue.supervisor.roles.briefs import (
    MAX_REQUEST_CHARS,
    SUB_TEAM,
    Candidate,
    JobContext,
    RejectedPlanBrief,
    build_assessment_brief,
    build_needs_brief,
    build_plan_brief,
    build_replan_brief,
    build_route_brief,
    build_synthesis_brief,
)
from handoff_queue.supervisor.roles.input_requests import NeedsFormat
from handoff_queue.supervisor.roles.judge import build_judge_task, list_judge_payloads
from handoff_queue.supervisor.roles.planner import PlanFormat
from handoff_queue.supervisor.roles.replanner import build_patch_schema
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
    origins: tuple[Origin, ...] = ()
    """Origins of the brief, in addition to those of the job."""


def _describe_state(step: StepState) -> str:
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

    def get_usable_specialists(self, state: JobState) -> Mapping[str, ServedSpecialist]:
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

    def _list_candidates(self, state: JobState) -> list[Candidate]:
        """Return the served specialists as planners see them."""
        candidates: list[Candidate] = []
        for name, specialist in self.get_usable_specialists(state).items():
            spec = specialist.spec
            candidates.append(Candidate(name, spec.description, spec.tools, specialist.queued))
        return candidates

    def _find_origins_of_candidates(self, state: JobState) -> tuple[Origin, ...]:
        """Return the origin of the words that only workers have announced, if a planner reads such
        words. They count as a text of the web, so that they cannot make another agent act.
        """
        specialists = self.get_usable_specialists(state).values()
        if any(specialist.is_only_announced for specialist in specialists):
            return (WEB,)
        return ()

    def _list_candidates_and_child_job(self, state: JobState) -> list[Candidate]:
        """Return the served specialists and, where allowed, a child job."""
        candidates = self._list_candidates(state)
        if may_have_children(state.submitted):
            candidates.append(SUB_TEAM)
        return candidates

    def build_brief(
        self, state: JobState, role: Role, request: str, writes: UnitOfWork
    ) -> RoleTask:
        """Return the task of a role. The messages of users are a part of the request."""
        request = self._with_messages(state, request, writes)
        match role:
            case Role.ROUTER:
                return self._build_routing_task(state, request)
            case Role.PLANNER:
                return self._build_planning_task(state, request, writes)
            case Role.REPLANNER:
                return self._build_replanning_task(state, request, writes)
            case Role.JUDGE:
                texts = self._loader.load_texts(state, list_judge_payloads(state), writes)
                brief, schema = build_judge_task(state, texts)
                return RoleTask(brief, (), schema)
            case Role.ASSESSOR:
                return self._build_assessment_task(state, request, writes)
            case Role.SYNTHESIZER:
                return self._build_synthesis_task(state, request, writes)

    def _with_messages(self, state: JobState, request: str, writes: UnitOfWork) -> str:
        """Return the request and the messages that users have sent since."""
        if not state.messages:
            return request
        texts = self._loader.load_texts(state, [message.text for message in state.messages], writes)
        messages = [(message, texts.texts[message.text.digest]) for message in state.messages]
        return add_messages_to_request(clip(request, MAX_SHOWN_REQUEST_CHARS), messages)

    def _build_routing_task(self, state: JobState, request: str) -> RoleTask:
        candidates = self._list_candidates(state)
        text = build_route_brief(request, candidates, self._build_job_context(state))
        return RoleTask(text, (), RouteFormat(_list_candidate_names(candidates)).schema)

    def _build_planning_task(self, state: JobState, request: str, writes: UnitOfWork) -> RoleTask:
        """Return the planner's task: the first plan, or the questions of steps of this plan."""
        if state.plan is None:
            return self._build_first_plan_task(state, request)
        return self._build_needs_task(state, request, writes)

    def _build_needs_task(self, state: JobState, request: str, writes: UnitOfWork) -> RoleTask:
        """Return the planner's task to resolve the questions of steps."""
        plan = self._loader.plan(state, writes)
        asking: dict[StepId, BlobRef] = {}
        with_result: list[StepId] = []
        for step_id, step in state.steps.items():
            if step.result:
                with_result.append(step_id)
                if step.status is StepStatus.IN_NEED:
                    asking[step_id] = step.result
        texts = self._loader.load_texts(state, asking.values(), writes)
        needs: dict[str, str] = {}
        for step_id, reference in asking.items():
            needs[str(step_id)] = texts.get_result(reference).needs or ""
        helpers: list[Candidate] = []
        if can_help(state):
            helpers = self._list_candidates(state)
        text = build_needs_brief(request, plan, needs, helpers, count_steps_left(state))
        schema = NeedsFormat(tuple(needs), _list_candidate_names(helpers)).schema
        origins = self._find_origins_of_candidates(state) if helpers else ()
        return RoleTask(text, tuple(with_result), schema, origins)

    def _build_replanning_task(self, state: JobState, request: str, writes: UnitOfWork) -> RoleTask:
        """Return the replanner's task to change the plan after new results."""
        plan = self._loader.plan(state, writes)
        candidates = self._list_candidates_and_child_job(state)
        step_states: dict[StepId, str] = {}
        settled_steps: list[StepId] = []
        for step_id, step in state.steps.items():
            step_states[step_id] = _describe_state(step)
            if step.is_settled:
                settled_steps.append(step_id)
        new_steps_left = compute_max_new_steps(state)
        text = build_replan_brief(
            request,
            plan,
            step_states,
            find_unseen_results(state),
            candidates,
            new_steps_left,
            state.submitted.limits.max_rounds - state.patches.changes,
            self._build_job_context(state),
        )
        names = _list_candidate_names(candidates)
        schema = build_patch_schema(names, find_patchable_steps(state), new_steps_left)
        about = (*plan.given, *settled_steps)
        return RoleTask(text, about, schema, self._find_origins_of_candidates(state))

    def _build_assessment_task(self, state: JobState, request: str, writes: UnitOfWork) -> RoleTask:
        """Return the assessor's task to review a round of results."""
        plan = self._loader.plan(state, writes)
        texts = self._loader.load_texts(state, list_dispute_payloads(state), writes)
        conflicts = [dispute.build_brief() for dispute in find_disputes(state, texts)]
        left = max(0, state.submitted.limits.max_rounds - state.reworks)
        number = len(state.rounds_now) + 1
        verdicts, steps = build_verdict_format(state), list_reviewed_steps(state)
        text = build_assessment_brief(
            request, plan, number, left, conflicts, verdicts.rubric, steps
        )
        return RoleTask(text, steps, verdicts.schema)

    def _build_synthesis_task(self, state: JobState, request: str, writes: UnitOfWork) -> RoleTask:
        """Return the synthesizer's task to write the answer."""
        plan = self._loader.plan(state, writes)
        refs = [*list_results_for_answer(state)]
        if state.turned_down:
            refs.append(state.turned_down)
        texts = self._loader.load_texts(state, refs, writes)
        verdict = texts.get_verdict(state.last_round)
        open_points = verdict.open_points if verdict else ()
        vetoes = texts.get_objections(state.turned_down) if state.turned_down else ()
        gaps = [f"{gap.step}: {gap.why}" for gap in find_gaps(state, texts)]
        conflicts = [dispute.build_brief() for dispute in find_disputes(state, texts)]
        text = build_synthesis_brief(
            request, plan, gaps, open_points, vetoes, conflicts, list_requirements(state)
        )
        return RoleTask(text, find_usable_sinks(state), self._loader.load_answer_schema(state))

    def _build_first_plan_task(self, state: JobState, request: str) -> RoleTask:
        """Return the planner's task to make the first plan of a job."""
        candidates = self._list_candidates_and_child_job(state)
        given_steps = tuple(result.step for result in state.submitted.given)
        most_steps = state.submitted.limits.max_steps
        plan_format = PlanFormat(
            _list_candidate_names(candidates),
            most_steps,
            given_steps,
            state.submitted.approvals.are_wanted,
        )
        text = build_plan_brief(
            request,
            candidates,
            most_steps,
            self._load_rejected_plans(state),
            self._build_job_context(state),
        )
        origins = self._find_origins_of_candidates(state)
        return RoleTask(text, given_steps, plan_format.schema, origins)

    def _build_job_context(self, state: JobState) -> JobContext:
        """Return the job's inputs and the request of the job that it follows."""
        submitted = state.submitted
        earlier_request = None
        if submitted.after:
            earlier_request = self._loader.load_text(state, submitted.after.request)
        return JobContext(submitted.given, earlier_request)

    def _load_rejected_plans(self, state: JobState) -> list[RejectedPlanBrief]:
        """Return the plans that the user rejected, with the user's notes."""

        def plan(ref: BlobRef) -> Plan:
            return Plan.from_json(self._loader.load_text(state, ref))

        briefs: list[RejectedPlanBrief] = []
        for rejected_plan in state.rejected_plans:
            note = ""
            if rejected_plan.note:
                note = self._loader.load_text(state, rejected_plan.note)
            own_plan = None
            if rejected_plan.own_plan:
                own_plan = plan(rejected_plan.own_plan)
            briefs.append(RejectedPlanBrief(plan(rejected_plan.plan), note, own_plan))
        return briefs


def _list_candidate_names(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    return tuple(candidate.name for candidate in candidates)
