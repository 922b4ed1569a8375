"""The audit: the actions of users on the fleet and on single jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.audit import Actor, AuditAction, AuditEntry
from handoff_queue.shared.types.errors import StoreRefusesWrites, UserError
from handoff_queue.shared.types.events import (
    BY_SCHEDULE,
    ApprovalAsked,
    Approved,
    CancelRequested,
    JobSubmitted,
    RecordedEvent,
    Rejected,
    RetryRequested,
    UserMessageSent,
)
from handoff_queue.shared.types.ids import JobId

MAX_REFUSAL_CHARS = 200
"""Most characters of the reason of a refusal in the audit stream."""

Answer = TypeVar("Answer")


def audit_change(
    store: Store,
    actor: Actor | None,
    action: AuditAction,
    subject: str,
    change: Callable[[], Answer],
    detail: str = "",
) -> Answer:
    """Write an entry to the audit stream, make the change, and return its result.

    The entry comes first, so that no crash leaves a change without its entry. If the change is
    refused, a second entry says so. A full Redis refuses the entry, and a deletion frees memory:
    the change then comes first. If Redis is still full, the entry is a line of the log.
    """
    entry = AuditEntry(
        at=store.connection.now(), action=action, subject=subject, detail=detail, actor=actor
    )
    try:
        store.audit.add(entry)
    except StoreRefusesWrites:
        answer = change()
        _add_or_log(store, entry)
        return answer
    try:
        return change()
    except UserError as error:
        refusal = f"refused: {str(error)[:MAX_REFUSAL_CHARS]}"
        _add_or_log(store, entry.model_copy(update={"detail": refusal}))
        raise


def _add_or_log(store: Store, entry: AuditEntry) -> None:
    try:
        store.audit.add(entry)
    except StoreRefusesWrites as error:
        from handoff_queue.shared.observability.logs import get_log

        get_log(__name__).warning(
            "cannot store an audit entry", error=str(error), entry=entry.model_dump(mode="json")
        )


def find_actions(job_id: JobId, events: Sequence[RecordedEvent]) -> list[AuditEntry]:
    """Return the actions of users in the journal of a job, the newest last. Actions of other
    jobs and of the clock are left out, and so are answers to questions that had an answer.
    """
    questions: dict[int, str] = {}
    answered_versions: set[int] = set()
    entries: list[AuditEntry] = []
    for recorded in events:
        if isinstance(recorded.event, ApprovalAsked):
            questions[recorded.version] = _get_subject(recorded.event)
        if isinstance(recorded.event, Approved | Rejected):
            if recorded.event.asked in answered_versions:
                continue
            answered_versions.add(recorded.event.asked)
        action = _parse_action(recorded, questions)
        if action is not None:
            entries.append(
                AuditEntry(
                    at=recorded.at,
                    action=action.kind,
                    subject=job_id,
                    detail=action.detail,
                    actor=action.actor,
                )
            )
    return entries


def _get_subject(question_event: ApprovalAsked) -> str:
    """Return the subject of a question: the tool of a call, or a value of `ApprovalOf`."""
    if question_event.call is not None:
        return question_event.call.tool
    return question_event.what.value


class _Action(NamedTuple):
    kind: AuditAction
    detail: str
    actor: Actor | None


def _parse_action(  # noqa: PLR0911 (one case an event)
    recorded: RecordedEvent, questions: dict[int, str]
) -> _Action | None:
    """Return the action of a user; None if the event is not one.

    Args:
        questions: the subject of each question, by the version of the question.
    """
    match event := recorded.event:
        case JobSubmitted(parent=None):
            return _Action(AuditAction.SUBMIT, "", event.actor)
        case CancelRequested(by="user"):
            return _Action(AuditAction.CANCEL, "", event.actor)
        case CancelRequested() if event.by.startswith(BY_SCHEDULE):
            return _Action(AuditAction.CANCEL, event.by, event.actor)
        case RetryRequested(continuation=None):
            detail = "fills the gaps" if event.fills_gaps else event.from_step or ""
            return _Action(AuditAction.RETRY, detail, event.actor)
        case UserMessageSent():
            return _Action(AuditAction.SAY, event.step or "", event.actor)
        case Approved(by="user"):
            detail = ", ".join(event.steps) or questions.get(event.asked, "")
            return _Action(AuditAction.APPROVE, detail, event.actor)
        case Rejected():
            detail = ", ".join(event.steps) or questions.get(event.asked, "")
            return _Action(AuditAction.REJECT, detail, event.actor)
        case _:
            return None
