"""A summary of a job. Its round trips and bytes do not grow with the number of handoffs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import JsonValue

from handoff_queue.shared.store.job_summary import HandoffBooks, JobSummary
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.answer import Answer
from handoff_queue.shared.types.events import (
    DEFAULT_TENANT,
    HandoffFinished,
    HandoffIssued,
    JobEnded,
    JobStatus,
    JobSubmitted,
    Reviewed,
)
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_options import Mode, Priority
from handoff_queue.shared.types.message import Message
from handoff_queue.supervisor.client.fleet import usage_of
from handoff_queue.supervisor.client.waiting_reasons import missing_in
from handoff_queue.supervisor.lifecycle.plan_summary import FEW_STEPS

MOST_NAMED = 20
"""Most handoffs of a kind that the summary names. A screen has room for them."""
MOST_NEWEST = 10
MOST_PAYLOAD_BYTES = 32_000
"""Most bytes of a payload that the summary reads: of a message, a result or the answer."""
MOST_ANSWER_CHARS = 4_000
"""Most characters of an answer in the summary. `handoff result` prints longer answers."""
MOST_WAITING = 1_000
"""Handoffs that are read of each unserved queue."""
_TASK_CHARS, _WHY_CHARS = 100, 300


class JobOutline(Message):
    """A summary of a job, as `handoff show` prints it."""

    job_id: str
    status: JobStatus
    title: str
    tenant: str = DEFAULT_TENANT
    priority: Priority = Priority.INTERACTIVE
    mode: Mode = Mode.TEAM
    events: int
    """The number of events in the journal."""
    plan: dict[str, Any] | None = None
    """{steps, parts: [{first, last, count, specialist}], other_steps}. Null: the plan has at
    most 20 steps.
    """
    counts: dict[str, int] | None = None
    """{issued, ok, partial, needs_input, failed, dropped, open} of all handoffs."""
    at_work: dict[str, Any]
    """{running, throttled, at_least} of the open handoffs. `at_least`: there may be more."""
    failed: tuple[dict[str, Any], ...] = ()
    """The newest handoffs that failed or need input, the newest first: {handoff_id,
    assigned_to, state, worker, task, why, doing, child, usage, issued_at, started_at,
    finished_at}.
    """
    dropped: tuple[dict[str, Any], ...] = ()
    running: tuple[dict[str, Any], ...] = ()
    """The running handoffs with the leases that end first."""
    newest: tuple[dict[str, Any], ...] = ()
    """The handoffs that ended or were issued last, the newest first."""
    reviews: tuple[dict[str, Any], ...] = ()
    """{round, decision} of the reviews among the last events."""
    answer: JsonValue = None
    """The answer. Null: there is none, or the answer is long (`left_out`)."""
    usage: dict[str, Any]
    """The usage, as in `JobResult`."""
    wall_s: float
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """One line for each part that the summary leaves out, with the command that prints the
    part.
    """


def outline_on(store: Store, job_id: JobId) -> JobOutline:
    """Return the summary of a job. It takes about eight round trips for any number of steps.

    Raises:
        UnknownJob: there is no such job.
    """
    glance = store.job_summaries.of(job_id)
    job, submitted = glance.job, glance.first.event
    assert isinstance(submitted, JobSubmitted)
    routed = None
    if submitted.mode is Mode.AUTO:
        routed = store.job_summaries.routed(job.job_id)
    ended, until = _end(glance)
    running, newest = glance.running[:MOST_NAMED], _newest(glance)
    summaries, answer = _told(
        store, glance, [*glance.failed, *glance.dropped, *running, *newest], ended
    )

    if answer and len(answer.text) <= MOST_ANSWER_CHARS:
        if answer.value is not None:
            question = answer.value
        else:
            question = answer.text
    else:
        question = None

    def shown(some: Iterable[HandoffId]) -> tuple[dict[str, Any], ...]:
        items: list[dict[str, Any]] = []
        for handoff_id in some:
            if handoff_id in summaries:
                items.append(summaries[handoff_id])
        return tuple(items)

    return JobOutline(
        job_id=job.job_id,
        status=job.status,
        title=job.title,
        tenant=submitted.tenant,
        priority=submitted.priority,
        mode=routed.mode if routed else submitted.mode,
        events=job.version,
        plan=json.loads(glance.plan) if glance.plan else None,
        counts={**asdict(glance.tally), "open": glance.tally.open} if glance.tally else None,
        at_work={
            "running": len(glance.running),
            "throttled": len(glance.parked),
            "at_least": glance.is_cut,
        },
        failed=shown(reversed(glance.failed)),
        dropped=shown(reversed(glance.dropped)),
        running=shown(running),
        newest=shown(newest),
        reviews=_reviews(glance),
        answer=question,
        usage=usage_of(job),
        wall_s=round(until - glance.first.at, 3),
        notes=_notes(store, glance, ended, answer),
        left_out=tuple(_left_out(glance, ended if question is None else None)),
    )


def _end(glance: JobSummary) -> tuple[JobEnded | None, float]:
    """Return the last event JobEnded and its time. If the job runs: None and the time of the
    read.
    """
    if glance.job.status.ended:
        for recorded in reversed(glance.tail):
            if isinstance(recorded.event, JobEnded):
                return recorded.event, recorded.at
    return None, glance.at


def _newest(glance: JobSummary) -> tuple[HandoffId, ...]:
    handoff_ids = (
        recorded.event.handoff_id
        for recorded in reversed(glance.tail)
        if isinstance(recorded.event, HandoffIssued | HandoffFinished)
    )
    return tuple(dict.fromkeys(handoff_ids))[:MOST_NEWEST]


def _reviews(glance: JobSummary) -> tuple[dict[str, Any], ...]:
    reviews = [review.event for review in glance.tail if isinstance(review.event, Reviewed)]
    return tuple(
        {"round": review.round, "decision": review.decision, "problem": review.problem}
        for review in reviews
    )


def _told(
    store: Store, glance: JobSummary, handoff_ids: Sequence[HandoffId], ended: JobEnded | None
) -> tuple[dict[HandoffId, dict[str, Any]], Answer | None]:
    """Return short forms of the handoffs, and the answer if it is short."""
    job_id = glance.job.job_id
    books = store.job_summaries.handoffs(job_id, list(dict.fromkeys(handoff_ids)))
    digests = [
        digest
        for handoff in books.values()
        for digest in (handoff.message, handoff.result)
        if digest
    ]
    answer = None
    if ended and ended.answer:
        answer = ended.answer.digest
    texts = store.payloads.short(
        job_id, [*digests, *([answer] if answer else [])], MOST_PAYLOAD_BYTES
    )
    summaries = {
        handoff_id: _in_short(handoff_id, handoff, texts) for handoff_id, handoff in books.items()
    }
    return summaries, Answer.from_json(texts[answer]) if answer in texts else None


def _in_short(
    handoff_id: HandoffId, books: HandoffBooks, texts: Mapping[str, str]
) -> dict[str, Any]:
    """Return the short form of a handoff. `task` and `why` are null if their payload is too
    long.
    """
    message: dict[str, Any] = json.loads(texts.get(books.message, "{}"))
    result: dict[str, Any] = json.loads(texts.get(books.result or "", "{}"))
    standing = books.standing
    return {
        "handoff_id": handoff_id,
        "assigned_to": books.assigned_to,
        "state": books.status or result.get("status") or standing.state,
        "worker": standing.worker,
        "task": _line(message.get("task_description"), _TASK_CHARS),
        "why": _line(result.get("error") or result.get("needs"), _WHY_CHARS),
        "doing": standing.doing,
        "child": books.child,
        "usage": usage_of(standing),
        "issued_at": standing.issued_at,
        "started_at": standing.started_at,
        "finished_at": standing.finished_at,
    }


def _line(text: str | None, most: int) -> str | None:
    line = None
    if text:
        line = " ".join(text[: 4 * most].split())
    if line is None or len(line) <= most:
        return line
    return f"{line[: most - 1]}…"


def _notes(
    store: Store, glance: JobSummary, ended: JobEnded | None, answer: Answer | None
) -> tuple[str, ...]:
    notes: list[str] = []
    if answer:
        notes += answer.notes[:MOST_NAMED]
    if ended and ended.reason:
        notes.append(ended.reason)
    notes += map(str, missing_in(store, glance.job, MOST_WAITING))
    return tuple(notes)


def _left_out(glance: JobSummary, ended: JobEnded | None) -> Iterable[str]:
    """Yield the lines of `left_out`. `ended`: the end of a job whose answer is not shown."""
    job_id, tally = glance.job.job_id, glance.tally
    if tally is None:
        yield f"how many handoffs there are, and the plan: a version that does not count has been there: `handoff show {job_id} --full`"
    elif not glance.plan and tally.issued > FEW_STEPS:
        yield f"the plan, which has {FEW_STEPS} steps at most: `handoff show {job_id} --full`"
    if glance.job.approval:
        yield f"the {glance.job.approval} that waits for an approval: `handoff show {job_id} --full`"
    if ended and ended.answer:
        yield f"the answer, of {ended.answer.size:,} characters with its sources: `handoff result {job_id}`"
    yield f"one handoff in full, its message, its result and its turns: `handoff show {job_id} --handoff HANDOFF`"
    count = ""
    if tally:
        count = f" ({tally.issued:,})"
    yield f"all handoffs{count}, the plan, reviews, conflicts, gates, gaps, approvals: `handoff show {job_id} --full`, also with --json"
