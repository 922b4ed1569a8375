"""Execution of a role's handoff in a supervisor process. The handoff comes from a decision of
this process, or from the roles queue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace

from handoff_queue.shared.agent.answer_envelope import EnvelopeFormat
from handoff_queue.shared.agent.answer_format import AnswerFormat
from handoff_queue.shared.agent.opening_message import LoadedPayloads
from handoff_queue.shared.agent.system_prompt import AnswerForm
from handoff_queue.shared.broker.attempt_outcome import AttemptOutcome
from handoff_queue.shared.runtime.attempt import Attempts, Consequences, Finish, PreparedAttempt
from handoff_queue.shared.runtime.payload_cache import JobDocuments
from handoff_queue.shared.runtime.runner_factory import AgentSetup
from handoff_queue.shared.store.claim import HandoffClaim
from handoff_queue.shared.store.presence import find_acting
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult
from handoff_queue.shared.types.names import Role
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.roles.assessment import build_verdict_format
from handoff_queue.supervisor.roles.briefs import configure_role, read_role_once
from handoff_queue.supervisor.roles.input_requests import build_needs_format
from handoff_queue.supervisor.roles.judge import (
    RulingFormat,
    find_schema_points,
    parse_judge_format,
)
from handoff_queue.supervisor.roles.planner import PlanFormat, find_plan_specialists
from handoff_queue.supervisor.roles.replanner import describe_result, parse_patch_format
from handoff_queue.supervisor.roles.role_events import build_outcome, list_earlier_results
from handoff_queue.supervisor.roles.router import RouteFormat, find_route_specialists

SLOT_WAIT_S = 0.02
"""Seconds to wait for a free slot. A handover to another thread or process costs more."""


class RoleRunner:
    """Runs the handoffs of roles in this process, at most `slots` at once."""

    def __init__(
        self,
        attempts: Attempts,
        slots: int,
        on_change: Callable[[], None] = lambda: None,
        *,
        slot_wait_s: float = SLOT_WAIT_S,
    ) -> None:
        """Make a runner.

        Args:
            slots: most handoffs at once; at least 1.
            on_change: called when the last slot is taken, and when a slot is free again.
            slot_wait_s: most seconds to wait for a free slot.
        """
        self._attempts = attempts
        self._free = max(1, slots)
        self._changing = threading.Condition()
        self._on_change = on_change
        self._slot_wait_s = slot_wait_s

    @property
    def is_full(self) -> bool:
        """Return whether no slot is free."""
        return self._free == 0

    @contextmanager
    def slot(self, *, is_wanted: bool = True) -> Iterator[bool]:
        """Take a slot, and yield whether one was free within `slot_wait_s`. If `is_wanted` is
        false, yield False at once.
        """
        with self._changing:
            has_slot = is_wanted and self._changing.wait_for(
                lambda: self._free > 0, self._slot_wait_s
            )
            self._free -= has_slot
            is_last = has_slot and self._free == 0
        if is_last:
            self._on_change()
        try:
            yield has_slot
        finally:
            if has_slot:
                with self._changing:
                    self._free += 1
                    was_full = self._free == 1
                    self._changing.notify()
                if was_full:
                    self._on_change()

    def claim_and_run(
        self, state: JobState, handoff: AgentHandoff, text: str, evaluation: str = ""
    ) -> AttemptOutcome:
        """Claim the handoff and run it. One commit stores its result and the events that
        follow.

        Args:
            evaluation: see `prepare`.
        """
        ready = self.prepare(state, handoff, text, evaluation)
        return self.run(ready, self._attempts.store.claims.claim(ready.claiming))

    def run(
        self, ready: PreparedAttempt, claim: HandoffClaim, finish: Finish = HandoffClaim.finish
    ) -> AttemptOutcome:
        """Run a claimed handoff. `finish` stores its result."""
        return self._attempts.run(ready, claim, finish)

    def prepare(
        self, state: JobState, handoff: AgentHandoff, text: str, evaluation: str = ""
    ) -> PreparedAttempt:
        """Prepare the role's handoff, so that this process can claim and run it.

        Args:
            evaluation: the name of the evaluation that issues the handoff; see
                `ClaimRequest.evaluation_id`.
        """

        def make_setup(
            _handoff: AgentHandoff,
            _spec: SpecialistSpec,
            loaded: LoadedPayloads,
            documents: JobDocuments,
        ) -> AgentSetup:
            return self._build_agent_setup(state, handoff, loaded, documents)

        def conclude(_handoff: AgentHandoff, result: HandoffResult) -> Consequences:
            return self._build_consequences(state, handoff, result)

        role_spec = configure_role(handoff.assigned_to, self._attempts.settings)
        ready = self._attempts.prepare(text, handoff, make_setup, conclude, own_spec=role_spec)
        return replace(ready, claiming=replace(ready.claiming, evaluation_id=evaluation))

    def _build_agent_setup(
        self,
        state: JobState,
        handoff: AgentHandoff,
        loaded: LoadedPayloads,
        documents: JobDocuments,
    ) -> AgentSetup:
        """Return the answer format of a role, and the rules for its answer."""
        role = handoff.assigned_to
        schema = handoff.expected_output_format
        if role == Role.SYNTHESIZER:
            envelope = EnvelopeFormat(
                handoff.step_id,
                schema,
                documents.sources,
                loaded.collect_claims(),
                has_claims=read_role_once(role).has_claims,
            )
            return AgentSetup(envelope, form=AnswerForm.ENVELOPE, streams_draft=True)
        if state.plan is None or role not in (Role.REPLANNER, Role.PLANNER):
            answer_format = _build_answer_format(state, handoff, loaded)
            return AgentSetup(answer_format, form=AnswerForm.OWN)
        texts = self._attempts.payload_cache.get_payloads(state.job_id, [state.plan.plan.digest])
        plan = Plan.from_json(texts[state.plan.plan.digest])
        if role == Role.PLANNER:
            return AgentSetup(build_needs_format(schema, state, plan), form=AnswerForm.OWN)
        statuses = {step_id: describe_result(result) for step_id, result in loaded.results.items()}
        may_ask = state.submitted.approvals.are_wanted
        patches = parse_patch_format(schema, plan, statuses, may_ask=may_ask)
        return AgentSetup(patches, form=AnswerForm.OWN)

    def _build_consequences(
        self, state: JobState, handoff: AgentHandoff, result: HandoffResult
    ) -> Consequences:
        """Return the events that follow from the result of a role, and their payloads."""
        request = state.submitted.request
        digests = [request.digest]
        acts: Collection[str] = ()
        if handoff.assigned_to == Role.PLANNER:
            planned: tuple[str, ...] = ()
            if state.plan:
                digests.append(state.plan.plan.digest)
            else:
                planned = find_plan_specialists(handoff.expected_output_format)
            served = self._attempts.store.presence.load_served_specialists()
            acts = find_acting(served, planned)
        earlier = [ref.digest for ref in list_earlier_results(handoff, state)]
        stored_texts = self._attempts.payload_cache.get_payloads(
            state.job_id, digests, results=earlier
        )
        texts = ResultTexts(stored_texts)
        events, payloads = build_outcome(
            handoff, state, result, stored_texts[request.digest], texts, acts
        )
        return Consequences(events, payloads)


def _build_answer_format(
    state: JobState, handoff: AgentHandoff, loaded: LoadedPayloads
) -> AnswerFormat:
    """Return the answer format of a router, a first planner, a judge or an assessor."""
    match handoff.assigned_to:
        case Role.ROUTER:
            return RouteFormat(find_route_specialists(handoff.expected_output_format))
        case Role.PLANNER:
            return PlanFormat(
                find_plan_specialists(handoff.expected_output_format),
                max_steps=state.submitted.limits.max_steps,
                given_steps=handoff.depends_on,
                may_ask=state.submitted.approvals.are_wanted,
            )
        case Role.JUDGE if points := find_schema_points(handoff.expected_output_format):
            return RulingFormat(points)
        case Role.JUDGE if state.conflicts is not None:
            return parse_judge_format(handoff.expected_output_format, state.conflicts)
        case _:
            return build_verdict_format(state, loaded.results)
