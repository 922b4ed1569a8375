"""Everything about one job in one value: what `handoff run --json`, `handoff show` and `client.result` give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import Field, JsonValue

from shared.ledger.jobs import HandoffStanding, JobStanding
from shared.ledger.ledger import Ledger
from shared.wire.answer import Answer
from shared.wire.events import (
    ApprovalAsked,
    Approved,
    ConflictsFound,
    HandoffFinished,
    HandoffIssued,
    JobEnded,
    JobStatus,
    JobSubmitted,
    PlanMade,
    Recorded,
    Rejected,
    Reviewed,
    Routed,
    Synthesised,
)
from shared.wire.ids import JobId
from shared.wire.message import Message
from shared.wire.mode import Mode
from shared.wire.usage import cost_usd
from supervisor.lifecycle.answering import no_plan
from supervisor.lifecycle.disputes import disputes_of
from supervisor.lifecycle.evolve import fold
from supervisor.lifecycle.words import Words
from supervisor.record import Record, record_of
from supervisor.roles.router import Route


class JobResult(Message):
    """A job's outcome. While it runs, `answer` is null and the lists hold what there is."""

    job_id: str
    status: JobStatus
    answer: JsonValue = None
    """Markdown with numbered sources; the value itself for a job with an answer schema."""
    citations: tuple[dict[str, Any], ...] = ()
    """{n, source, digest, start, end, quote, claim, step}: text[start:end] of the document is the quote."""
    mode: Mode = Mode.TEAM
    """How the job is supervised: as it was asked for, or, of `auto`, what the router made of it."""
    route: dict[str, Any] | None = None
    """{specialist, why, problem} of a job whose mode was `auto`; specialist null: a team."""
    plan: dict[str, Any] | None = None
    """{steps: [{id, specialist, task, depends_on, fallback}], synthesis, why, degraded, method}"""
    handoffs: tuple[dict[str, Any], ...] = ()
    """Every AgentHandoff in full, with `worker`, `state`, `claims`, times (Unix seconds) and the `usage` that the budget counted for it."""
    results: tuple[dict[str, Any], ...] = ()
    """Every HandoffResult in full. Its own `usage` knows nothing of calls that were in the air when a process was killed."""
    verdicts: tuple[dict[str, Any], ...] = ()
    """{round, verdict, revisions, open_points, problem}"""
    conflicts: tuple[dict[str, Any], ...] = ()
    """{id, claims, stands, why}: claims that can't all be right, in full, and which of them the judge lets stand. None: it is disputed."""
    approvals: tuple[dict[str, Any], ...] = ()
    """{version, what, why, asked_at, decision, by, note, draft}; decision null: it waits for one. draft: the answer that would leave."""
    usage: dict[str, Any] = {}  # noqa: RUF012 (pydantic copies it)
    """{turns, input_tokens, output_tokens, cost_usd, cut: {calls, tokens, cost_usd}}: what the budget counted, the sum of that of the
    handoffs. `cut`: the part of it that is an upper bound. cost_usd null: a price is not known."""
    wall_s: float = 0.0
    """From submit to the end, or to now."""
    model: str | None = None
    notes: tuple[str, ...] = ()
    """For the reader: what is missing, what went wrong, and while the job runs, who is not there and is needed."""
    asked_for_a_form: bool = Field(default=False, exclude=True)
    """The job has an answer schema: its answer is a JSON value, a string as well, and no Markdown."""


def report_on(ledger: Ledger, job_id: JobId) -> JobResult:
    """Read everything that the ledger has about a job.

    Raises:
        UnknownJob: there is none.
        LedgerError: its payloads are gone.
    """
    return report_of(record_of(ledger, job_id))


def report_of(record: Record) -> JobResult:
    """The same of what was read before, or exported. Pure."""
    events, standing, payloads = record.journal, record.job, record.payloads
    words = Words(payloads)
    ended, until = _end(record)
    answer = Answer.from_json(payloads[ended.answer.digest]) if ended and ended.answer else None
    return JobResult(
        job_id=standing.job_id,
        status=standing.status,
        answer=None if answer is None else (answer.value if answer.value is not None else answer.text),
        citations=_citations(answer),
        mode=_mode(events),
        route=_route(events, words),
        plan=_plan(events, payloads, words),
        handoffs=_handoffs(record),
        results=tuple(_json(payloads[event.result.digest]) for event in _of(events, HandoffFinished)),
        verdicts=tuple(_verdict(event, words) for event in _of(events, Reviewed)),
        conflicts=_conflicts(standing.job_id, events, words),
        approvals=_approvals(events, payloads),
        usage=usage_of(standing),
        wall_s=round(until - events[0].at, 3),
        model=", ".join(dict.fromkeys(event.model for event in _of(events, HandoffFinished) if event.model)) or None,
        notes=_notes(answer, next(reversed(_plans(events)), None), ended, words, record.waits),
        asked_for_a_form=any(event.answer_schema is not None for event in _of(events, JobSubmitted)),
    )


def _end(record: Record) -> tuple[JobEnded | None, float]:
    """The end that stands, and when it was; None, and the moment of the record: it goes on, perhaps again."""
    if record.job.status.ended:
        for recorded in reversed(record.journal):
            if isinstance(recorded.event, JobEnded):
                return recorded.event, recorded.at
    return None, record.at


def _of(events: Sequence[Recorded], kind: type[Any]) -> list[Any]:
    return [recorded.event for recorded in events if isinstance(recorded.event, kind)]


def _json(text: str) -> dict[str, Any]:
    from json import loads

    value: dict[str, Any] = loads(text)
    return value


def _citations(answer: Answer | None) -> tuple[dict[str, Any], ...]:
    if answer is None:
        return ()
    return tuple({"n": one.n, **one.citation.model_dump(), "claim": one.claim, "step": one.step} for one in answer.citations)


def _mode(events: Sequence[Recorded]) -> Mode:
    said: list[JobSubmitted | Routed] = [*_of(events, JobSubmitted), *_of(events, Routed)]
    return said[-1].mode


def _route(events: Sequence[Recorded], words: Words) -> dict[str, Any] | None:
    routed: list[Routed] = _of(events, Routed)
    if not routed:
        return None
    last = routed[-1]
    said = words.result(last.result) if last.result else None
    why = Route.of(said.output).why if said and last.problem is None else None
    return {"specialist": last.specialist, "why": why, "problem": last.problem or (said and words.why(last.result))}


def _answered(events: Sequence[Recorded]) -> dict[int, Approved | Rejected]:
    """What was said to each question: the first answer counts."""
    found: dict[int, Approved | Rejected] = {}
    for recorded in events:
        if isinstance(recorded.event, Approved | Rejected):
            found.setdefault(recorded.event.asked, recorded.event)
    return found


def _approvals(events: Sequence[Recorded], payloads: Mapping[str, str]) -> tuple[dict[str, Any], ...]:
    answered, found = _answered(events), []
    for recorded in events:
        if not isinstance(asked := recorded.event, ApprovalAsked):
            continue
        said = answered.get(recorded.version)
        draft = Answer.from_json(payloads[asked.draft.digest]) if asked.draft else None
        found.append(
            {
                "version": recorded.version,
                "what": asked.what.value,
                "why": asked.why,
                "asked_at": recorded.at,
                "decision": said.type if said else None,
                "by": said.by if isinstance(said, Approved) else "user" if said else None,
                "note": payloads[said.note.digest] if said and said.note else None,
                "draft": None if draft is None else draft.text if draft.value is None else draft.value,
            }
        )
    return tuple(found)


def _plans(events: Sequence[Recorded]) -> list[PlanMade]:
    """Every plan that the job has had, the one that stands last."""
    answers = {id(answer): answer.plan for answer in _answered(events).values() if isinstance(answer, Approved)}
    plans = (one.event if isinstance(one.event, PlanMade) else answers.get(id(one.event)) for one in events)
    return [plan for plan in plans if plan]


def _plan(events: Sequence[Recorded], payloads: Mapping[str, str], words: Words) -> dict[str, Any] | None:
    made = _plans(events)
    if not made:
        return None
    synthesised = _of(events, Synthesised)
    method = synthesised[-1].method.value if synthesised else None
    plan, degraded = made[-1].plan, made[-1].degraded
    why = (words.why(degraded) or "the planner's answer was no plan") if degraded else None
    return {**_json(payloads[plan.digest]), "degraded": why, "method": method}


def _handoffs(record: Record) -> tuple[dict[str, Any], ...]:
    found = []
    for event in _of(record.journal, HandoffIssued):
        standing = record.handoffs.get(event.handoff_id)
        extra = (
            {}
            if standing is None
            else {
                "state": standing.state,
                "worker": standing.worker,
                "claims": standing.claims,
                **({"parked_until": standing.parked_until} if standing.parked_until else {}),
                "usage": usage_of(standing),
                "issued_at": standing.issued_at,
                "started_at": standing.started_at,
                "finished_at": standing.finished_at,
            }
        )
        found.append({**_json(record.payloads[event.handoff.digest]), "group": event.group, **extra})
    return tuple(found)


def _verdict(event: Reviewed, words: Words) -> dict[str, Any]:
    verdict = words.verdict(event)
    said = verdict.model_dump(mode="json") if verdict else {"verdict": None, "revisions": [], "open_points": []}
    why = words.why(event.result) if event.decision is None else None
    return {"round": event.round, **said, "problem": why or event.problem}


def usage_of(books: JobStanding | HandoffStanding) -> dict[str, Any]:
    """What the budget has counted for a job or a handoff, in the form of `JobResult.usage`."""
    return {
        "turns": books.turns,
        "input_tokens": books.input_tokens,
        "output_tokens": books.output_tokens,
        "cost_usd": cost_usd(books.cost_microusd),
        "cut": {
            "calls": books.cut_calls,
            "tokens": books.cut_tokens,
            "cost_usd": None if books.cost_microusd is None else cost_usd(books.cut_microusd),
        },
    }


def _conflicts(job_id: JobId, events: Sequence[Recorded], words: Words) -> tuple[dict[str, Any], ...]:
    if not _of(events, ConflictsFound) or (state := fold(job_id, None, events)) is None:
        return ()
    found = disputes_of(state, words)
    return tuple(
        {**one.conflict.model_dump(mode="json"), "stands": list(one.settlement.stands), "why": one.settlement.why} for one in found
    )


def _notes(answer: Answer | None, plan: PlanMade | None, ended: JobEnded | None, words: Words, waits: Iterable[str]) -> tuple[str, ...]:
    """The reason of the end comes last, but for who is waited for."""
    notes = list(answer.notes) if answer else list(no_plan(plan, words)) if ended else []
    if ended and ended.reason:
        notes.append(words.why(ended.because) or ended.reason)
    return (*notes, *waits)
