"""Brief of a supervisor's role, with the payloads that the brief needs."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import JsonValue

from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.store.presence import ServedSpecialist
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Plan
from handoff_queue.supervisor.engine.pending_writes import PendingWrites
from handoff_queue.supervisor.engine.plan_patches import replanning
from handoff_queue.supervisor.lifecycle.answer import results_for_answer, usable_sinks
from handoff_queue.supervisor.lifecycle.disputes import JUDGE, disputes_of, payloads_for_disputes
from handoff_queue.supervisor.lifecycle.effects import reviewed_steps
from handoff_queue.supervisor.lifecycle.gaps import gaps_of
from handoff_queue.supervisor.lifecycle.input_steps import can_help, room
from handoff_queue.supervisor.lifecycle.plan_patches import REPLANNER
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState, StepStatus
from handoff_queue.supervisor.lifecycle.teams import may_have_children
from handoff_queue.supervisor.roles import assessment
from handoff_queue.supervisor.roles.briefs import (
    SUB_TEAM,
    Candidate,
    JobContext,
    RejectedPlanBrief,
    assessment_brief,
    needs_brief,
    plan_brief,
    route_brief,
    synthesis_brief,
)
from handoff_queue.supervisor.roles.disputed_review import judging, judging_wants
from handoff_queue.supervisor.roles.input_requests import NeedsFormat
from handoff_queue.supervisor.roles.planner import PlanFormat
from handoff_queue.supervisor.roles.router import RouteFormat

MOST_PLAN_STEPS = 200_000
"""Steps of all parsed plans that a process keeps, about 100 MB."""


class PlanCache:
    """Parsed once: a plan of thousands of steps is handed out in many slices. The least
    recently used go first.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, Plan] = OrderedDict()
        self._steps = 0
        self._lock = threading.Lock()

    def get(self, digest: str, text: Callable[[], str]) -> Plan:
        """Return the plan of a digest.

        Args:
            text: returns the text of the plan, if it is not cached.
        """
        with self._lock:
            if digest in self._known:
                self._known.move_to_end(digest)
                return self._known[digest]
        plan = Plan.from_json(text())
        with self._lock:
            if digest in self._known:
                self._steps += 0
            else:
                self._steps += len(plan.steps)
            self._known[digest] = plan
            while self._steps > MOST_PLAN_STEPS and len(self._known) > 1:
                self._steps -= len(self._known.popitem(last=False)[1].steps)
        return plan


class PayloadLoader:
    """Reads payloads from the store, or from the decision in preparation."""

    def __init__(self, library: PayloadCache) -> None:
        self._library = library
        self._plans = PlanCache()

    def plan(self, state: JobState, into: PendingWrites) -> Plan:
        """Return the plan of a job. The plan of the decision in preparation comes from `into`."""
        assert state.plan is not None
        ref = state.plan.plan
        return self._plans.get(
            ref.digest, lambda: into.texts.get(ref.digest) or self.text(state, ref)
        )

    def answer_schema(self, state: JobState) -> Mapping[str, Any]:
        if state.submitted.answer_schema is None:
            return {"type": "string"}
        schema: dict[str, JsonValue] = json.loads(self.text(state, state.submitted.answer_schema))
        return schema

    def words(self, state: JobState, refs: Iterable[BlobRef], into: PendingWrites) -> ResultTexts:
        """Load results in at most one round trip. Results of the decision in preparation come
        from `into`.
        """
        digests = [ref.digest for ref in refs]
        stored = self._library.payloads(
            state.job_id, [], results=[digest for digest in digests if digest not in into.texts]
        )
        return ResultTexts(
            stored | {digest: into.texts[digest] for digest in digests if digest in into.texts},
            into.unreadable,
        )

    def text(self, state: JobState, ref: BlobRef) -> str:
        return self._library.payloads(state.job_id, [ref.digest])[ref.digest]


class RoleBriefs:
    """Writes the brief of each role. A role sees only its own context and no other role's messages."""

    def __init__(self, store: Store, loading: PayloadLoader) -> None:
        self._store = store
        self._loading = loading

    def there(self, state: JobState) -> Mapping[str, ServedSpecialist]:
        """Return the served specialists that this job may use, by name."""
        allowed, served = state.submitted.specialists, self._store.presence.served()
        if allowed:
            ones: dict[str, ServedSpecialist] = {}
            for name, specialist in served.items():
                if name in allowed:
                    ones[name] = specialist
            return ones
        return served

    def _candidates(self, state: JobState) -> list[Candidate]:
        """Return the served specialists as planners see them."""
        candidates: list[Candidate] = []
        for name, specialist in self.there(state).items():
            candidates.append(
                Candidate(
                    name, specialist.spec.description, specialist.spec.tools, specialist.queued
                )
            )
        return candidates

    def _with_a_team(self, state: JobState) -> list[Candidate]:
        """Return the served specialists and, where allowed, a sub-supervisor."""
        return self._candidates(state) + ([SUB_TEAM] if may_have_children(state.submitted) else [])

    def brief(  # noqa: PLR0911
        self, state: JobState, role: str, request: str, into: PendingWrites
    ) -> tuple[str, tuple[StepId, ...], Mapping[str, Any]]:
        """Return the role's brief, the steps whose results it sees, and the schema of its answer."""
        limits = state.submitted.limits
        if role == "router":
            candidates = self._candidates(state)
            return (
                route_brief(request, candidates, self._known(state)),
                (),
                RouteFormat(tuple(each.name for each in candidates)).schema,
            )
        if role == "planner" and state.plan is None:
            return self._planning(state, request)
        plan = self._loading.plan(state, into)
        if role == "planner":
            asking = {
                step_id: step.result
                for step_id, step in state.steps.items()
                if step.status is StepStatus.IN_NEED and step.result
            }
            words = self._loading.words(state, asking.values(), into)
            needs = {str(step_id): words.result(ref).needs or "" for step_id, ref in asking.items()}
            about = tuple(step_id for step_id, step in state.steps.items() if step.result)
            others = self._candidates(state) if can_help(state) else []
            schema = NeedsFormat(tuple(needs), tuple(each.name for each in others)).schema
            return needs_brief(request, plan, needs, others, room(state)), about, schema
        if role == REPLANNER:
            return replanning(state, request, plan, self._with_a_team(state), self._known(state))
        if role == JUDGE:
            return judging(state, self._loading.words(state, judging_wants(state), into))
        if role == "assessor":
            settled = [
                each.brief()
                for each in disputes_of(
                    state, self._loading.words(state, payloads_for_disputes(state), into)
                )
            ]
            left, verdicts = max(0, limits.max_rounds - state.reworks), assessment.reading_of(state)
            about = reviewed_steps(state)
            brief = assessment_brief(
                request, plan, len(state.rounds_now) + 1, left, settled, verdicts.rubric, about
            )
            return brief, about, verdicts.schema
        words = self._loading.words(
            state,
            (*results_for_answer(state), *([state.turned_down] if state.turned_down else [])),
            into,
        )
        last = words.verdict(state.last_round) if state.last_round else None
        gaps: list[str] = []
        for gap in gaps_of(state, words):
            gaps.append(f"{gap.step}: {gap.why}")
        vetoes = words.objections(state.turned_down) if state.turned_down else ()
        open_points = last.open_points if last else ()
        settled = [each.brief() for each in disputes_of(state, words)]
        brief = synthesis_brief(request, plan, gaps, open_points, vetoes, settled)
        return brief, usable_sinks(state), self._loading.answer_schema(state)

    def _planning(
        self, state: JobState, request: str
    ) -> tuple[str, tuple[StepId, ...], Mapping[str, Any]]:
        """Return what ``brief`` returns, for the first plan of a job."""
        candidates = self._with_a_team(state)
        given = tuple(result.step for result in state.submitted.given)
        most_steps = state.submitted.limits.max_steps
        reading = PlanFormat(
            tuple(candidate.name for candidate in candidates),
            most_steps,
            given,
            state.submitted.approvals.are_wanted,
        )
        text = plan_brief(
            request, candidates, most_steps, self._rejected(state), self._known(state)
        )
        return text, given, reading.schema

    def _known(self, state: JobState) -> JobContext:
        asked = state.submitted
        return JobContext(
            asked.given, self._loading.text(state, asked.after.request) if asked.after else None
        )

    def _rejected(self, state: JobState) -> list[RejectedPlanBrief]:
        """Return the plans that the user rejected, with the user's notes."""

        def plan(ref: BlobRef) -> Plan:
            return Plan.from_json(self._loading.text(state, ref))

        rejected_plan_briefs: list[RejectedPlanBrief] = []
        for rejected in state.rejected_plans:
            rejected_plan_briefs.append(
                RejectedPlanBrief(
                    plan=plan(rejected.plan),
                    note=self._loading.text(state, rejected.note) if rejected.note else "",
                    own=plan(rejected.own_plan) if rejected.own_plan else None,
                )
            )
        return rejected_plan_briefs
