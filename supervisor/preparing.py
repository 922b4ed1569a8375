"""What a command needs before it can be recorded: its events, handoffs and payloads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never

from pydantic import JsonValue

from shared.config import OFFLINE_MODEL
from shared.ledger.ledger import Ledger
from shared.library import Library
from shared.wire.events import (
    Abandoned,
    HandoffIssued,
    JobEnded,
    JobStatus,
    Reviewed,
    Routed,
    StepsAbandoned,
    StepsTriedAgain,
    Synthesised,
    WebhookTried,
)
from shared.wire.handoff import AgentHandoff, BlobRef, StopReason
from shared.wire.ids import HandoffId, StepId
from shared.wire.plan import Plan
from shared.wire.specialist import SpecialistSpec
from supervisor.dispatch import Outgoing
from supervisor.lifecycle.answering import assemble, choose_method, gaps_of, parts_of, usable_sinks, words_wanted
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
from supervisor.lifecycle.disputes import disputes_of, disputes_wanted, found_in, results_in
from supervisor.lifecycle.gates import checked
from supervisor.lifecycle.handoffs import role_handoff, step_handoff
from supervisor.lifecycle.stand_ins import failed_by_code
from supervisor.lifecycle.state import JobState, StepStatus
from supervisor.lifecycle.words import Words
from supervisor.pinning import pinned_spec
from supervisor.prepared import Prepared, RoleHandoff
from supervisor.questions import keep_documents_for, record_question
from supervisor.roles import read_role
from supervisor.roles.assessment import VerdictReading
from supervisor.roles.briefs import Candidate, assessment_brief, needs_brief, plan_brief, route_brief, synthesis_brief
from supervisor.roles.judge import judge_brief, reading_of
from supervisor.roles.needs import NeedsReading
from supervisor.roles.outcomes import plan_made
from supervisor.roles.planner import PlanReading
from supervisor.roles.router import RouteReading

OFFLINE_LABEL = "Made without a language model: the offline model only quotes and arranges what the documents say."


class Preparing:
    """Turns commands that are recorded into events and messages."""

    def __init__(self, ledger: Ledger, library: Library) -> None:
        self._ledger = ledger
        self._library = library
        self._roles: dict[str, tuple[SpecialistSpec, str]] = {}

    def candidates(self, state: JobState) -> list[Candidate]:
        """The specialists that this job may use and that somebody serves."""
        allowed = state.submitted.specialists
        return [
            Candidate(name, served.spec.description, served.spec.tools, served.queued)
            for name, served in self._ledger.roles.served().items()
            if not allowed or name in allowed
        ]

    def record(self, state: JobState, command: Command, into: Prepared) -> None:  # noqa: PLR0912 (one case a command)
        """What the command makes true when it is committed, and what is to be done then."""
        match command:
            case Route():
                into.events.append(Routed(mode=command.mode, specialist=command.specialist))
            case MakePlan():
                self._make_plan(state, command, into)
            case IssueRole():
                self._issue_role(state, command, into)
            case IssueGroup():
                self._issue_group(state, command, into)
            case TryAgain():
                into.events.append(StepsTriedAgain(steps=command.steps))
            case AbandonSteps():
                self._abandon(state, command, into)
            case FindConflicts():
                self._find_conflicts(state, into)
            case SkipReview():
                into.events.append(Reviewed(round=len(state.rounds) + 1, decision=None, problem=command.why))
            case ChooseAnswer():
                self._choose_answer(state, command, into)
            case CheckGates():
                self._check_gates(state, command, into)
            case EndJob():
                self._end(state, command, into)
            case AskApproval():
                keep_documents_for(state, self._ledger.blobs, self._library)
                draft = self._answer(state, command.status, into) if command.status else None
                record_question(command, state.submitted.approvals.wait_s, draft, into)
            case AskUser() | RemindUser() | GoOn():
                record_question(command, 0, None, into)
            case DeliverWebhook():
                into.events.append(WebhookTried(attempt=command.attempt, delivered=False, under_way=True, end=state.ended_version))
                into.effects.append(command)
            case PublishAgain() | RunRole():
                into.effects.append(command)
            case _:
                assert_never(command)

    def _issue_role(self, state: JobState, command: IssueRole, into: Prepared) -> None:
        spec, digest = self._role(command.role)
        request = self._text(state, state.submitted.request)
        task, about, schema = self._brief(state, command.role, request, into)
        handoff = role_handoff(state, spec, digest, command.attempt, task=task, about=about, schema=schema)
        text = handoff.to_json()
        into.ref(spec.to_json())
        into.role = RoleHandoff(handoff, text)
        into.events.append(_issued(handoff, into.ref(text)))

    def _brief(self, state: JobState, role: str, request: str, into: Prepared) -> tuple[str, tuple[StepId, ...], Mapping[str, Any]]:
        """What the role is asked, which results it sees, and the schema of its answer."""
        limits = state.submitted.limits
        if role == "router":
            candidates = self.candidates(state)
            return route_brief(request, candidates), (), RouteReading(tuple(one.name for one in candidates)).schema
        if role == "planner" and state.plan is None:
            candidates = self.candidates(state)
            reading = PlanReading(tuple(one.name for one in candidates), limits.max_steps)
            return plan_brief(request, candidates, limits.max_steps, self._rejected(state)), (), reading.schema
        plan = self._plan(state, into)
        if role == "planner":
            asking = {step_id: step.result for step_id, step in state.steps.items() if step.status is StepStatus.IN_NEED and step.result}
            words = self._words(state, asking.values(), into)
            needs = {str(step_id): words.result(ref).needs or "" for step_id, ref in asking.items()}
            about = tuple(step_id for step_id, step in state.steps.items() if step.result)
            return needs_brief(request, plan, needs), about, NeedsReading(tuple(needs)).schema
        if role == "judge" and state.conflicts and state.conflicts.ledger:
            conflicts = self._words(state, [state.conflicts.ledger], into).conflicts(state.conflicts.ledger)
            return judge_brief(conflicts), (), reading_of(conflicts).schema
        if role == "assessor":
            settled = [one.brief() for one in disputes_of(state, self._words(state, disputes_wanted(state), into))]
            left = max(0, limits.max_rounds - state.reworks)
            brief = assessment_brief(request, plan, len(state.rounds_now) + 1, left, settled)
            return brief, tuple(state.steps), VerdictReading(tuple(state.steps)).schema
        words = self._words(state, (*words_wanted(state), *([state.turned_down] if state.turned_down else [])), into)
        last = words.verdict(state.last_round) if state.last_round else None
        gaps = [f"{gap.step}: {gap.why}" for gap in gaps_of(state, words)]
        vetoes = (words.result(state.turned_down).error or "").splitlines() if state.turned_down else []
        open_points = last.open_points if last else ()
        settled = [one.brief() for one in disputes_of(state, words)]
        brief = synthesis_brief(request, plan, gaps, open_points, vetoes, settled)
        return brief, usable_sinks(state), self._answer_schema(state)

    def _rejected(self, state: JobState) -> list[tuple[Plan, str]]:
        """Plans that the user did not want, and what was said of them."""
        plans = state.rejected_plans
        texts = self._library.payloads(state.job_id, [ref.digest for one in plans for ref in (one.plan, one.note) if ref])
        return [(Plan.from_json(texts[one.plan.digest]), texts[one.note.digest] if one.note else "") for one in plans]

    def _make_plan(self, state: JobState, command: MakePlan, into: Prepared) -> None:
        asked = state.submitted
        if asked.workflow is not None:
            plan, is_reviewed = Plan.from_json(self._text(state, asked.workflow)), asked.is_reviewed
        else:
            assert command.specialist is not None
            plan, is_reviewed = one_step(self._text(state, asked.request), command.specialist, ""), False
        event, text = plan_made(plan, is_reviewed=is_reviewed)
        into.ref(text)
        into.events.append(event)

    def _issue_group(self, state: JobState, command: IssueGroup, into: Prepared) -> None:
        plan = self._plan(state, into)
        remarks = [remark for step_id in command.steps for remark in state.steps[step_id].remarks]
        words = self._words(state, [remark.result for remark in remarks if remark.result], into)
        group: list[Outgoing] = []
        for index, step_id in enumerate(command.steps):
            step = plan.by_id[step_id].model_copy(update={"specialist": state.steps[step_id].specialist})
            spec, digest, text = pinned_spec(state, step.specialist, self._library, self._ledger.roles)
            if text is not None:
                into.ref(text)
            schema = self._answer_schema(state) if state.submitted.answer_schema else None
            handoff = step_handoff(state, step, spec, digest, words, schema)
            message = handoff.to_json()
            group.append(Outgoing(handoff, message, command.group, index, len(command.steps)))
            into.events.append(_issued(handoff, into.ref(message), command.group, index, len(command.steps)))
        into.groups.append(group)

    def _abandon(self, state: JobState, command: AbandonSteps, into: Prepared) -> None:
        given_up = []
        for step_id in command.steps:
            step = state.steps[step_id]
            stand_in = failed_by_code(state.job_id, step_id, max(1, step.attempt), command.why, StopReason.CANCELLED)
            given_up.append(Abandoned(step=step_id, result=into.ref(stand_in.to_json())))
        into.events.append(StepsAbandoned(steps=tuple(given_up), why=command.why))

    def _find_conflicts(self, state: JobState, into: Prepared) -> None:
        event, ledger = found_in(state, self._words(state, results_in(state), into))
        if ledger:
            into.ref(ledger)
        into.events.append(event)

    def _choose_answer(self, state: JobState, command: ChooseAnswer, into: Prepared) -> None:
        wanted = choose_method(state)
        problem = "no time was left for a synthesis" if wanted is not command.method else None
        into.events.append(Synthesised(method=command.method, problem=problem))

    def _check_gates(self, state: JobState, command: CheckGates, into: Prepared) -> None:
        event, vetoes = checked(state, self._words(state, parts_of(state), into), may_send_back=command.may_send_back)
        if vetoes is not None:
            into.ref(vetoes.to_json())
        into.events.append(event)

    def _answer(self, state: JobState, status: JobStatus, into: Prepared) -> BlobRef | None:
        """None: there is nothing to make one of."""
        parts = parts_of(state)
        if not parts:
            return None
        words = self._words(state, (*parts, *words_wanted(state)), into)
        label = OFFLINE_LABEL if OFFLINE_MODEL in state.models else None
        return into.ref(assemble(state, status, words, label).to_json())

    def _end(self, state: JobState, command: EndJob, into: Prepared) -> None:
        answer = None if state.is_withheld else self._answer(state, command.status, into)
        into.events.append(JobEnded(status=command.status, answer=answer, reason=command.reason, because=command.because))

    def _plan(self, state: JobState, into: Prepared) -> Plan:
        """It may be of this very decision, and stand nowhere else yet."""
        assert state.plan is not None
        made_now = into.texts.get(state.plan.plan.digest)
        return Plan.from_json(made_now or self._text(state, state.plan.plan))

    def outgoing(self, state: JobState, handoff_ids: Sequence[HandoffId]) -> list[Outgoing]:
        """Handoffs that are already in the journal, to be published again to the byte."""
        issued = [state.open[handoff_id] for handoff_id in handoff_ids if handoff_id in state.open]
        texts = self._library.payloads(state.job_id, [event.handoff.digest for event in issued])
        return [
            Outgoing(AgentHandoff.from_json(text), text, event.group or "", event.index, event.group_size)
            for event in issued
            for text in [texts[event.handoff.digest]]
        ]

    def _role(self, name: str) -> tuple[SpecialistSpec, str]:
        if name not in self._roles:
            spec = read_role(name)
            self._roles[name] = (spec, spec.content_digest)
        return self._roles[name]

    def _answer_schema(self, state: JobState) -> Mapping[str, Any]:
        if state.submitted.answer_schema is None:
            return {"type": "string"}
        schema: dict[str, JsonValue] = json.loads(self._text(state, state.submitted.answer_schema))
        return schema

    def _words(self, state: JobState, refs: Iterable[BlobRef], into: Prepared) -> Words:
        """What these results say, in at most one round trip. Some may be of this very decision, and stand nowhere else yet."""
        digests = [ref.digest for ref in refs]
        stored = self._library.payloads(state.job_id, [digest for digest in digests if digest not in into.texts])
        return Words(stored | {digest: into.texts[digest] for digest in digests if digest in into.texts})

    def _text(self, state: JobState, ref: BlobRef) -> str:
        return self._library.payloads(state.job_id, [ref.digest])[ref.digest]


def _issued(handoff: AgentHandoff, ref: BlobRef, group: str | None = None, index: int = 0, group_size: int = 0) -> HandoffIssued:
    return HandoffIssued(
        handoff_id=handoff.handoff_id,
        step_id=handoff.step_id,
        attempt=handoff.attempt,
        assigned_to=handoff.assigned_to,
        handoff=ref,
        specialist=handoff.specialist,
        group=group,
        index=index,
        group_size=group_size,
        deadline=handoff.limits.deadline,
        max_microusd=handoff.limits.max_microusd,
    )
