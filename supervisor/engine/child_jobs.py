"""Child jobs, each of which does a step of its parent. A supervisor hands a step over, starts
its child job, and gives the result to the parent.

If a supervisor is killed in between, another supervisor repeats its work, and the work counts
once. The id of a child job is derived from its first handoff. The id is also the fence of the
claims that start with this handoff.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from handoff_queue.shared.broker.attempt_outcome import build_handoff_finished_event
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.store.presence import find_acting
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.answer import Answer
from handoff_queue.shared.types.budget_measures import (
    AMOUNTS,
    INPUT,
    MEASURES,
    MONEY,
    OUTPUT,
    TURNS,
)
from handoff_queue.shared.types.errors import Interrupted, MalformedMessage, VersionConflict
from handoff_queue.shared.types.events import (
    Child,
    Continuation,
    HandoffIssued,
    JobSubmitted,
    Parent,
    ParentTold,
    RetryRequested,
)
from handoff_queue.shared.types.handoff import (
    AgentHandoff,
    BlobRef,
    GivenResult,
    HandoffResult,
    make_ref,
)
from handoff_queue.shared.types.ids import (
    HandoffId,
    JobId,
    StepId,
    build_handoff_id,
    derive_child_id,
)
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import HandoffLimits, JobLimits
from handoff_queue.shared.types.origins import get_origins
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.shared.types.step import HIDDEN_TITLE, Step
from handoff_queue.supervisor.client.fetched_page_copies import (
    NO_PAGES,
    PassedPages,
    load_passed_pages,
)
from handoff_queue.supervisor.client.handoff_publishing import Dispatcher
from handoff_queue.supervisor.client.job_retry import build_event_commit, get_usage_by_limit
from handoff_queue.supervisor.client.submission import Submission
from handoff_queue.supervisor.engine.unit_of_work import UnitOfWork, make_handoff_issued
from handoff_queue.supervisor.lifecycle.answer import (
    list_answer_payloads,
    list_parts,
    list_results_for_answer,
)
from handoff_queue.supervisor.lifecycle.child_jobs import (
    CHILD_JOB_SPEC,
    build_child,
    compute_child_seconds,
    find_child_to_continue,
    has_gaps_alone,
)
from handoff_queue.supervisor.lifecycle.child_results import (
    ChildUsage,
    build_result_for_parent,
    build_source_renamer,
)
from handoff_queue.supervisor.lifecycle.commands import StartChild
from handoff_queue.supervisor.lifecycle.follow_up_jobs import (
    build_later_name,
    choose_results_to_give,
    convert_to_given_results,
    list_payloads_to_give,
    rename_sources,
)
from handoff_queue.supervisor.lifecycle.gaps import format_gaps
from handoff_queue.supervisor.lifecycle.handoffs import build_step_handoff
from handoff_queue.supervisor.lifecycle.joins import list_counted_fan_ins
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.routing import GENERALIST
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.text.markdown import cut_title

BEGUN_WITHIN_S = 5.0
"""Seconds after which the sweeper wakes a child job whose first wake-up was lost."""

GAPS_NOTE = (
    "\n\nAn earlier team did a part of this task. Its findings are available, and need not be"
    " searched again. Its gaps: {}"
)

log = get_log(__name__)


def hand_over(
    store: Store,
    state: JobState,
    step: Step,
    texts: ResultTexts,
    writes: UnitOfWork,
    answer_schema: Mapping[str, Any] | None,
    contract: SpecialistSpec | None,
) -> None:
    """Issue the handoff of a step to a child job. `ChildJobs.start` starts the job after the
    commit.

    If an earlier child job has done a part of the step and only needs to fill its gaps, it
    gets the handoff. Otherwise a new job gets it.

    Args:
        texts: payloads of the step's remarks.
        answer_schema: see `build_step_handoff`.
        contract: see `build_step_handoff`.
    """
    earlier_id = find_child_to_continue(state, step.id)
    if earlier_id:
        earlier = fold(earlier_id, None, store.journal.read(earlier_id))
        if earlier is None or not has_gaps_alone(earlier):
            earlier_id = None
    child = build_child(state, step.id, earlier_id)
    handoff = build_step_handoff(
        state,
        step,
        CHILD_JOB_SPEC,
        CHILD_JOB_SPEC.content_digest,
        texts=texts,
        answer_schema=answer_schema,
        contract=contract,
    )
    handoff = _with_limits_of_child(handoff, child)
    writes.add_payload(CHILD_JOB_SPEC.to_json())
    counts = list_counted_fan_ins(state, state.dependents[step.id])
    issued = make_handoff_issued(handoff, writes.add_payload(handoff.to_json()), counts=counts)
    writes.events.append(issued.model_copy(update={"child": child}))
    writes.effects.append(StartChild(handoff.handoff_id))


def _with_limits_of_child(handoff: AgentHandoff, child: Child) -> AgentHandoff:
    """Return the handoff with the limits of its child job, as far as a handoff has these limits."""
    changes: dict[str, int] = {}
    for measure in MEASURES:
        limit = measure.get_limit(child.limits)
        if limit is not None and measure.limit in HandoffLimits.model_fields:
            changes[measure.limit] = limit
    return handoff.model_copy(update={"limits": handoff.limits.model_copy(update=changes)})


def list_children(state: JobState, handoff_ids: Iterable[HandoffId]) -> list[JobId]:
    """Return the child jobs that do these open handoffs."""
    children: list[JobId] = []
    for open_id in handoff_ids:
        issued = state.open.get(open_id)
        if issued is not None and issued.child is not None:
            children.append(issued.child.job_id)
    return children


@dataclass(frozen=True, slots=True)
class EarlierChild:
    """Results of an earlier child job, and a text about its gaps for the request."""

    given_results: tuple[GivenResult, ...] = ()
    texts: tuple[str, ...] = ()
    """Payloads of the results."""
    passed: PassedPages = NO_PAGES
    """Pages that the results cite or name."""
    gaps_note: str = ""
    """Text to append to the request; empty if the earlier child job left no gaps."""


class ChildJobs:
    """Starts child jobs, and gives their results to their parents."""

    def __init__(self, store: Store, payload_cache: PayloadCache, dispatcher: Dispatcher) -> None:
        self._store = store
        self._payload_cache = payload_cache
        self._dispatcher = dispatcher

    def start(self, state: JobState, handoff_id: HandoffId) -> None:
        """Start or continue the child job of a handoff. Do nothing if the child job runs, or
        if the handoff is no longer open.
        """
        handed_over = state.open.get(handoff_id)
        if handed_over is None or handed_over.child is None:
            return
        child = handed_over.child
        now = self._store.connection.now()
        max_seconds = min(child.limits.max_seconds, compute_child_seconds(state, now))
        limits = child.limits.model_copy(update={"max_seconds": max_seconds})
        due_at = now + BEGUN_WITHIN_S
        is_new = child.job_id == derive_child_id(state.job_id, handoff_id)
        known = None if is_new else self._load_state(child.job_id)
        if known is None:
            commit = self._build_submission_commit(state, handed_over, limits, due_at)
        elif known.ended:
            commit = self._build_retry_commit(state, handed_over, known, limits, due_at)
        else:
            return  # the child job runs, and its end wakes the parent
        with suppress(VersionConflict):
            parent = (state.job_id, handoff_id)
            self._store.journal.commit(replace(commit, parent=parent, ignores_workers=True))
            log.info(
                "child job continues" if known else "child job started",
                job_id=state.job_id,
                handoff_id=handoff_id,
                child=child.job_id,
            )
            self._dispatcher.wake(child.job_id)

    def _load_state(self, job_id: JobId) -> JobState | None:
        return fold(job_id, None, self._store.journal.read(job_id))

    def _build_retry_commit(
        self,
        state: JobState,
        handed_over: HandoffIssued,
        before: JobState,
        limits: JobLimits,
        due_at: float,
    ) -> Commit:
        """Return the commit of a retry that continues an ended child job for a new handoff.

        The child job may use `limits` in addition to the turns, tokens and money that it has
        used.
        """
        usage = get_usage_by_limit(self._store.jobs.read([before.job_id])[0])
        raised_limits: dict[str, Any] = {}
        for name, amount in usage.items():
            limit = getattr(limits, name)
            if limit is not None:
                raised_limits[name] = limit + amount
        event = RetryRequested(
            fills_gaps=state.waits_for_all,
            keeps_results=True,
            continuation=Continuation(
                parent=Parent(job_id=state.job_id, handoff_id=handed_over.handoff_id),
                max_seconds=limits.max_seconds,
                is_known=state.steps[handed_over.step_id].sent_back is not None,
            ),
            **raised_limits,
        )
        return build_event_commit(before, event, due_at)

    def _build_submission_commit(
        self, state: JobState, handed_over: HandoffIssued, limits: JobLimits, due_at: float
    ) -> Commit:
        """Return the commit that submits a new child job."""
        digest = handed_over.handoff.digest
        handoff_text = self._payload_cache.get_payloads(state.job_id, [digest])[digest]
        handoff = AgentHandoff.from_json(handoff_text)
        submitted = state.submitted
        context: dict[StepId, BlobRef] = {}
        for context_result in handoff.context:
            context[context_result.step_id] = context_result.result
        context_texts = self._load_texts(state, list_payloads_to_give(state, context))
        given_results, given_texts = convert_to_given_results(
            state, context, [*context.values()], ResultTexts(context_texts)
        )
        passed = load_passed_pages(self._store, state.job_id, given_texts, rename_sources)
        earlier = self._find_earlier_child(
            state, handoff, {result.step for result in given_results}
        )
        request = f"{build_request(handoff)}{earlier.gaps_note}"
        form = handoff.expected_output_format
        schema = None if form == {"type": "string"} else json.dumps(form, sort_keys=True)
        event = JobSubmitted(
            request=make_ref(request),
            title=self._build_title(submitted.tenant, handoff.task_description),
            limits=limits,
            manifest=submitted.manifest,
            document_count=submitted.document_count,
            model=submitted.model,
            tenant=submitted.tenant,
            priority=submitted.priority,
            specialists=self._without_effects(submitted.specialists),
            mode=Mode.TEAM,
            parent=Parent(job_id=state.job_id, handoff_id=handed_over.handoff_id),
            depth=submitted.depth + 1,
            given=(*given_results, *earlier.given_results),
            answer_schema=make_ref(schema) if schema else None,
            is_reviewed=submitted.is_reviewed or submitted.mode is Mode.PIPELINE,
            origins=get_origins(handoff.origins),
            is_batched=submitted.is_batched,
        )
        payloads = [request]
        if submitted.manifest:
            digests = [submitted.manifest.digest]
            payloads.extend(self._payload_cache.get_payloads(state.job_id, digests).values())
        if schema:
            payloads.append(schema)
        payloads.extend((*given_texts, *earlier.texts, *passed.texts, *earlier.passed.texts))
        assert handed_over.child is not None
        submission = Submission(
            handed_over.child.job_id,
            event,
            tuple(payloads),
            {},
            has_key=False,
            pages=(*earlier.passed.pages, *passed.pages),
        )
        return submission.commit(due_at)

    def _build_title(self, tenant: str, task: str) -> str:
        if self._store.connection.sealing.is_sealed(tenant):
            return HIDDEN_TITLE
        return cut_title(task)

    def _without_effects(self, allowed_specialists: tuple[str, ...]) -> tuple[str, ...]:
        """Return the specialists that a child job may use: the allowed ones without tools with
        effects.

        Without such a specialist, the child job uses the generalist. A child job cannot ask a
        person, and its parent's review comes after it. The handoffs of a child job allow no
        tool with effects either (`acts_with`).
        """
        served = self._store.presence.load_served_specialists()
        acts = find_acting(served)
        if not acts:
            return allowed_specialists
        without_effects = tuple(
            name for name in allowed_specialists or sorted(served) if name not in acts
        )
        return without_effects or (GENERALIST,)

    def _find_earlier_child(
        self, state: JobState, handoff: AgentHandoff, given_steps: Collection[StepId]
    ) -> EarlierChild:
        """Return the results of the last ended child job of an earlier attempt at this step.

        Args:
            given_steps: names of the results that the parent gives; they are left out.
        """
        for attempt in range(handoff.attempt - 1, 0, -1):
            child_id = derive_child_id(state.job_id, build_handoff_id(handoff.step_id, attempt))
            child = self._load_state(child_id)
            if child is not None and child.ended is not None:
                return self._collect_child_results(child, child.ended.answer, given_steps)
        return EarlierChild()

    def _collect_child_results(
        self, child: JobState, answer_ref: BlobRef | None, given_steps: Collection[StepId]
    ) -> EarlierChild:
        """Return the results of an ended child job that the parent does not give itself.

        Args:
            answer_ref: its answer; None: it has none.
            given_steps: names of the results that the parent gives.
        """
        results: dict[StepId, BlobRef] = {}
        for step, result in choose_results_to_give(child).items():
            if step not in given_steps and build_later_name(step) not in given_steps:
                results[step] = result
        refs = [*list_payloads_to_give(child, results)]
        if answer_ref:
            refs.append(answer_ref)
        texts = self._load_texts(child, refs)
        answer = _parse_answer(texts, answer_ref)
        gaps_note = ""
        if answer and answer.gaps:
            gaps_note = GAPS_NOTE.format(format_gaps(answer.gaps))
        given_results, payloads = convert_to_given_results(
            child, results, list_parts(child), ResultTexts(texts)
        )
        passed = load_passed_pages(self._store, child.job_id, payloads, rename_sources)
        return EarlierChild(given_results, payloads, gaps_note=gaps_note, passed=passed)

    def tell(self, state: JobState) -> None:
        """Give the result of an ended child job to its parent, and wake the parent. A repeated
        call has no further effect.

        Raises:
            VersionConflict: the child job runs again, or another supervisor has given its result.
        """
        assert state.submitted.parent is not None
        parent = state.submitted.parent
        claim = self._store.claims.open_claim_of_child(
            parent.job_id, parent.handoff_id, state.job_id
        )
        result = self._build_result(state)
        passed = load_passed_pages(
            self._store, state.job_id, [result.to_json()], build_source_renamer(parent)
        )
        self._store.payloads.put_fetched_pages(parent.job_id, passed.pages, passed.texts)
        with suppress(Interrupted):
            claim.finish(
                claim.build_finish_request(
                    result, (build_handoff_finished_event(result, state.job_id),)
                )
            )
        self._dispatcher.wake(parent.job_id)
        commit = Commit(
            job_id=state.job_id,
            expected=state.version,
            tip=state.tip,
            events=[ParentTold()],
            ignores_workers=True,
        )
        # `expected` and `tip` bind the event to this end. After a retry it would suppress the
        # report of the next end.
        self._store.journal.commit(commit)

    def _build_result(self, state: JobState) -> HandoffResult:
        """Return the result of an ended child job for the handoff of its parent."""
        assert state.ended is not None
        refs = [*list_answer_payloads(state), *list_results_for_answer(state)]
        if state.ended.because:
            refs.append(state.ended.because)
        if state.ended.answer:
            refs.append(state.ended.answer)
        texts = self._load_texts(state, refs)
        answer = _parse_answer(texts, state.ended.answer)
        assert state.submitted.parent is not None
        parent = state.submitted.parent
        job_info = self._store.jobs.read([state.job_id])[0]
        handoffs = self._store.jobs.read_handoffs(parent.job_id, [parent.handoff_id])
        handoff_info = handoffs.get(parent.handoff_id, job_info)
        verified = state.verified_usage
        so_far = _compute_usage(job_info, verified.job)
        is_new = state.job_id == derive_child_id(parent.job_id, parent.handoff_id)
        usage = _compute_usage(handoff_info, verified.job if is_new else verified.since_retry)
        return build_result_for_parent(state, ResultTexts(texts), answer, usage, so_far)

    def _load_texts(self, state: JobState, results: Iterable[BlobRef]) -> dict[str, str]:
        """Return the payloads of results by digest."""
        digests = [result.digest for result in results]
        return self._payload_cache.get_payloads(state.job_id, [], results=digests)


def _parse_answer(texts: Mapping[str, str], answer: BlobRef | None) -> Answer | None:
    """Return the answer of a child job, or None if it has none or the stored answer cannot be
    read.
    """
    if answer is None:
        return None
    try:
        return Answer.from_json(texts[answer.digest])
    except MalformedMessage:
        return None


def build_request(handoff: AgentHandoff) -> str:
    """Return the request of a child job: the step's task, and the remarks on earlier attempts."""
    paragraphs = [handoff.task_description]
    for feedback in handoff.feedback:
        if feedback.author == "user" and feedback.previous is None:
            paragraphs.append(f"The user adds: {feedback.text}")
        else:
            paragraphs.append(f"An earlier attempt was not good enough: {feedback.text}")
    return "\n\n".join(paragraphs)


def _compute_usage(info: JobInfo | HandoffInfo, verified: Sequence[int]) -> ChildUsage:
    """Return the usage in the counters, and at least the usage of signed results. A worker that was
    taken over can lower the counters.

    Args:
        verified: amounts of the results, in the order of `AMOUNTS`.
    """
    least = dict(zip(AMOUNTS, verified, strict=True))
    usage = info.usage
    amounts = {
        "input_tokens": max(usage.input_tokens, least[INPUT]),
        "output_tokens": max(usage.output_tokens, least[OUTPUT]),
    }
    if least[MONEY]:
        amounts["cost_microusd"] = max(usage.cost_microusd or 0, least[MONEY])
    return ChildUsage(usage.model_copy(update=amounts), max(info.turns, least[TURNS]))
