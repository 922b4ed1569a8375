"""A summary of a job. Its round trips and bytes do not grow with the number of handoffs. It reads
the hash of the job and the last `TAIL_EVENTS` events. So a fact that must not disappear from it is
a field of the hash.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from pydantic import JsonValue

from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.store.job_summary import HandoffRecord, JobSummary
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.answer import Answer
from handoff_queue.shared.types.errors import MalformedMessage, StoreError, UnreadableJob
from handoff_queue.shared.types.events import (
    DEFAULT_TENANT,
    EndTaskTried,
    HandoffFinished,
    HandoffIssued,
    JobEnded,
    JobStatus,
    JobSubmitted,
    RecordedEvent,
    RetryRequested,
    Reviewed,
    WebhookTried,
)
from handoff_queue.shared.types.handoff import SharedRun, describe_shared_run
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Mode, Priority
from handoff_queue.shared.types.message import Message
from handoff_queue.supervisor.client.job_lookup import get_job_info
from handoff_queue.supervisor.client.json_forms import convert_usage
from handoff_queue.supervisor.client.waiting_reasons import Describe, read_some_waiting_reasons
from handoff_queue.supervisor.lifecycle.job_end import WEBHOOK_BACKOFF_S
from handoff_queue.supervisor.lifecycle.plan_summary import FEW_STEPS

MAX_NAMED = 20
"""Most handoffs of a kind that the summary names, so that they fit on a screen."""
MAX_NEWEST = 10
"""Most handoffs in `JobOutline.newest`."""
MAX_PAYLOAD_BYTES = 32_000
"""Most bytes of a message, a result or an answer that the summary reads."""
MAX_ANSWER_CHARS = 4_000
"""Most characters of an answer in the summary. `handoff result` prints longer answers."""
MAX_WAITING = 1_000
"""Most messages that are read from each unserved queue."""
_TASK_CHARS, _WHY_CHARS = 100, 300
_SUBJECTS = {
    ApprovalOf.TOOLS.value: "the tool calls that wait for an approval",
    ApprovalOf.FAILURE.value: "the failed step that waits for a decision",
}
"""Subjects of open questions, in words that differ from the usual ones."""

_DELIVERIES = {
    "webhook_tried": "the webhook was not delivered",
    "end_task_tried": "the task at the end was not sent",
}
"""The failed action, by the type of the event."""


class JobOutline(Message):
    """A summary of a job, as `handoff show` prints it."""

    job_id: str
    status: JobStatus
    title: str
    tenant: str = DEFAULT_TENANT
    priority: Priority = Priority.INTERACTIVE
    mode: Mode = Mode.TEAM
    forked_from: str | None = None
    """The job whose results this job keeps. Null: the job is not a fork."""
    events: int
    """The number of events in the journal."""
    plan: dict[str, Any] | None = None
    """{steps, parts: [{first, last, count, specialist}], other_steps}. Null: there is no plan,
    or the plan has at most 20 steps.
    """
    counts: dict[str, int] | None = None
    """{issued, ok, partial, needs_input, failed, dropped, open} of all handoffs. Null: a
    version of this program that does not count handoffs wrote a part of the journal.
    """
    at_work: dict[str, Any]
    """{running, deferred, at_least} of the open handoffs. `at_least` is true if there may be
    more.
    """
    failed: tuple[dict[str, Any], ...] = ()
    """The newest handoffs that failed or need input, the newest first: {handoff_id,
    assigned_to, state, worker, task, why, shared, doing, child, usage, issued_at, started_at,
    finished_at}.
    """
    dropped: tuple[dict[str, Any], ...] = ()
    """The newest dropped handoffs, the newest first."""
    running: tuple[dict[str, Any], ...] = ()
    """The running handoffs with the leases that end first."""
    newest: tuple[dict[str, Any], ...] = ()
    """The handoffs that ended or were issued last, the newest first."""
    reviews: tuple[dict[str, Any], ...] = ()
    """{round, decision, problem} of the reviews among the last events."""
    messages: tuple[dict[str, Any], ...] = ()
    """The newest messages of users, the oldest first: {message_id, at, step, text, taken:
    [{handoff_id, turn}]}.
    """
    answer: JsonValue = None
    """The answer. Null: there is none, or it is too long; `left_out` then says so."""
    usage: dict[str, Any]
    """The usage, as in `JobResult`."""
    wall_s: float
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """One line for each part that the summary leaves out."""


def _read_summary(store: Store, job_id: JobId) -> JobSummary:
    """Return the summary of the stored job. Raises as `build_outline`."""
    try:
        summary = store.job_summaries.read(job_id)
    except StoreError:
        get_job_info(store, job_id)
        raise
    if summary.job.status is JobStatus.UNREADABLE:
        raise UnreadableJob.for_job(job_id)
    return summary


def build_outline(store: Store, job_id: JobId, describe: Describe = str) -> JobOutline:
    """Return the summary of a job, in at most eight round trips for any number of steps.

    Args:
        describe: makes a note of a reason to wait.

    Raises:
        UnknownJob: there is no such job.
        UnreadableJob: the record of the job cannot be read.
    """
    summary = _read_summary(store, job_id)
    job = summary.job
    submitted = summary.first.event
    assert isinstance(submitted, JobSubmitted)
    forked_from = None
    if submitted.fork:
        forked_from = submitted.fork.job_id
    mode = submitted.mode
    if mode is Mode.AUTO:
        routed = store.job_summaries.read_routing_decision(job.job_id)
        mode = routed.mode if routed else mode
    plan = None
    if summary.plan:
        plan = json.loads(summary.plan)
    end, until = find_end(summary.job, summary.tail, summary.at)
    running = summary.running[:MAX_NAMED]
    newest = _list_newest(summary)
    described_ids = [*summary.failed, *summary.dropped, *running, *newest]
    loaded = _read_payloads(store, summary, described_ids, end)
    short_answer = None
    if loaded.answer and len(loaded.answer.text) <= MAX_ANSWER_CHARS:
        short_answer = loaded.answer.content
    unshown_end = end if short_answer is None else None

    def select_handoffs(handoff_ids: Iterable[HandoffId]) -> tuple[dict[str, Any], ...]:
        handoffs = loaded.handoffs
        return tuple(handoffs[handoff_id] for handoff_id in handoff_ids if handoff_id in handoffs)

    return JobOutline(
        job_id=job.job_id,
        status=job.status,
        title=job.title,
        tenant=submitted.tenant,
        priority=submitted.priority,
        forked_from=forked_from,
        mode=mode,
        events=job.version,
        plan=plan,
        counts={**asdict(summary.tally), "open": summary.tally.open},
        at_work={
            "running": len(summary.running),
            "deferred": len(summary.deferred),
            "at_least": summary.is_cut,
        },
        failed=select_handoffs(reversed(summary.failed)),
        dropped=select_handoffs(reversed(summary.dropped)),
        running=select_handoffs(running),
        newest=select_handoffs(newest),
        reviews=_build_reviews(summary),
        messages=loaded.messages,
        answer=short_answer,
        usage=convert_usage(job),
        wall_s=round(until - summary.first.at, 3),
        notes=_build_notes(store, summary, end, loaded.answer, describe),
        left_out=tuple(_describe_omitted_parts(summary, unshown_end)),
    )


def find_end(
    job: JobInfo, events: Sequence[RecordedEvent], read_at: float
) -> tuple[JobEnded | None, float]:
    """Return the last event JobEnded of an ended job, and its time. Events after the end do not
    count, such as the attempts to call the webhook. If the job runs: None and `read_at`.

    Args:
        events: events of the job, the oldest first.
        read_at: Unix time in seconds at which the job and the events were read.
    """
    if job.status.has_ended:
        for recorded in reversed(events):
            if isinstance(recorded.event, JobEnded):
                return recorded.event, recorded.at
    return None, read_at


def _list_newest(summary: JobSummary) -> tuple[HandoffId, ...]:
    """Return the handoffs of the last events, the newest first, each once."""
    handoff_ids: dict[HandoffId, None] = {}
    for recorded in reversed(summary.tail):
        if isinstance(recorded.event, HandoffIssued | HandoffFinished):
            handoff_ids[recorded.event.handoff_id] = None
    return tuple(handoff_ids)[:MAX_NEWEST]


def _build_reviews(summary: JobSummary) -> tuple[dict[str, Any], ...]:
    reviews: list[dict[str, Any]] = []
    for recorded in summary.tail:
        review = recorded.event
        if isinstance(review, Reviewed):
            reviews.append(
                {"round": review.round, "decision": review.decision, "problem": review.problem}
            )
    return tuple(reviews)


class _LoadedPayloads(NamedTuple):
    """The texts of an outline."""

    handoffs: Mapping[HandoffId, dict[str, Any]]
    """Short forms of the handoffs."""
    messages: tuple[dict[str, Any], ...]
    """Messages of users."""
    answer: Answer | None
    """None: there is no answer, or its payload is too long."""


def _read_payloads(
    store: Store, summary: JobSummary, handoff_ids: Sequence[HandoffId], end: JobEnded | None
) -> _LoadedPayloads:
    """Read the texts in one round trip for the handoffs and one for the payloads."""
    job_id = summary.job.job_id
    records = store.job_summaries.read_handoffs(job_id, list(dict.fromkeys(handoff_ids)))
    digests: list[str] = [message.digest for message in summary.messages]
    for handoff in records.values():
        for digest in (handoff.message, handoff.result):
            if digest:
                digests.append(digest)
    answer_digest = None
    if end and end.answer:
        answer_digest = end.answer.digest
        digests.append(answer_digest)
    texts = store.payloads.read_short(job_id, digests, MAX_PAYLOAD_BYTES)
    handoffs: dict[HandoffId, dict[str, Any]] = {}
    for handoff_id, handoff in records.items():
        handoffs[handoff_id] = _build_short_form(handoff_id, handoff, texts)
    answer = None
    if answer_digest in texts:
        answer = Answer.from_json(texts[answer_digest])
    return _LoadedPayloads(handoffs, _build_messages(summary, texts), answer)


def _build_messages(summary: JobSummary, texts: Mapping[str, str]) -> tuple[dict[str, Any], ...]:
    messages: list[dict[str, Any]] = []
    for message in summary.messages:
        messages.append(
            {
                "message_id": message.message_id,
                "at": message.at,
                "step": message.step,
                "text": texts.get(message.digest, ""),
                "taken": [{"handoff_id": name, "turn": turn} for name, turn in message.taken],
            }
        )
    return tuple(messages)


def _build_short_form(
    handoff_id: HandoffId, record: HandoffRecord, texts: Mapping[str, str]
) -> dict[str, Any]:
    """Return the short form of a handoff. `task` and `why` are null if their payload is too
    long.
    """
    message: dict[str, Any] = json.loads(texts.get(record.message, "{}"))
    result: dict[str, Any] = json.loads(texts.get(record.result or "", "{}"))
    info = record.info
    return {
        "handoff_id": handoff_id,
        "assigned_to": record.assigned_to,
        "state": record.status or result.get("status") or info.state,
        "worker": info.worker,
        "task": _format_line(message.get("task_description"), _TASK_CHARS),
        "why": _format_line(result.get("error") or result.get("needs"), _WHY_CHARS),
        "shared": _describe_origin(result.get("shared")),
        "doing": info.doing,
        "child": record.child,
        "usage": convert_usage(info),
        "issued_at": info.issued_at,
        "started_at": info.started_at,
        "finished_at": info.finished_at,
    }


def _describe_origin(value: JsonValue) -> str | None:
    """Return the origin of a copied result in words. None: the handoff ran itself, or the value
    cannot be read.
    """
    if value is None:
        return None
    try:
        return describe_shared_run(SharedRun.from_value(value))
    except MalformedMessage:
        return None


def _format_line(text: str | None, limit: int) -> str | None:
    """Return a text as one line of at most `limit` characters, or None without a text."""
    if not text:
        return None
    line = " ".join(text[: 4 * limit].split())
    if len(line) <= limit:
        return line
    return f"{line[: limit - 1]}…"


def _build_notes(
    store: Store,
    summary: JobSummary,
    end: JobEnded | None,
    answer: Answer | None,
    describe: Describe,
) -> tuple[str, ...]:
    notes: list[str] = []
    if answer:
        notes += answer.notes[:MAX_NAMED]
    if end and end.reason:
        notes.append(end.reason)
    notes += _describe_failed_deliveries(summary.tail)
    notes += map(describe, read_some_waiting_reasons(store, summary.job, MAX_WAITING))
    return tuple(notes)


def _describe_failed_deliveries(events: Iterable[RecordedEvent]) -> Iterable[str]:
    """Yield a line for the webhook, and for the end task, whose newest try failed. Tries before a
    retry of the job do not count.
    """
    newest: dict[str, WebhookTried | EndTaskTried] = {}
    for recorded in events:
        event = recorded.event
        if isinstance(event, RetryRequested):
            newest.clear()
        elif isinstance(event, WebhookTried | EndTaskTried) and not event.under_way:
            newest[event.type] = event
    for event in newest.values():
        if not event.delivered:
            subject = _DELIVERIES[event.type]
            yield f"{subject}: try {event.attempt} of {len(WEBHOOK_BACKOFF_S)}: {event.detail}"


def _describe_omitted_parts(summary: JobSummary, end: JobEnded | None) -> Iterable[str]:
    """Yield the lines of `left_out`.

    Args:
        end: the end of a job whose answer is not shown.
    """
    tally = summary.tally
    if not summary.plan and tally.issued > FEW_STEPS:
        yield f"the plan, which has {FEW_STEPS} steps at most"
    if summary.job.approval:
        subject = f"the {summary.job.approval} that waits for an approval"
        yield _SUBJECTS.get(summary.job.approval, subject)
    if end and end.answer:
        yield f"the answer, of {end.answer.size:,} characters with its sources"
    yield "one handoff in full, its message, its result and its turns"
    parts = "the plan, reviews, conflicts, gates, gaps, approvals"
    yield f"all handoffs ({tally.issued:,}), {parts}"
