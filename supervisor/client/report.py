"""The result of a job and of its handoffs, read from the journal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel, Field, JsonValue

from handoff_queue.shared.settings.settings import OFFLINE_MODEL
from handoff_queue.shared.store.dead_letters import DeadLetter
from handoff_queue.shared.store.jobs import HandoffStanding, JobStanding
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.answer import Answer
from handoff_queue.shared.types.errors import UnknownJob, UserError
from handoff_queue.shared.types.events import (
    DEFAULT_TENANT,
    Approved,
    HandoffFinished,
    HandoffIssued,
    JobEnded,
    JobStatus,
    JobSubmitted,
    PlanMade,
    PlanPatched,
    Quoted,
    Recorded,
    Reviewed,
    Routed,
    Synthesised,
)
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import HANDOFF_ID_PATTERN, HandoffId, JobId
from handoff_queue.shared.types.job_options import Mode, Priority
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.results import result_values
from handoff_queue.shared.types.review import Verdict
from handoff_queue.shared.types.usage import cost_usd
from handoff_queue.supervisor.client.approvals import answers_in, approvals_in, change_of
from handoff_queue.supervisor.client.fleet import usage_of
from handoff_queue.supervisor.client.job_lookup import get_standing
from handoff_queue.supervisor.client.request import checks_of
from handoff_queue.supervisor.client.rows import (
    Row,
    choose_steps,
    copies_of_step,
    last_repeated_steps,
    rows_of,
)
from handoff_queue.supervisor.client.waiting_reasons import answers_to_wait_for, missing_for
from handoff_queue.supervisor.lifecycle.answer import of_the_plan
from handoff_queue.supervisor.lifecycle.disputes import disputes_of
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.lifecycle.teams import bill_of, bill_text
from handoff_queue.supervisor.lifecycle.working_time import working_seconds
from handoff_queue.supervisor.quoting.quote_history import quote_as_json
from handoff_queue.supervisor.roles.router import Route


@dataclass(frozen=True, slots=True)
class JobRecord:
    """Record of a job: all its data in the store, at one moment."""

    at: float
    """Unix time in seconds, by Redis's clock."""
    job: JobStanding
    journal: tuple[Recorded, ...]
    handoffs: Mapping[HandoffId, HandoffStanding]
    payloads: Mapping[str, str]
    """All payloads of the journal, by digest."""
    waits: tuple[str, ...]
    """One line for each missing worker."""


def record_of(store: Store, job_id: JobId) -> JobRecord:
    """Read the journal of a job and all its payloads.

    Raises:
        UnknownJob: there is no such job.
        StoreError: a payload is gone.
    """
    journal = tuple(store.journal.read(job_id))
    standing = next(iter(store.jobs.standings([job_id])), None)
    if not journal or standing is None:
        raise UnknownJob.named(job_id)
    issued = [entry.event for entry in journal if isinstance(entry.event, HandoffIssued)]
    ends = [entry.event for entry in journal if isinstance(entry.event, HandoffFinished)]
    finished = {event.handoff_id for event in ends}
    results = {event.result.digest for event in ends}
    digests = [ref.digest for entry in journal for ref in refs_in(entry.event)] + [
        event.specialist for event in issued
    ]
    return JobRecord(
        at=store.connection.now(),
        job=standing,
        journal=journal,
        handoffs=store.jobs.handoffs(job_id, [event.handoff_id for event in issued]),
        payloads=store.payloads.get(
            job_id,
            [digest for digest in digests if digest not in results],
            results=[*results],
        ),
        waits=tuple(
            map(
                str,
                missing_for(
                    store,
                    standing,
                    [entry.handoff_id for entry in issued if entry.handoff_id not in finished],
                ),
            )
        ),
    )


def letters_about(store: Store, job_id: JobId) -> tuple[DeadLetter, ...]:
    """Return the dead letters about a job."""
    letters: list[DeadLetter] = []
    for letter in store.dead_letters.newest():
        if job_id in letter.body:
            letters.append(letter)
    return tuple(letters)


def refs_in(value: object) -> Iterable[BlobRef]:
    """Yield every payload reference in a wire type, at any depth."""
    if isinstance(value, BlobRef):
        yield value
    elif isinstance(value, BaseModel):
        for _, item in value:
            yield from refs_in(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from refs_in(item)


CHECKED_OFFLINE = "sources and coverage were checked by code; no model judged the content"
"""The note on a verdict of the offline model."""


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
    answer: JsonValue = None
    """Markdown with numbered sources; the value itself for a job with an answer schema."""
    citations: tuple[dict[str, Any], ...] = ()
    """{n, source, digest, start, end, quote, claim, step}: text[start:end] of the document is
    the quote.
    """
    mode: Mode = Mode.TEAM
    """The requested mode. A job of mode `auto` has the mode that the router chose."""
    route: dict[str, Any] | None = None
    """{specialist, why, problem} of a job whose mode was `auto`; specialist null: a team."""
    plan: dict[str, Any] | None = None
    """{steps: [{id, title, specialist, task, depends_on, fallback}], synthesis, why, degraded,
    method, sub_teams}. `sub_teams` is the bill of the child jobs, if there are any.
    """
    handoffs: tuple[dict[str, Any], ...] = ()
    """Each AgentHandoff in full, with `worker`, `state`, `claims`, times (Unix seconds) and
    the `usage` that the budget counted. `child` is the id of a child job; null: an agent does
    the step itself.
    """
    results: tuple[dict[str, Any], ...] = ()
    """Each HandoffResult in full. Its own `usage` does not count calls that a kill of the
    process cut off.
    """
    verdicts: tuple[dict[str, Any], ...] = ()
    """{round, verdict, revisions, open_points, scores, problem, checked}. A score is
    {criterion, score, why, step}. `step` is null if the score is for the whole answer.
    `checked` names the checks of a reviewer without a model. Null: a model judged.
    """
    patches: tuple[dict[str, Any], ...] = ()
    """{added: [{id, specialist}], changed, dropped, too_late, repeats: {step: earlier step},
    nothing_new, final, why, problem}. One entry for each change that the replanner proposed.
    """
    gates: dict[str, Any] | None = None
    """{from, checks, facts, looks: [{vetoes, sent_back}]}. None: the job has no gates. `from`
    is the origin of the gates: the job, its workflow or the settings. `checks` lists the
    gates, and `facts` counts the user's facts. `looks` has one entry for each checked answer.
    """
    conflicts: tuple[dict[str, Any], ...] = ()
    """{id, claims, stands, why}. `claims` contradict each other. `stands` names the claims
    that the judge accepts; null: disputed.
    """
    approvals: tuple[dict[str, Any], ...] = ()
    """Approvals: {version, what, why, asked_at, decision, by, note, draft, own_plan}.

    `decision` is null until a person decides. `draft` is the answer that waits for approval.
    `own_plan` is the plan that a person gave: after an approval the job uses this plan, and after a
    rejection the planner starts from this plan.
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
    the first step.
    Null: the user asked for no quote. Nine of ten jobs stay below `most`, after twelve jobs
    with a quote have ended.
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
    """Notes for the reader: missing parts, errors, and, while the job runs, missing workers."""
    waiting_since: float | None = None
    """Time since which the job waits for a person, in Unix seconds; null if it does not wait. A
    waiting job has the status `waiting`.
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

        `step`: a repeated step, as the workflow names it; None: the last repeated steps.

        Raises:
            UserError: `step` is no repeated step of the job.
        """
        names = dict.fromkeys(row.step for row in self.row_results)
        wanted = choose_steps(names, self.last_repeated, step)
        rows: list[Row] = []
        for row_result in self.row_results:
            if row_result.step in wanted:
                rows.append(row_result)
        return rows


def report_on(store: Store, job_id: JobId) -> JobResult:
    """Read the result of a job from the store.

    Raises:
        UnknownJob: there is no such job.
        StoreError: a payload is gone.
    """
    return report_of(record_of(store, job_id))


def report_of(record: JobRecord) -> JobResult:
    """Return the report of a record. Pure."""
    events, standing, payloads = record.journal, record.job, record.payloads
    words, made, submitted = ResultTexts(payloads), _plans(events), _of(events, JobSubmitted)[0]
    state = None
    if made:
        state = fold(standing.job_id, None, events)
    ended, until = _end(record)
    answer = None
    if ended and ended.answer:
        answer = Answer.from_json(payloads[ended.answer.digest])
    rows, last = _rows(state, record, words)
    return JobResult(
        job_id=standing.job_id,
        status=standing.status,
        tenant=submitted.tenant,
        priority=submitted.priority,
        answer=answer.content if answer else None,
        citations=_citations(answer),
        mode=_mode(events),
        route=_route(events, words),
        plan=_plan(state, made, record, words) if state else None,
        handoffs=_handoffs(record),
        results=tuple(
            result_values(payloads[event.result.digest]) for event in _of(events, HandoffFinished)
        ),
        verdicts=tuple(_verdict(event, words) for event in _of(events, Reviewed)),
        patches=tuple(change_of(event, words) for event in _of(events, PlanPatched)),
        gates=checks_of([recorded.event for recorded in events], words),
        conflicts=_conflicts(state, words),
        approvals=approvals_in(events, payloads),
        gaps=_gaps(answer),
        to_finish_usd=cost_usd(answer.to_finish_microusd) if answer else None,
        quote=next((quote_as_json(event.quote) for event in reversed(_of(events, Quoted))), None),
        usage=usage_of(standing),
        wall_s=round(until - events[0].at, 3),
        worked_s=round(working_seconds(standing.job_id, events), 3)
        if _of(events, Quoted)
        else None,
        model=", ".join(
            dict.fromkeys(event.model for event in _of(events, HandoffFinished) if event.model)
        )
        or None,
        notes=_notes(answer, made[-1] if made else None, ended, words, record.waits),
        waiting_since=standing.asked_at,
        waits_for=tuple(map(str, answers_to_wait_for(standing))),
        has_open_points=answer is not None and bool(answer.open_points),
        row_results=rows,
        last_repeated=last,
        asked_for_a_form=submitted.answer_schema is not None,
    )


def _rows(
    state: JobState | None, record: JobRecord, words: ResultTexts
) -> tuple[tuple[Row, ...], frozenset[str]]:
    if state is None or state.plan is None:
        return (), frozenset()
    plan = Plan.from_json(record.payloads[state.plan.plan.digest])
    return tuple(rows_of(state, copies_of_step(plan), words)), last_repeated_steps(plan)


def _end(record: JobRecord) -> tuple[JobEnded | None, float]:
    """Return the last event JobEnded and its time. If the job runs: None and the time of the
    record.
    """
    if record.job.status.ended:
        for recorded in reversed(record.journal):
            if isinstance(recorded.event, JobEnded):
                return recorded.event, recorded.at
    return None, record.at


def _of(events: Sequence[Recorded], kind: type[Any]) -> list[Any]:
    anies: list[Any] = []
    for recorded in events:
        if isinstance(recorded.event, kind):
            anies.append(recorded.event)
    return anies


def _citations(answer: Answer | None) -> tuple[dict[str, Any], ...]:
    if answer is None:
        return ()
    citations: list[dict[str, Any]] = []
    for numbered in answer.citations:
        citations.append(
            {
                "n": numbered.n,
                **numbered.citation.model_dump(),
                "claim": numbered.claim,
                "step": numbered.step,
            }
        )
    return tuple(citations)


def _gaps(answer: Answer | None) -> tuple[dict[str, Any], ...]:
    if answer:
        gaps = answer.gaps
    else:
        gaps = ()
    items: list[dict[str, Any]] = []
    for gap in gaps:
        items.append(
            {
                "step": gap.step,
                "specialist": gap.specialist,
                "why": gap.why,
                "likely_usd": cost_usd(gap.likely_microusd),
            }
        )
    return tuple(items)


def _mode(events: Sequence[Recorded]) -> Mode:
    decisions: list[JobSubmitted | Routed] = [*_of(events, JobSubmitted), *_of(events, Routed)]
    return decisions[-1].mode


def _route(events: Sequence[Recorded], words: ResultTexts) -> dict[str, Any] | None:
    routed: list[Routed] = _of(events, Routed)
    if not routed:
        return None
    last = routed[-1]
    route = None
    if last.result:
        route = words.result(last.result)
    why = None
    if route and last.problem is None:
        why = Route.of(route.output).why
    return {
        "specialist": last.specialist,
        "why": why,
        "problem": last.problem or (route and words.why(last.result)),
    }


def _plans(events: Sequence[Recorded]) -> list[PlanMade]:
    """Return all plans of the job, the current plan last."""
    answers = {
        id(answer): answer.plan
        for answer in answers_in(events).values()
        if isinstance(answer, Approved)
    }
    plans = (
        recorded.event if isinstance(recorded.event, PlanMade) else answers.get(id(recorded.event))
        for recorded in events
    )
    plan_mades: list[PlanMade] = []
    for plan in plans:
        if plan:
            plan_mades.append(plan)
    return plan_mades


def _plan(
    state: JobState, made: Sequence[PlanMade], record: JobRecord, words: ResultTexts
) -> dict[str, Any]:
    synthesised, lacks = _of(record.journal, Synthesised), record.job.teams_lack
    method = None
    if synthesised:
        method = synthesised[-1].method.value
    degraded = made[-1].degraded
    why = None
    if degraded:
        why = words.why(degraded) or "the planner's answer was no plan"
    if state.plan:
        plan = state.plan.plan
    else:
        plan = made[-1].plan
    if layers := bill_of(state):
        bill = {"sub_teams": bill_text(layers) + (lacks and f"; {lacks}")}
    else:
        bill = {}
    return {**json.loads(record.payloads[plan.digest]), "degraded": why, "method": method, **bill}


def _handoffs(record: JobRecord) -> tuple[dict[str, Any], ...]:
    handoffs = []
    for event in _of(record.journal, HandoffIssued):
        child = None
        if event.child:
            child = event.child.job_id
        handoffs.append(
            handoff_as_json(
                record.payloads[event.handoff.digest],
                event.group,
                child,
                record.handoffs.get(event.handoff_id),
            )
        )
    return tuple(handoffs)


def handoff_as_json(
    message: str, group: str | None, child: JobId | None, standing: HandoffStanding | None
) -> dict[str, Any]:
    """Return a handoff in the form of `JobResult.handoffs`. `message`: the AgentHandoff as
    JSON.
    """
    if standing is None:
        books = {}
    else:
        books = {
            "state": standing.state,
            "worker": standing.worker,
            "claims": standing.claims,
            "lost_claims": standing.lost_claims,
            "stints": [asdict(past_claim) for past_claim in standing.stints],
            **({"throttled_until": standing.parked_until} if standing.parked_until else {}),
            "usage": usage_of(standing),
            "issued_at": standing.issued_at,
            "started_at": standing.started_at,
            "finished_at": standing.finished_at,
        }
    return {**json.loads(message), "group": group, "child": child, **books}


def _verdict(event: Reviewed, words: ResultTexts) -> dict[str, Any]:
    verdict = None
    if event.decision and event.result:
        verdict = Verdict.of(words.result(event.result).output)
    if verdict:
        said = verdict.model_dump(mode="json")
    else:
        said = {"verdict": None, "revisions": [], "open_points": [], "scores": []}
    why = None
    if event.decision is None:
        why = words.why(event.result)
    is_offline = (
        verdict is not None
        and event.result is not None
        and words.result(event.result).model == OFFLINE_MODEL
    )
    checked = None
    if is_offline:
        checked = CHECKED_OFFLINE
    return {"round": event.round, **said, "problem": why or event.problem, "checked": checked}


def _conflicts(state: JobState | None, words: ResultTexts) -> tuple[dict[str, Any], ...]:
    if state:
        disputes = disputes_of(state, words)
    else:
        disputes = ()
    conflicts: list[dict[str, Any]] = []
    for dispute in disputes:
        conflicts.append(
            {
                **dispute.conflict.model_dump(mode="json"),
                "stands": list(dispute.settlement.stands),
                "why": dispute.settlement.why,
            }
        )
    return tuple(conflicts)


def _notes(
    answer: Answer | None,
    plan: PlanMade | None,
    ended: JobEnded | None,
    words: ResultTexts,
    waits: Iterable[str],
) -> tuple[str, ...]:
    """Return the notes of the answer, the reason of the end, and the missing workers, in this
    order.
    """
    if answer:
        notes = list(answer.notes)
    elif ended:
        notes = list(of_the_plan(plan, words))
    else:
        notes = []
    if ended and ended.reason:
        notes.append(words.why(ended.because) or ended.reason)
    return (*notes, *waits)


MOST_ID_CHARS = 80


class HandoffReport(Message):
    """One handoff in full, as `handoff show --handoff` prints it."""

    handoff: dict[str, Any]
    """The AgentHandoff with its usage, as in `JobResult.handoffs`."""
    result: dict[str, Any] | None = None
    """The HandoffResult. Null: the handoff has no result yet."""
    turns: tuple[dict[str, Any], ...] = ()
    """The stored turns of a running handoff, or of any handoff with HANDOFF_KEEP_TURNS."""


def handoffs_on(
    store: Store, job_id: JobId, handoff_ids: Sequence[HandoffId]
) -> list[HandoffReport]:
    """Return the reports in the order of the ids, in three round trips.

    Raises:
        UnknownJob: there is no such job.
        UserError: the job has no handoff with one of the ids.
        StoreError: a payload is gone.
    """
    wanted = list(dict.fromkeys(handoff_ids))
    books = store.job_summaries.handoffs(
        job_id, [handoff for handoff in wanted if re.fullmatch(HANDOFF_ID_PATTERN, handoff)]
    )
    if unknown := [handoff[:MOST_ID_CHARS] for handoff in wanted if handoff not in books]:
        get_standing(store, job_id)
        which = ", ".join(map(repr, unknown))
        raise UserError(
            f"{job_id} has no handoff {which}: an id looks like `check_0107.1`, and `handoff show {job_id}` names some"
        )
    messages = [handoff.message for handoff in books.values()]
    results = [handoff.result for handoff in books.values() if handoff.result]
    texts, turns = (
        store.payloads.get(job_id, messages, results=results),
        store.claims.turns(job_id, wanted),
    )
    return [
        HandoffReport(
            handoff=handoff_as_json(
                texts[books[handoff].message],
                books[handoff].group,
                books[handoff].child,
                books[handoff].standing,
            ),
            result=result_values(texts[result]) if (result := books[handoff].result) else None,
            turns=tuple(turn.model_dump(mode="json") for turn in turns.get(handoff, ())),
        )
        for handoff in wanted
    ]
