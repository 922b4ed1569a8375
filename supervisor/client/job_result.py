"""The result of a job and of its handoffs, read from the journal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import Field, JsonValue

from handoff_queue.shared.settings.settings import OFFLINE_MODEL
from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.store.job_summary import HandoffRecord
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.answer import Answer
from handoff_queue.shared.types.checkpoints import Checkpoint
from handoff_queue.shared.types.errors import (
    UserError,
)
from handoff_queue.shared.types.events import (
    DEFAULT_TENANT,
    ApprovalAsked,
    Approved,
    HandoffFinished,
    HandoffIssued,
    JobEnded,
    JobStatus,
    JobSubmitted,
    PlanMade,
    PlanPatched,
    Quoted,
    RecordedEvent,
    Reviewed,
    Routed,
    Synthesized,
    UserMessageSent,
)
from handoff_queue.shared.types.handoff import parse_result_values
from handoff_queue.shared.types.ids import (
    HANDOFF_ID_PATTERN,
    HandoffId,
    JobId,
    parse_attempt,
    parse_step_id,
)
from handoff_queue.shared.types.job_options import Mode, Priority
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.review import Verdict
from handoff_queue.shared.types.usage import to_usd
from handoff_queue.supervisor.client.approvals import build_approvals, find_answers
from handoff_queue.supervisor.client.context_use import describe_context_use
from handoff_queue.supervisor.client.gate_results import build_gate_results
from handoff_queue.supervisor.client.job_lookup import get_job_info
from handoff_queue.supervisor.client.job_outline import find_end
from handoff_queue.supervisor.client.job_record import JobRecord, build_record, select_events
from handoff_queue.supervisor.client.journal_follower import find_unverified_end
from handoff_queue.supervisor.client.json_forms import convert_usage
from handoff_queue.supervisor.client.plan_changes import build_change
from handoff_queue.supervisor.client.repeated_step_rows import (
    Row,
    choose_steps,
    find_last_repeated_steps,
    iterate_rows,
    list_copies,
)
from handoff_queue.supervisor.client.user_messages import build_missed_message_notes, list_messages
from handoff_queue.supervisor.client.waiting_reasons import (
    Describe,
    find_open_questions,
)
from handoff_queue.supervisor.lifecycle.answer import build_plan_notes
from handoff_queue.supervisor.lifecycle.child_jobs import build_bill, format_bill
from handoff_queue.supervisor.lifecycle.conflict_resolution import find_disputes
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.quoting.quote_history import compute_working_seconds, convert_quote
from handoff_queue.supervisor.roles.router import Route

CHECKED_OFFLINE = "sources and coverage were checked by code; no model judged the content"
"""The note on a verdict of the offline model."""
MAX_ID_CHARS = 80
"""Most characters of an unknown handoff id in an error."""


class JobResult(Message):
    """The result of a job. While the job runs, `answer` is null and the lists hold the results
    so far.
    """

    job_id: str
    """The id of the job."""
    status: JobStatus
    """The status of the job."""
    tenant: str = DEFAULT_TENANT
    """The owner of the job."""
    priority: Priority = Priority.INTERACTIVE
    """The priority of the job's messages."""
    forked_from: str | None = None
    """The job whose results this job keeps; null: the job is not a fork."""
    answer: JsonValue = None
    """Markdown with numbered sources; the value itself for a job with an answer schema. Null:
    there is no answer, or none yet.
    """
    citations: tuple[dict[str, Any], ...] = ()
    """{n, source, digest, start, end, quote, claim, step}: text[start:end] of the document is
    the quote.
    """
    mode: Mode = Mode.TEAM
    """The requested mode. A job of mode `auto` has the mode that the router chose."""
    route: dict[str, Any] | None = None
    """{specialist, why, problem} of a job whose mode was `auto`; specialist null: a team."""
    plan: dict[str, Any] | None = None
    """{steps: [{id, specialist, task, depends_on, fallback, on_failure, join, title, after,
    approve, when, row, contract_of}], synthesis, join, given, why, degraded, method, child_jobs}.

    A step has no `title` and no later field if the field has no value. `row` is the item of a
    repeated step: {step, each, n, key}. A `join` is the part of the results that a step or the
    answer needs; null: all. `given` names the results that the job has from the beginning.
    `degraded` is the reason why code made the plan. `method` is the method to make the answer;
    null: there is no answer yet. `child_jobs` is the bill of the child jobs, if there are any.
    """
    handoffs: tuple[dict[str, Any], ...] = ()
    """Each AgentHandoff in full, with `group`, `worker`, `state`, `claims`, times (Unix
    seconds) and the `usage` that the budget counted. `child` is the id of a child job; null:
    an agent does the step itself.
    """
    results: tuple[dict[str, Any], ...] = ()
    """Each HandoffResult in full. Its own `usage` does not count calls that a kill of the
    process cut off.
    """
    verdicts: tuple[dict[str, Any], ...] = ()
    """{round, verdict, revisions, open_points, scores, problem, checked}. A score is
    {criterion, score, why, step}. `step` is null if the score is for the whole answer.
    `checked` names the checks of an assessor without a model. Null: a model judged.
    """
    patches: tuple[dict[str, Any], ...] = ()
    """{added: [{id, specialist}], changed, dropped, too_late, repeats: {step: earlier step},
    final, why, problem}. One entry for each change that the replanner proposed.
    """
    gates: dict[str, Any] | None = None
    """{from, checks, facts, answers: [{vetoes, sent_back}], fact_checks: [{wrong, why, problem,
    sent_back}]}. Null: the job has no gates. `from` is the origin of the gates: the job, its
    workflow or the settings. `checks` lists the gates, and `facts` counts the user's facts.
    `answers` has one entry for each checked answer. A job without a fact-checker has no
    `fact_checks`.
    """
    conflicts: tuple[dict[str, Any], ...] = ()
    """{id, claims, stands, why}. `claims` contradict each other. `stands` lists the ids of the
    claims that the judge accepts; empty: the conflict stays disputed.
    """
    approvals: tuple[dict[str, Any], ...] = ()
    """Approvals: {version, what, why, asked_at, decision, by, actor, note, draft, own_plan, call}.

    `decision` is null until a person decides, and `closed` if the question ended without an answer.
    `by` is `user` or `timeout`, and `actor` is the name of the user. `draft` is the answer that
    waits for approval. `own_plan` is the plan that a person gave. After an approval the job uses
    this plan, and after a rejection the planner starts from this plan. `call` is the tool call in
    question: {handoff_id, tool, arguments, origins, edited}. `origins` names the origins of each
    argument, and `edited` has the arguments of a person.
    """
    messages: tuple[dict[str, Any], ...] = ()
    """{message_id, at, by, step, text, taken: [{handoff_id, turn}]} of the messages that users
    sent to the agents. `step` is null if the message is for all agents. `taken` lists the agents
    that took the message while they ran; later agents have it in their task.
    """
    gaps: tuple[dict[str, Any], ...] = ()
    """{step, specialist, why, likely_usd} of each part that is missing or incomplete.
    `likely_usd` is the cost to fill the gap; null: not known.
    """
    to_finish_usd: float | None = None
    """The likely cost to fill all gaps and to repeat the steps that depend on them. Null: no
    gaps, or not known.
    """
    quote: dict[str, Any] | None = None
    """{cost: {likely_usd, most_usd}, time: {likely_s, most_s}, handoffs, jobs}, made before
    the first step. Null: the user asked for no quote, or there is no plan yet. Nine of ten
    jobs stay below `most`, after twelve jobs with a quote have ended. If calls go through batches,
    `time` is null, and `cost` has `half_price_usd`: the part of `likely_usd` for their tokens.
    `deadline_s` is then the longest time of the job, with the waits for a person before the quote.
    `time_without_batches` has the form of `time`, without the waits for batches.
    """
    usage: dict[str, Any] = {}  # noqa: RUF012 (pydantic copies it)
    """{turns, input_tokens, output_tokens, cost_usd, cut: {calls, tokens, cost_usd}}: the sum
    over all handoffs, as the budget counted it. `cut` is the part that is only an upper bound.
    `cost_usd` is null if a price is not known.
    """
    wall_s: float = 0.0
    """Seconds from the submission to the end of the job, or to now."""
    worked_s: float | None = None
    """The part of `wall_s` that a quote estimates: without waits for a person or for a retry.
    Null: the job has no quote.
    """
    model: str | None = None
    """The models that finished handoffs used, separated by commas; null: none yet."""
    notes: tuple[str, ...] = ()
    """Notes for the reader: missing parts, the reason of the end, and, while the job runs, the
    processes and persons that it waits for.
    """
    waiting_since: float | None = None
    """Time since which the job waits for a person, in Unix seconds; null if it does not wait.
    A waiting job has the status `waiting`.
    """
    waits_for: tuple[str, ...] = Field(default=(), exclude=True)
    """One line for each question of the job to a person."""
    has_open_points: bool = Field(default=False, exclude=True)
    """True if the answer names open points."""
    row_results: tuple[Row, ...] = Field(default=(), exclude=True)
    """The rows of every repeated step."""
    last_repeated: frozenset[str] = Field(default=frozenset(), exclude=True)
    """The repeated steps that are the last ones for their items."""
    asked_for_a_form: bool = Field(default=False, exclude=True)
    """True: the job has an answer schema, and the answer is a JSON value."""

    def rows(self, step: str | None = None) -> list[Row]:
        """Return a row for each item of a workflow with `for_each`, under the item's own key.

        Args:
            step: a repeated step, as the workflow names it; None: the last repeated steps.

        Raises:
            UserError: `step` is not a repeated step of the job.
        """
        names = dict.fromkeys(row.step for row in self.row_results)
        steps = choose_steps(names, self.last_repeated, step)
        return [row for row in self.row_results if row.step in steps]


def read_report(store: Store, job_id: JobId, describe: Describe = str) -> JobResult:
    """Read the result of a job from the store.

    Args:
        describe: makes a line of a reason to wait.

    Raises:
        UnknownJob: there is no such job.
        UnverifiedEnd: the job has ended, and this process does not trust the event of its end.
        StoreError: a payload is gone.
    """
    record = build_record(store, job_id, describe)
    error = find_unverified_end(record.job, record.journal)
    if error is not None:
        raise error
    return build_report(record, describe)


def build_report(record: JobRecord, describe: Describe = str) -> JobResult:
    """Return the report of a record. Pure."""
    events, info, payloads = record.journal, record.job, record.payloads
    texts = ResultTexts(payloads)
    submitted = select_events(events, JobSubmitted)[0]
    forked_from = None
    if submitted.fork:
        forked_from = submitted.fork.job_id
    plans = _list_plans(events)
    state = _build_state_for_report(record, plans)
    planned_state = state if plans else None
    plan = None
    if planned_state:
        plan = _convert_plan(planned_state, plans, record, texts)
    rows, last_repeated = _build_rows(planned_state, record, texts)
    end, until = find_end(record.job, record.journal, record.at)
    answer = None
    if end and end.answer:
        answer = Answer.from_json(payloads[end.answer.digest])
    to_finish_usd = None
    if answer:
        to_finish_usd = to_usd(answer.to_finish_microusd)
    notes = _build_notes(answer, plans, end, texts, record.waits)
    if state:
        notes += build_missed_message_notes(state, texts)
    error = find_unverified_end(info, events)
    if error is not None:
        notes = (*notes, str(error))
    return JobResult(
        job_id=info.job_id,
        status=info.status,
        tenant=submitted.tenant,
        priority=submitted.priority,
        forked_from=forked_from,
        answer=answer.content if answer else None,
        citations=_build_citations(answer),
        mode=_find_mode(events),
        route=_build_route(events, texts),
        plan=plan,
        handoffs=_build_handoffs(record),
        results=_build_results(record),
        verdicts=tuple(_build_verdict(event, texts) for event in select_events(events, Reviewed)),
        patches=tuple(build_change(event, texts) for event in select_events(events, PlanPatched)),
        gates=build_gate_results([recorded.event for recorded in events], texts),
        conflicts=_build_conflicts(planned_state, texts),
        approvals=build_approvals(events, payloads, _find_open_questions(state)),
        messages=list_messages(events, payloads),
        gaps=_build_gaps(answer),
        to_finish_usd=to_finish_usd,
        quote=_build_quote(events),
        usage=convert_usage(info),
        wall_s=round(until - events[0].at, 3),
        worked_s=_compute_working_time_s(record),
        model=_list_models(events),
        notes=notes,
        waiting_since=info.asked_at,
        waits_for=tuple(map(describe, find_open_questions(info))),
        has_open_points=answer is not None and bool(answer.open_points),
        row_results=rows,
        last_repeated=last_repeated,
        asked_for_a_form=submitted.answer_schema is not None,
    )


def _build_state_for_report(record: JobRecord, plans: Sequence[PlanMade]) -> JobState | None:
    """Return the state of a job. None: the job has no plan, question or message, so its report
    needs no state.
    """
    is_needed = bool(plans)
    for recorded in record.journal:
        if isinstance(recorded.event, ApprovalAsked | UserMessageSent):
            is_needed = True
    if not is_needed:
        return None
    return fold(record.job.job_id, None, record.journal)


def _find_open_questions(state: JobState | None) -> set[int]:
    """Return the versions of the questions that a person can still answer."""
    if state is None or state.ended:
        return set()
    versions = {call.version for call in state.open_calls}
    if state.question:
        versions.add(state.question.version)
    return versions


def _build_rows(
    state: JobState | None, record: JobRecord, texts: ResultTexts
) -> tuple[tuple[Row, ...], frozenset[str]]:
    if state is None or state.plan is None:
        return (), frozenset()
    plan = Plan.from_json(record.payloads[state.plan.plan.digest])
    return tuple(iterate_rows(state, list_copies(plan), texts)), find_last_repeated_steps(plan)


def _build_results(record: JobRecord) -> tuple[dict[str, Any], ...]:
    results: list[dict[str, Any]] = []
    for event in select_events(record.journal, HandoffFinished):
        values = parse_result_values(record.payloads[event.result.digest])
        # a worker that was taken over may name another handoff in its result
        identifiers = {
            "handoff_id": event.handoff_id,
            "step_id": parse_step_id(event.handoff_id),
            "attempt": parse_attempt(event.handoff_id),
        }
        results.append({**values, "job_id": record.job.job_id, **identifiers})
    return tuple(results)


def _build_quote(events: Sequence[RecordedEvent]) -> dict[str, Any] | None:
    """Return the last quote as JSON, or None."""
    events_with_quote = select_events(events, Quoted)
    if not events_with_quote:
        return None
    return convert_quote(events_with_quote[-1].quote)


def _compute_working_time_s(record: JobRecord) -> float | None:
    """Return the working time of a job with a quote in seconds, or None."""
    if not select_events(record.journal, Quoted):
        return None
    return round(compute_working_seconds(record.job.job_id, record.journal), 3)


def _list_models(events: Sequence[RecordedEvent]) -> str | None:
    """Return the models of finished handoffs, each once, separated by commas; None: there is
    none.
    """
    models: dict[str, None] = {}
    for event in select_events(events, HandoffFinished):
        models.update(dict.fromkeys(event.models))
    return ", ".join(models) or None


def _build_citations(answer: Answer | None) -> tuple[dict[str, Any], ...]:
    if answer is None:
        return ()
    citations: list[dict[str, Any]] = []
    for numbered_citation in answer.citations:
        citations.append(
            {
                "n": numbered_citation.n,
                **numbered_citation.citation.model_dump(),
                "claim": numbered_citation.claim,
                "step": numbered_citation.step,
            }
        )
    return tuple(citations)


def _build_gaps(answer: Answer | None) -> tuple[dict[str, Any], ...]:
    if answer is None:
        return ()
    gaps: list[dict[str, Any]] = []
    for gap in answer.gaps:
        gaps.append(
            {
                "step": gap.step,
                "specialist": gap.specialist,
                "why": gap.why,
                "likely_usd": to_usd(gap.likely_microusd),
            }
        )
    return tuple(gaps)


def _find_mode(events: Sequence[RecordedEvent]) -> Mode:
    """Return the mode that the router chose last, or else the requested mode."""
    decisions: list[JobSubmitted | Routed] = [
        *select_events(events, JobSubmitted),
        *select_events(events, Routed),
    ]
    return decisions[-1].mode


def _build_route(events: Sequence[RecordedEvent], texts: ResultTexts) -> dict[str, Any] | None:
    routed = select_events(events, Routed)
    if not routed:
        return None
    last = routed[-1]
    route = None
    if last.result:
        route = texts.get_result(last.result)
    why = None
    if route and last.problem is None:
        why = Route.from_value(route.output).why
    problem = last.problem or None
    if problem is None and route:
        problem = texts.explain(last.result)
    return {"specialist": last.specialist, "why": why, "problem": problem}


def _list_plans(events: Sequence[RecordedEvent]) -> list[PlanMade]:
    """Return the plans of planners, workflows and persons, the current plan last. A plan of a
    person counts only in the first answer to a question.
    """
    first_answers = find_answers(events)
    plans: list[PlanMade] = []
    for recorded in events:
        event = recorded.event
        if isinstance(event, PlanMade):
            plans.append(event)
        elif isinstance(event, Approved) and event is first_answers.get(event.asked) and event.plan:
            plans.append(event.plan)
    return plans


def _convert_plan(
    state: JobState, plans: Sequence[PlanMade], record: JobRecord, texts: ResultTexts
) -> dict[str, Any]:
    """Return the current plan in the form of `JobResult.plan`."""
    synthesized = select_events(record.journal, Synthesized)
    method = None
    if synthesized:
        method = synthesized[-1].method.value
    degraded = plans[-1].degraded
    why = None
    if degraded:
        why = texts.explain(degraded) or "the planner's answer was not a plan"
    if state.plan:
        plan = state.plan.plan
    else:
        plan = plans[-1].plan
    fields: dict[str, Any] = json.loads(record.payloads[plan.digest])
    fields |= {"degraded": why, "method": method}
    layers = build_bill(state)
    if layers:
        fields["child_jobs"] = format_bill(layers)
        if record.job.child_jobs_lack:
            fields["child_jobs"] += f"; {record.job.child_jobs_lack}"
    return fields


def _build_handoffs(record: JobRecord) -> tuple[dict[str, Any], ...]:
    handoffs = []
    for event in select_events(record.journal, HandoffIssued):
        child = None
        if event.child:
            child = event.child.job_id
        handoffs.append(
            build_handoff_json(
                record.payloads[event.handoff.digest],
                event.group,
                child,
                record.handoffs.get(event.handoff_id),
            )
        )
    return tuple(handoffs)


def build_handoff_json(
    message: str, group: str | None, child: JobId | None, info: HandoffInfo | None
) -> dict[str, Any]:
    """Return a handoff in the form of `JobResult.handoffs`, without the secret name of notes.

    Args:
        message: the AgentHandoff as JSON.
    """
    handoff: dict[str, Any] = {**json.loads(message), "group": group, "child": child}
    handoff.pop("notes_name", None)
    if info is None:
        return handoff
    handoff |= {
        "state": info.state,
        "worker": info.worker,
        "claims": info.claims,
        "lost_claims": info.lost_claims,
        "past_claims": [asdict(past_claim) for past_claim in info.past_claims],
    }
    if info.deferred_until:
        handoff["deferred_until"] = info.deferred_until
    return handoff | {
        "usage": convert_usage(info),
        "issued_at": info.issued_at,
        "started_at": info.started_at,
        "finished_at": info.finished_at,
    }


def _build_verdict(event: Reviewed, texts: ResultTexts) -> dict[str, Any]:
    verdict = None
    if event.decision and event.result:
        verdict = Verdict.from_value(texts.get_result(event.result).output)
    if verdict:
        fields = verdict.model_dump(mode="json")
    else:
        fields = {"verdict": None, "revisions": [], "open_points": [], "scores": []}
    why = None
    if event.decision is None:
        why = texts.explain(event.result)
    is_offline = (
        verdict is not None
        and event.result is not None
        and texts.get_result(event.result).model == OFFLINE_MODEL
    )
    checked = None
    if is_offline:
        checked = CHECKED_OFFLINE
    return {"round": event.round, **fields, "problem": why or event.problem, "checked": checked}


def _build_conflicts(state: JobState | None, texts: ResultTexts) -> tuple[dict[str, Any], ...]:
    if state is None:
        return ()
    conflicts: list[dict[str, Any]] = []
    for dispute in find_disputes(state, texts):
        conflicts.append(
            {
                **dispute.conflict.model_dump(mode="json"),
                "stands": list(dispute.settlement.stands),
                "why": dispute.settlement.why,
            }
        )
    return tuple(conflicts)


def _build_notes(
    answer: Answer | None,
    plans: Sequence[PlanMade],
    end: JobEnded | None,
    texts: ResultTexts,
    waits: Iterable[str],
) -> tuple[str, ...]:
    """Return the notes of the answer, the reason of the end, and the lines of `waits`, in this
    order. An ended job without an answer has the notes of its plan.
    """
    if answer:
        notes = list(answer.notes)
    elif end:
        notes = list(build_plan_notes(plans[-1] if plans else None, texts))
    else:
        notes = []
    if end and end.reason:
        notes.append(texts.explain(end.because) or end.reason)
    return (*notes, *waits)


class HandoffReport(Message):
    """One handoff in full, as `handoff show --handoff` prints it."""

    handoff: dict[str, Any]
    """The AgentHandoff with its usage, as in `JobResult.handoffs`."""
    result: dict[str, Any] | None = None
    """The HandoffResult. Null: the handoff has no result yet."""
    turns: tuple[dict[str, Any], ...] = ()
    """The stored turns of a running handoff, or of any handoff with HANDOFF_KEEP_TURNS."""
    context: str = ""
    """One sentence about cleared results, summaries of earlier turns, and tokens that the provider
    caches for one hour. It comes from the stored turns.
    """


def read_handoffs(
    store: Store, job_id: JobId, handoff_ids: Sequence[HandoffId]
) -> list[HandoffReport]:
    """Return the report of each handoff once, in the order of the ids.

    Raises:
        UnknownJob: there is no such job.
        UserError: the job has no handoff with one of the ids.
        StoreError: a payload is gone.
    """
    handoff_ids = list(dict.fromkeys(handoff_ids))
    records = _read_records(store, job_id, handoff_ids)
    messages = [handoff.message for handoff in records.values()]
    results = [handoff.result for handoff in records.values() if handoff.result]
    texts = store.payloads.get(job_id, messages, results=results)
    turns = store.claims.read_checkpoints(job_id, handoff_ids)
    reports: list[HandoffReport] = []
    for handoff_id in handoff_ids:
        reports.append(_build_handoff_report(records[handoff_id], texts, turns.get(handoff_id, ())))
    return reports


def _read_records(
    store: Store, job_id: JobId, handoff_ids: Sequence[HandoffId]
) -> dict[HandoffId, HandoffRecord]:
    """Return the hashes of the handoffs. Raises as `read_handoffs`."""
    well_formed: list[HandoffId] = []
    for handoff_id in handoff_ids:
        if re.fullmatch(HANDOFF_ID_PATTERN, handoff_id):
            well_formed.append(handoff_id)
    records = store.job_summaries.read_handoffs(job_id, well_formed)
    unknown_ids: list[str] = []
    for handoff_id in handoff_ids:
        if handoff_id not in records:
            unknown_ids.append(repr(handoff_id[:MAX_ID_CHARS]))
    if unknown_ids:
        get_job_info(store, job_id)
        raise UserError(
            f"{job_id} has no handoff {', '.join(unknown_ids)}: an id looks like `check_0107.1`",
            command=f"handoff show {job_id}",
        )
    return records


def _build_handoff_report(
    record: HandoffRecord, texts: Mapping[str, str], turns: Sequence[Checkpoint]
) -> HandoffReport:
    result = None
    if record.result:
        result = parse_result_values(texts[record.result])
    return HandoffReport(
        handoff=build_handoff_json(texts[record.message], record.group, record.child, record.info),
        result=result,
        turns=tuple(turn.model_dump(mode="json") for turn in turns),
        context=describe_context_use(turns),
    )
