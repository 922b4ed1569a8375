"""Turn the commands of a decision into events, payloads and messages, ready for the commit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from handoff_queue.shared.broker.gil_yielding import with_pauses
from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.settings.settings import OFFLINE_MODEL
from handoff_queue.shared.store.presence import find_acting
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import (
    AbandonedStep,
    ApprovalAsked,
    ApprovalReminded,
    Approved,
    DecisionAsked,
    EndTaskTried,
    Event,
    FactsChecked,
    JobEnded,
    JobStatus,
    PlanPatched,
    Quoted,
    Reviewed,
    Routed,
    StepOutline,
    StepsAbandoned,
    StepsTriedAgain,
    Synthesized,
    WebhookTried,
)
from handoff_queue.shared.types.handoff import (
    AgentHandoff,
    BlobRef,
    Manifest,
    StopReason,
    find_answers,
    make_ref,
)
from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.shared.types.memory_notes import MEMORY
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.specialist import SpecialistSpec, build_placeholder_spec, parse_spec
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.client.handoff_publishing import OutgoingHandoff
from handoff_queue.supervisor.engine.briefs_from_job_state import RoleBriefs
from handoff_queue.supervisor.engine.child_jobs import hand_over
from handoff_queue.supervisor.engine.payload_loader import PayloadLoader
from handoff_queue.supervisor.engine.unit_of_work import (
    RoleHandoff,
    UnitOfWork,
    make_handoff_issued,
)
from handoff_queue.supervisor.lifecycle.answer import (
    assemble,
    choose_method,
    list_answer_payloads,
    list_results_for_answer,
)
from handoff_queue.supervisor.lifecycle.commands import (
    AbandonSteps,
    ApproveOnTimeout,
    AskApproval,
    AskUser,
    CheckConditions,
    CheckGates,
    ChooseAnswer,
    Command,
    DeliverWebhook,
    EndJob,
    FindConflicts,
    IssueFactCheck,
    IssueGroup,
    IssueRole,
    IssueToChild,
    MakePlan,
    MakeQuote,
    PatchPlan,
    PublishAgain,
    RemindUser,
    RunRole,
    SendEndTask,
    SetMode,
    SkipFactCheck,
    SkipReview,
    SkipSteps,
    StartChild,
    TakeFactCheck,
    TellParent,
    TryAgain,
)
from handoff_queue.supervisor.lifecycle.conflict_resolution import (
    find_conflicts,
    list_conflict_payloads,
)
from handoff_queue.supervisor.lifecycle.fact_gate import make_fact_check_event
from handoff_queue.supervisor.lifecycle.gates import check_gates, list_gate_payloads
from handoff_queue.supervisor.lifecycle.handoffs import (
    build_fact_check_handoff,
    build_role_handoff,
    build_step_handoff,
)
from handoff_queue.supervisor.lifecycle.joins import list_counted_fan_ins
from handoff_queue.supervisor.lifecycle.origins import find_task_origins
from handoff_queue.supervisor.lifecycle.replanning import apply_patch, find_patchable_steps
from handoff_queue.supervisor.lifecycle.result_texts import (
    ResultTexts,
    build_result_by_code,
    list_remark_payloads,
)
from handoff_queue.supervisor.lifecycle.routing import build_plan_of_one_step
from handoff_queue.supervisor.lifecycle.side_effects import move_patch_after_review
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.lifecycle.step_conditions import (
    iterate_condition_results,
    make_conditions_event,
    make_skip_event,
    with_confidence,
)
from handoff_queue.supervisor.lifecycle.user_messages import list_message_texts
from handoff_queue.supervisor.quoting.quote_history import make_quote
from handoff_queue.supervisor.roles.briefs import (
    build_fact_check_schema,
    build_fact_check_task,
    read_role_once,
)
from handoff_queue.supervisor.roles.judge import is_arbitration
from handoff_queue.supervisor.roles.role_events import build_outline, hide_titles, make_plan_event

if TYPE_CHECKING:
    from handoff_queue.shared.types.step_events import HandoffIssued


OFFLINE_LABEL = (
    "Made without a language model: the offline model only quotes and arranges what the documents"
    " say."
)


@dataclass(frozen=True, slots=True)
class PinnedSpec:
    """The version of a specialist that a job uses."""

    spec: SpecialistSpec
    digest: str
    is_stored: bool
    """False if the job has not used this version before, so that its text must be stored."""


class DecisionRecorder:
    """Turns commands into events, payloads and messages."""

    def __init__(self, store: Store, payload_cache: PayloadCache) -> None:
        self._store = store
        self._payload_cache = payload_cache
        self._loader = PayloadLoader(payload_cache)
        self.briefs = RoleBriefs(store, self._loader)
        self._roles: dict[str, tuple[SpecialistSpec, str]] = {}
        """Specs of the roles, with their texts."""

    def record(self, state: JobState, command: Command, writes: UnitOfWork) -> None:
        """Add the events, payloads and messages of a command to `writes`, or its effect."""
        first = len(writes.events)
        self._record_command(state, command, writes)
        writes.events[first:] = [hide_titles(state, event) for event in writes.events[first:]]

    def _record_command(self, state: JobState, command: Command, writes: UnitOfWork) -> None:
        """Add the events, handoffs and payloads of a command to the writes."""
        match command:
            case MakePlan():
                self._make_plan(state, command, writes)
            case PatchPlan():
                self._patch_plan(state, command, writes)
            case SetMode() | MakeQuote() | TryAgain() | SkipReview() | SkipFactCheck():
                writes.events.append(self._build_event(state, command))
            case IssueRole() | IssueGroup() | IssueToChild():
                self._issue_handoffs(state, command, writes)
            case AbandonSteps():
                self._abandon(state, command, writes)
            case CheckConditions() | SkipSteps():
                self._check_conditions(state, command, writes)
            case FindConflicts():
                self._find_conflicts(state, writes)
            case ChooseAnswer():
                self._choose_answer(state, command, writes)
            case CheckGates() | IssueFactCheck() | TakeFactCheck():
                self._record_check(state, command, writes)
            case EndJob():
                self._end(state, command, writes)
            case AskApproval() | AskUser() | RemindUser() | ApproveOnTimeout():
                self._record_question(state, command, writes)
            case _:
                self._add_effect(state, command, writes)

    def _issue_handoffs(
        self, state: JobState, command: IssueRole | IssueGroup | IssueToChild, writes: UnitOfWork
    ) -> None:
        match command:
            case IssueRole():
                self._issue_role(state, command, writes)
            case IssueGroup():
                self._issue_group(state, command, writes)
            case IssueToChild(step_id):
                self._issue_to_child(state, step_id, writes)

    def _record_question(
        self,
        state: JobState,
        command: AskApproval | AskUser | RemindUser | ApproveOnTimeout,
        writes: UnitOfWork,
    ) -> None:
        """Add a question to the user, its reminder, or its answer after the timeout. A job that
        waits for an approval keeps its documents. A question about an answer stores the answer.
        """
        match command:
            case AskUser():
                writes.events.append(DecisionAsked(why=command.why))
            case AskApproval():
                self._keep_documents(state)
                draft = None
                if command.status:
                    draft = self._store_answer(state, command.status, writes)
                question = ApprovalAsked(
                    what=command.what,
                    why=command.why,
                    wait_s=state.submitted.approvals.wait_s,
                    steps=command.steps,
                    draft=draft,
                )
                writes.events.append(question)
                writes.effects.append(command)
            case RemindUser(version, number):
                writes.events.append(ApprovalReminded(asked=version, number=number))
                writes.effects.append(command)
            case ApproveOnTimeout(version, call):
                writes.events.append(Approved(asked=version, by="timeout", call=call))
            case _:
                assert_never(command)

    def _keep_documents(self, state: JobState) -> None:
        """Keep the documents of a job for as long as it may wait for an approval and then run. The
        event of the question keeps the payloads.
        """
        manifest = state.submitted.manifest
        if manifest is None:
            return
        documents = Manifest.from_json(self._loader.load_text(state, manifest)).documents
        self._store.payloads.find_missing_documents(
            [document.digest for document in documents],
            state.submitted.approvals.wait_s + state.submitted.limits.max_seconds,
            state.submitted.tenant,
        )

    def _add_effect(
        self,
        state: JobState,
        command: DeliverWebhook | SendEndTask | PublishAgain | RunRole | StartChild | TellParent,
        writes: UnitOfWork,
    ) -> None:
        """Add an effect for the time after the commit, with an event if the journal must say
        that it has begun.
        """
        end = state.ended_version
        match command:
            case DeliverWebhook(attempt):
                writes.events.append(
                    WebhookTried(attempt=attempt, delivered=False, under_way=True, end=end)
                )
            case SendEndTask(attempt):
                writes.events.append(
                    EndTaskTried(attempt=attempt, delivered=False, under_way=True, end=end)
                )
            case PublishAgain() | RunRole() | StartChild() | TellParent():
                pass
            case _:
                assert_never(command)
        writes.effects.append(command)

    def _build_event(
        self, state: JobState, command: SetMode | MakeQuote | TryAgain | SkipReview | SkipFactCheck
    ) -> Event:
        """Return the event of a command that adds exactly one event."""
        match command:
            case SetMode():
                return Routed(mode=command.mode, specialist=command.specialist)
            case MakeQuote():
                return Quoted(quote=make_quote(state, self._store))
            case TryAgain():
                return StepsTriedAgain(steps=command.steps)
            case SkipReview():
                return Reviewed(round=len(state.rounds) + 1, decision=None, problem=command.why)
            case SkipFactCheck():
                return FactsChecked(problem=command.why)
            case _:
                assert_never(command)

    def _issue_role(self, state: JobState, command: IssueRole, writes: UnitOfWork) -> None:
        spec, spec_text = self._get_role(command.role)
        request = self._loader.load_text(state, state.submitted.request)
        task = self.briefs.build_brief(state, command.role, request, writes)
        handoff = build_role_handoff(
            state,
            spec,
            writes.add_payload(spec_text).digest,
            command.attempt,
            task=task.brief,
            about=task.about,
            schema=task.schema,
            origins=task.origins,
        )
        text = handoff.to_json()
        writes.role = RoleHandoff(handoff, text)
        writes.events.append(
            make_handoff_issued(
                handoff, writes.add_payload(text), closes=is_arbitration(task.schema)
            )
        )

    def _make_plan(self, state: JobState, command: MakePlan, writes: UnitOfWork) -> None:
        submitted = state.submitted
        if submitted.workflow is not None:
            plan = Plan.from_json(self._loader.load_text(state, submitted.workflow))
            is_reviewed = submitted.is_reviewed
        else:
            assert command.specialist is not None
            request = self._loader.load_text(state, submitted.request)
            plan = build_plan_of_one_step(
                request, command.specialist, "", find_answers(submitted.given)
            )
            is_reviewed = False
        origins = None
        if submitted.fork:
            origins = submitted.fork.task_origins
        event, text = make_plan_event(
            plan,
            is_reviewed=is_reviewed or submitted.rubric is not None,
            acting=find_acting(self._store.presence.load_served_specialists()),
            origins=origins,
        )
        writes.add_payload(text)
        writes.events.append(event)

    def _patch_plan(self, state: JobState, command: PatchPlan, writes: UnitOfWork) -> None:
        texts = self._loader.load_texts(state, [command.proposal], writes)
        plan = self._loader.plan(state, writes)
        patch = texts.get_patch(command.proposal)
        planned = [step.specialist for step in (*patch.add, *patch.change)] if patch else []
        acts = find_acting(self._store.presence.load_served_specialists(), planned)
        event, changed_plan = make_patch_event(state, plan, command.proposal, texts, acts)
        if changed_plan is not None:
            writes.add_payload(changed_plan)
        writes.events.append(event)

    def _issue_group(self, state: JobState, command: IssueGroup, writes: UnitOfWork) -> None:
        plan = self._loader.plan(state, writes)
        refs: list[BlobRef] = []
        for step_id in command.steps:
            refs += list_remark_payloads(state.steps[step_id])
            refs += list_message_texts(state, step_id)
        texts = self._loader.load_texts(state, refs, writes)
        group: list[OutgoingHandoff] = []
        request = ""
        if state.submitted.parent:
            request = self._loader.load_text(state, state.submitted.request)
        reassigned = dict(command.instead)
        dependents = state.dependents
        for index, step_id in enumerate(with_pauses(command.steps)):
            specialist = reassigned.get(step_id, state.steps[step_id].specialist)
            pinned = self._pin_specialist(state, specialist, writes)
            spec = pinned.spec
            step = plan.by_id[step_id].model_copy(update={"specialist": specialist})
            if spec.output_schema == {"type": "string"}:  # another form always has the confidence
                step = step.model_copy(update={"task": with_confidence(plan, step, request)})
            contract = self._find_contract(state, plan.by_id[step_id], specialist)
            handoff = build_step_handoff(
                state, step, spec, pinned.digest, texts, self._get_answer_schema(state), contract
            )
            handoff = self._with_notes_name(state, handoff, spec)
            message = handoff.to_json()
            group.append(OutgoingHandoff(handoff, message, command.group, index))
            counts = list_counted_fan_ins(state, dependents[step_id])
            event = make_handoff_issued(
                handoff, writes.add_payload(message), command.group, index, counts
            )
            acts = self._may_have_effects(spec, handoff, state.steps[step_id].outline) or None
            writes.events.append(event.model_copy(update={"acts": acts}))
        writes.groups.append(group)

    def _pin_specialist(self, state: JobState, name: str, writes: UnitOfWork) -> PinnedSpec:
        """Return the version of a specialist that the job uses, and store a new version."""
        pinned = self._get_pinned_spec(state, name)
        if not pinned.is_stored:
            writes.add_payload(pinned.spec.to_json())
        return pinned

    def _get_pinned_spec(self, state: JobState, name: str) -> PinnedSpec:
        """Return the version of a specialist that the job uses.

        It is the version with which the job first used the specialist. At the first use, and at
        the first use after a retry of the ended job, it is the version that workers announce.
        """
        digest = state.specialists.get(name)
        if digest:
            text = self._payload_cache.get_payloads(state.job_id, [digest])[digest]
            return PinnedSpec(parse_spec(text), digest, is_stored=True)
        served = self._store.presence.load_served_specialists().get(name)
        if served is None:  # no live worker announces this specialist
            spec = build_placeholder_spec(name)
            return PinnedSpec(spec, spec.content_digest, is_stored=False)
        return PinnedSpec(served.spec, served.digest, is_stored=False)

    def _issue_to_child(self, state: JobState, step_id: StepId, writes: UnitOfWork) -> None:
        refs = [*list_remark_payloads(state.steps[step_id]), *list_message_texts(state, step_id)]
        texts = self._loader.load_texts(state, refs, writes)
        step = self._loader.plan(state, writes).by_id[step_id]
        contract = self._find_contract(state, step, CHILD_JOB_SPECIALIST)
        schema = self._get_answer_schema(state)
        hand_over(self._store, state, step, texts, writes, schema, contract)

    def _get_answer_schema(self, state: JobState) -> Mapping[str, Any] | None:
        if state.submitted.answer_schema:
            return self._loader.load_answer_schema(state)
        return None

    def _find_contract(
        self, state: JobState, step: Step, assigned_to: str
    ) -> SpecialistSpec | None:
        """Return the specialist that the step was planned for. None: it does the step, or the
        step was planned for a child job.
        """
        planned_for = step.contract_of or step.specialist
        if planned_for in (assigned_to, CHILD_JOB_SPECIALIST):
            return None
        return self._get_pinned_spec(state, planned_for).spec

    def _with_notes_name(
        self, state: JobState, handoff: AgentHandoff, spec: SpecialistSpec
    ) -> AgentHandoff:
        """Return the handoff with the name of the tenant's notes if the specialist has the tool
        `memory`, or may have it. No worker announces the specialist of a placeholder, and the
        worker that takes the handoff runs its own file.
        """
        if MEMORY not in spec.tools and spec != build_placeholder_spec(spec.name):
            return handoff
        name = self._store.notes.make_name(state.submitted.tenant)
        return handoff.model_copy(update={"notes_name": name})

    def _may_have_effects(
        self, spec: SpecialistSpec, handoff: AgentHandoff, outline: StepOutline
    ) -> bool:
        """Return whether the specialist of a handoff may call a tool with effects."""
        allowed_tools = handoff.acts_with
        if allowed_tools == ():
            return False
        served = self._store.presence.load_served_specialists().get(spec.name)
        if served is None:  # no live worker: the plan says whether it has tools with effects
            return bool(outline.acts)
        if spec.task_with_effect is not None:
            return True
        if allowed_tools is None:
            effects = served.effects
        else:
            effects = served.effects & {*allowed_tools}
        return not effects.isdisjoint(spec.tools)

    def _abandon(self, state: JobState, command: AbandonSteps, writes: UnitOfWork) -> None:
        abandoned_steps: list[AbandonedStep] = []
        for step_id in command.steps:
            step = state.steps[step_id]
            failed_result = build_result_by_code(
                state.job_id, step_id, max(1, step.attempt), command.why, StopReason.CANCELLED
            )
            abandoned_steps.append(
                AbandonedStep(step=step_id, result=writes.add_payload(failed_result.to_json()))
            )
        writes.events.append(StepsAbandoned(steps=tuple(abandoned_steps), why=command.why))

    def _check_conditions(
        self, state: JobState, command: CheckConditions | SkipSteps, writes: UnitOfWork
    ) -> None:
        if isinstance(command, SkipSteps):
            event, results = make_skip_event(state, command.steps, command.why)
        else:
            plan = self._loader.plan(state, writes)
            result_refs = list(dict.fromkeys(iterate_condition_results(state, plan, command.steps)))
            texts = self._loader.load_texts(state, result_refs, writes)
            event, results = make_conditions_event(state, plan, command.steps, texts)
        for result in with_pauses(results):
            writes.add_payload(result.to_json())
        writes.events.append(event)

    def _find_conflicts(self, state: JobState, writes: UnitOfWork) -> None:
        texts = self._loader.load_texts(state, list_conflict_payloads(state), writes)
        event, payload = find_conflicts(state, texts)
        if payload:
            writes.add_payload(payload)
        writes.events.append(event)

    def _choose_answer(self, state: JobState, command: ChooseAnswer, writes: UnitOfWork) -> None:
        problem = None
        if command.method is not choose_method(state):
            problem = "no time was left for a synthesis"
        writes.events.append(Synthesized(method=command.method, problem=problem))

    def _record_check(
        self,
        state: JobState,
        command: CheckGates | IssueFactCheck | TakeFactCheck,
        writes: UnitOfWork,
    ) -> None:
        match command:
            case CheckGates():
                self._check_gates(state, command, writes)
            case IssueFactCheck():
                self._issue_fact_check(state, command, writes)
            case TakeFactCheck():
                texts = self._loader.load_texts(state, [command.result], writes)
                writes.events.append(make_fact_check_event(state, command, texts))
            case _:
                assert_never(command)

    def _check_gates(self, state: JobState, command: CheckGates, writes: UnitOfWork) -> None:
        texts = self._loader.load_texts(state, list_gate_payloads(state), writes)
        event, vetoes = check_gates(state, texts, may_send_back=command.may_send_back)
        if vetoes is not None:
            writes.add_payload(vetoes.to_json())
        writes.events.append(event)

    def _issue_fact_check(
        self, state: JobState, command: IssueFactCheck, writes: UnitOfWork
    ) -> None:
        assert state.submitted.fact_checker is not None
        pinned = self._pin_specialist(state, state.submitted.fact_checker, writes)
        task = build_fact_check_task(self._loader.load_text(state, state.submitted.request))
        handoff = build_fact_check_handoff(
            state,
            pinned.spec,
            pinned.digest,
            command.attempt,
            task=task,
            schema=build_fact_check_schema(),
        )
        handoff = self._with_notes_name(state, handoff, pinned.spec)
        message = handoff.to_json()
        writes.groups.append([OutgoingHandoff(handoff, message, command.group, 0)])
        writes.events.append(
            make_handoff_issued(handoff, writes.add_payload(message), command.group, closes=True)
        )

    def _store_answer(
        self, state: JobState, status: JobStatus, writes: UnitOfWork
    ) -> BlobRef | None:
        """Store the answer and return its reference; None if there is no answer."""
        payloads = list_answer_payloads(state)
        if not payloads:
            return None
        texts = self._loader.load_texts(state, (*payloads, *list_results_for_answer(state)), writes)
        label = None
        if OFFLINE_MODEL in state.models:
            label = OFFLINE_LABEL
        return writes.add_payload(assemble(state, status, texts, label).to_json())

    def _end(self, state: JobState, command: EndJob, writes: UnitOfWork) -> None:
        answer = None
        if not state.is_withheld:
            answer = self._store_answer(state, command.status, writes)
        event = JobEnded(
            status=command.status, answer=answer, reason=command.reason, because=command.because
        )
        writes.events.append(event)

    def build_outgoing(
        self, state: JobState, handoff_ids: Sequence[HandoffId]
    ) -> list[OutgoingHandoff]:
        """Return the handoffs that are still open, with their stored bytes, to publish them
        again.
        """
        issued: list[HandoffIssued] = []
        for handoff_id in handoff_ids:
            if handoff_id in state.open:
                issued.append(state.open[handoff_id])
        texts = self._payload_cache.get_payloads(
            state.job_id, [event.handoff.digest for event in issued]
        )
        outgoing: list[OutgoingHandoff] = []
        for event in issued:
            text = texts[event.handoff.digest]
            handoff = AgentHandoff.from_json(text)
            outgoing.append(OutgoingHandoff(handoff, text, event.group or "", event.index))
        return outgoing

    def get_fact_checker(self, state: JobState) -> SpecialistSpec:
        """Return the spec of the fact-checker. The job must have one."""
        assert state.submitted.fact_checker is not None
        return self._get_pinned_spec(state, state.submitted.fact_checker).spec

    def _get_role(self, name: str) -> tuple[SpecialistSpec, str]:
        if name not in self._roles:
            spec = read_role_once(name)
            self._roles[name] = (spec, spec.to_json())
        return self._roles[name]


def make_patch_event(
    state: JobState,
    plan: Plan,
    proposal: BlobRef,
    texts: ResultTexts,
    acting: Collection[str],
) -> tuple[PlanPatched, str | None]:
    """Return the event of the replanner's patch, and the payload of the plan if the patch changes
    it. If the steps that were added last brought nothing new, the patch adds no steps.

    Args:
        proposal: the replanner's HandoffResult.
        texts: payloads of the proposal.
        acting: the specialists that have tools with effects.
    """
    patch = texts.get_patch(proposal)
    if patch is None:
        return PlanPatched(result=proposal, problem="the replanner failed"), None
    patch = move_patch_after_review(patch, acting)
    patched = apply_patch(
        plan, patch, find_patchable_steps(state), state.submitted.limits.max_steps
    )
    plan_text = None
    plan_ref = None
    if patched.plan:
        plan_text = patched.plan.to_json()
        plan_ref = make_ref(plan_text)
    origins = find_task_origins(texts.get_result(proposal))

    def build_outlines(steps: Iterable[Step]) -> tuple[StepOutline, ...]:
        return tuple(build_outline(step, plan.given, acting, origins) for step in steps)

    event = PlanPatched(
        result=proposal,
        plan=plan_ref,
        added=build_outlines(patched.added),
        changed=build_outlines(patched.changed),
        dropped=patched.dropped,
        too_late=patched.too_late,
        repeats=patch.repeats,
        is_final=patch.finalize,
        problem=patched.problem,
    )
    return event, plan_text
