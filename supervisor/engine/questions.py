"""Events of a job's questions to a person: the question, its reminders, and the default answer
after a time limit.
"""

from __future__ import annotations

from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.store.payloads import PayloadStore
from handoff_queue.shared.types.events import (
    ApprovalAsked,
    ApprovalReminded,
    Approved,
    DecisionAsked,
)
from handoff_queue.shared.types.handoff import BlobRef, Manifest
from handoff_queue.supervisor.engine.pending_writes import PendingWrites
from handoff_queue.supervisor.lifecycle.commands import (
    ApproveBySilence,
    AskApproval,
    AskUser,
    RemindUser,
)
from handoff_queue.supervisor.lifecycle.state import JobState


def record_question(
    command: AskUser | AskApproval | RemindUser | ApproveBySilence,
    wait_s: int,
    draft: BlobRef | None,
    writes: PendingWrites,
) -> None:
    """Record a question, a reminder or a default answer.

    Args:
        wait_s: most seconds that the job waits for an approval.
        draft: the answer that the person approves; None: the question is about something else.
    """
    match command:
        case AskUser():
            writes.events.append(DecisionAsked(why=command.why))
        case AskApproval():
            writes.events.append(
                ApprovalAsked(
                    what=command.what,
                    why=command.why,
                    wait_s=wait_s,
                    steps=command.steps,
                    draft=draft,
                )
            )
            writes.effects.append(command)
        case RemindUser():
            writes.events.append(ApprovalReminded(asked=command.asked, number=command.number))
            writes.effects.append(command)
        case ApproveBySilence():
            writes.events.append(Approved(asked=command.asked, by="timeout"))


def keep_documents_for(state: JobState, blobs: PayloadStore, payload_cache: PayloadCache) -> None:
    """Keep the documents of a job for as long as it may wait for an approval and then run. The
    event of the question keeps the other payloads.
    """
    digests = [document.digest for document in blobs.fetched(state.job_id)]
    if (manifest := state.submitted.manifest) is not None:
        text = payload_cache.payloads(state.job_id, [manifest.digest])[manifest.digest]
        digests += [document.digest for document in Manifest.from_json(text).documents]
    blobs.missing_documents(
        digests, state.submitted.approvals.wait_s + state.submitted.limits.max_seconds
    )
