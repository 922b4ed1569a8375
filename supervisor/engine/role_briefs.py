"""Briefs of the supervisor's roles, made from the state and the payloads of a job; and the
event that follows from the replanner's answer.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.store.presence import ServedSpecialist
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import PlanPatched
from handoff_queue.shared.types.handoff import BlobRef, ref
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Plan
from handoff_queue.supervisor.engine.pending_writes import PendingWrites
from handoff_queue.supervisor.lifecycle.answer import results_for_answer, usable_sinks
from handoff_queue.supervisor.lifecycle.disputes import disputes_of, payloads_for_disputes
from handoff_queue.supervisor.lifecycle.effects import patch_after_review, reviewed_steps
from handoff_queue.supervisor.lifecycle.gaps import gaps_of
from handoff_queue.supervisor.lifecycle.input_steps import can_help, steps_left
from handoff_queue.supervisor.lifecycle.replanning import (
    apply_patch,
    most_new_steps,
    unbegun_steps,
    unseen_results,
)
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState, StepState, StepStatus
from handoff_queue.supervisor.lifecycle.teams import may_have_children
from handoff_queue.supervisor.roles.assessment import verdict_format
from handoff_queue.supervisor.roles.briefs import (
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
from handoff_queue.supervisor.roles.outcomes import outline_of
from handoff_queue.supervisor.roles.planner import PlanFormat
from handoff_queue.supervisor.roles.replanner import patch_schema
from handoff_queue.supervisor.roles.router import RouteFormat


def replanning(
    state: JobState, request: str, plan: Plan, candidates: Sequence[Candidate], known: JobContext
) -> tuple[str, tuple[StepId, ...], Mapping[str, Any]]:
    """Return the replanner's brief, the steps whose results it sees, and the schema of its
    answer.
    """
    standings: dict[StepId, str] = {}
    settled: list[StepId] = []
    for step_id, step in state.steps.items():
        standings[step_id] = _standing(step)
        if step.status is StepStatus.SETTLED:
            settled.append(step_id)
    most, left = most_new_steps(state), state.submitted.limits.max_rounds - state.patches.changes
    task = replan_brief(
        request, plan, standings, unseen_results(state), candidates, most, left, known
    )
    names = [candidate.name for candidate in candidates]
    return task, (*plan.given, *settled), patch_schema(names, unbegun_steps(state), most)


def _standing(step: StepState) -> str:
    """Return the standing of a step in words: its result's status, `not begun` or `under way`."""
    if step.status is StepStatus.SETTLED and step.result_status:
        return step.result_status.value
    if step.status is StepStatus.WAITING and step.attempt == 0:
        return "not begun"
    return "under way"


def record_patch(
    state: JobState,
    plan: Plan,
    proposal: BlobRef,
    texts: ResultTexts,
    writes: PendingWrites,
    acting: Collection[str] = (),
) -> None:
    """Record the outcome of the replanner's proposal.

    Args:
        texts: payloads of the proposal.
        acting: the specialists that have tools with effects.
    """
    event, text = make_patch_event(state, plan, proposal, texts, acting)
    if text is not None:
        writes.ref(text)
    writes.events.append(event)


def make_patch_event(
    state: JobState,
    plan: Plan,
    proposal: BlobRef,
    texts: ResultTexts,
    acting: Collection[str] = (),
) -> tuple[PlanPatched, str | None]:
    """Return the event of a patch, and the payload of the plan if the patch changes it.

    If the steps that were added last brought nothing new, the patch adds no steps. See
    `record_patch` for the arguments.
    """
    patch = texts.patch(proposal)
    if patch is None:
        return PlanPatched(result=proposal, problem="the replanner failed"), None
    if state.is_reviewed:
        patch = patch_after_review(patch, acting)
    made = apply_patch(plan, patch, unbegun_steps(state), state.submitted.limits.max_steps)
    text = None
    if made.plan:
        text = made.plan.to_json()
    event = PlanPatched(
        result=proposal,
        plan=ref(text) if text else None,
        added=tuple(outline_of(step, plan.given, acting) for step in made.added),
        changed=tuple(outline_of(step, plan.given, acting) for step in made.changed),
        dropped=made.dropped,
        too_late=made.too_late,
        repeats=patch.repeats,
        is_final=patch.finalize,
        problem=made.problem,
    )
    return event, text


RoleTask = tuple[str, tuple[StepId, ...], Mapping[str, Any]]
"""The brief of a role, the steps whose results it sees, and the JSON Schema of its answer."""
MOST_PLAN_STEPS = 200_000
"""Most steps in all parsed plans that a process keeps: about 100 MB. The newest plan may
exceed it.
"""


class PlanCache:
    """Cache of parsed plans, because a plan of thousands of steps is issued in many slices. It
    drops the least recently used plan first.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, Plan] = OrderedDict()
        self._steps = 0
        self._lock = threading.Lock()

    def get(self, digest: str, text: Callable[[], str]) -> Plan:
        """Return the plan of a digest.

        Args:
            text: returns the text of the plan. It is only called if the plan is not cached.
        """
        with self._lock:
            if digest in self._known:
                self._known.move_to_end(digest)
                return self._known[digest]
        plan = Plan.from_json(text())
        with self._lock:
            if digest not in self._known:
                self._steps += len(plan.steps)
            self._known[digest] = plan
            while self._steps > MOST_PLAN_STEPS and len(self._known) > 1:
                self._steps -= len(self._known.popitem(last=False)[1].steps)
        return plan


class PayloadLoader:
    """Loads payloads from the store, or from the decision in preparation."""

    def __init__(self, payload_cache: PayloadCache) -> None:
        self._payload_cache = payload_cache
        self._plans = PlanCache()

    def plan(self, state: JobState, writes: PendingWrites) -> Plan:
        """Return the plan of a job. A plan that is not stored yet comes from `writes`."""
        assert state.plan is not None
        ref = state.plan.plan
        return self._plans.get(
            ref.digest, lambda: writes.texts.get(ref.digest) or self.text(state, ref)
        )

    def answer_schema(self, state: JobState) -> Mapping[str, Any]:
        """Return the JSON Schema of the job's answer; by default the answer is a string."""
        if state.submitted.answer_schema is None:
            return {"type": "string"}
        schema: dict[str, JsonValue] = json.loads(self.text(state, state.submitted.answer_schema))
        return schema

    def texts(self, state: JobState, refs: Iterable[BlobRef], writes: PendingWrites) -> ResultTexts:
        """Load results in at most one round trip. Results that are not stored yet come from
        `writes`.
        """
        pending: dict[str, str] = {}
        missing: list[str] = []
        for reference in refs:
            if reference.digest in writes.texts:
                pending[reference.digest] = writes.texts[reference.digest]
            else:
                missing.append(reference.digest)
        stored = self._payload_cache.payloads(state.job_id, [], results=missing)
        return ResultTexts(stored | pending, writes.unreadable)

    def text(self, state: JobState, ref: BlobRef) -> str:
        return self._payload_cache.payloads(state.job_id, [ref.digest])[ref.digest]


class RoleBriefs:
    """Writes the brief of each role. A role sees only its own context and no other role's
    messages.
    """

    def __init__(self, store: Store, loader: PayloadLoader) -> None:
        self._store = store
        self._loader = loader

    def usable_specialists(self, state: JobState) -> Mapping[str, ServedSpecialist]:
        """Return the served specialists that this job may use, by name."""
        allowed, served = state.submitted.specialists, self._store.presence.served()
        if not allowed:
            return served
        usable: dict[str, ServedSpecialist] = {}
        for name, specialist in served.items():
            if name in allowed:
                usable[name] = specialist
        return usable

    def _candidates(self, state: JobState) -> list[Candidate]:
        """Return the served specialists as planners see them."""
        candidates: list[Candidate] = []
        for name, specialist in self.usable_specialists(state).items():
            spec = specialist.spec
            candidates.append(Candidate(name, spec.description, spec.tools, specialist.queued))
        return candidates

    def _with_a_team(self, state: JobState) -> list[Candidate]:
        """Return the served specialists and, where allowed, a sub-supervisor."""
        candidates = self._candidates(state)
        if may_have_children(state.submitted):
            candidates.append(SUB_TEAM)
        return candidates

    def brief(self, state: JobState, role: str, request: str, writes: PendingWrites) -> RoleTask:
        """Return the brief of a role, the steps whose results it sees, and the schema of its
        answer.
        """
        match role:
            case "router":
                return self._routing(state, request)
            case "planner":
                return self._planning(state, request, writes)
            case "replanner":
                plan, candidates = self._loader.plan(state, writes), self._with_a_team(state)
                return replanning(state, request, plan, candidates, self._known(state))
            case "judge":
                return judge_task(
                    state, self._loader.texts(state, payloads_for_judge(state), writes)
                )
            case "assessor":
                return self._assessment(state, request, writes)
            case _:
                return self._synthesis(state, request, writes)

    def _routing(self, state: JobState, request: str) -> RoleTask:
        candidates = self._candidates(state)
        text = route_brief(request, candidates, self._known(state))
        return text, (), RouteFormat(_names(candidates)).schema

    def _planning(self, state: JobState, request: str, writes: PendingWrites) -> RoleTask:
        """Return the planner's task: the first plan, or the questions of steps of this plan."""
        if state.plan is None:
            return self._first_plan(state, request)
        return self._needs(state, request, writes)

    def _needs(self, state: JobState, request: str, writes: PendingWrites) -> RoleTask:
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
        return text, tuple(with_result), NeedsFormat(tuple(needs), _names(helpers)).schema

    def _assessment(self, state: JobState, request: str, writes: PendingWrites) -> RoleTask:
        """Return the assessor's task to review a round of results."""
        plan = self._loader.plan(state, writes)
        texts = self._loader.texts(state, payloads_for_disputes(state), writes)
        conflicts = [dispute.brief() for dispute in disputes_of(state, texts)]
        left = max(0, state.submitted.limits.max_rounds - state.reworks)
        number = len(state.rounds_now) + 1
        verdicts, steps = verdict_format(state), reviewed_steps(state)
        text = assessment_brief(request, plan, number, left, conflicts, verdicts.rubric, steps)
        return text, steps, verdicts.schema

    def _synthesis(self, state: JobState, request: str, writes: PendingWrites) -> RoleTask:
        """Return the synthesizer's task to write the answer."""
        plan = self._loader.plan(state, writes)
        refs = [*results_for_answer(state)]
        if state.turned_down:
            refs.append(state.turned_down)
        texts = self._loader.texts(state, refs, writes)
        open_points: Sequence[str] = ()
        verdict = None
        if state.last_round:
            verdict = texts.verdict(state.last_round)
        if verdict:
            open_points = verdict.open_points
        vetoes: Sequence[str] = ()
        if state.turned_down:
            vetoes = texts.objections(state.turned_down)
        gaps = [f"{gap.step}: {gap.why}" for gap in gaps_of(state, texts)]
        conflicts = [dispute.brief() for dispute in disputes_of(state, texts)]
        text = synthesis_brief(request, plan, gaps, open_points, vetoes, conflicts)
        return text, usable_sinks(state), self._loader.answer_schema(state)

    def _first_plan(self, state: JobState, request: str) -> RoleTask:
        """Return the planner's task to make the first plan of a job."""
        candidates = self._with_a_team(state)
        given = tuple(result.step for result in state.submitted.given)
        most_steps = state.submitted.limits.max_steps
        reading = PlanFormat(
            _names(candidates), most_steps, given, state.submitted.approvals.are_wanted
        )
        text = plan_brief(
            request, candidates, most_steps, self._rejected(state), self._known(state)
        )
        return text, given, reading.schema

    def _known(self, state: JobState) -> JobContext:
        """Return the job's inputs and the request of the job that it follows."""
        submitted = state.submitted
        earlier_request = None
        if submitted.after:
            earlier_request = self._loader.text(state, submitted.after.request)
        return JobContext(submitted.given, earlier_request)

    def _rejected(self, state: JobState) -> list[RejectedPlanBrief]:
        """Return the plans that the user rejected, with the user's notes."""

        def plan(ref: BlobRef) -> Plan:
            return Plan.from_json(self._loader.text(state, ref))

        briefs: list[RejectedPlanBrief] = []
        for rejected in state.rejected_plans:
            note = ""
            if rejected.note:
                note = self._loader.text(state, rejected.note)
            own = None
            if rejected.own_plan:
                own = plan(rejected.own_plan)
            briefs.append(RejectedPlanBrief(plan(rejected.plan), note, own))
        return briefs


def _names(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    return tuple(candidate.name for candidate in candidates)
