"""Jobs that follow on another job. The submission reads the earlier results once."""

from __future__ import annotations

from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import UnknownJob, UserError
from handoff_queue.shared.types.handoff import Earlier, Manifest
from handoff_queue.supervisor.client.request import EarlierWork, Request
from handoff_queue.supervisor.lifecycle.follow_up import copy_results, results_to_give
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState


def follow_on(store: Store, request: Request) -> EarlierWork | None:
    """Return the results of the job that `request.after` names, or None if it names none.

    A request without documents takes over the documents of that job.

    Raises:
        UnknownJob: there is no such job.
        UserError: the earlier job has not ended or has no result, or the documents are gone.
        StoreError: a payload is gone.
    """
    if (job_id := request.after) is None:
        return None
    state = fold(job_id, None, store.journal.read(job_id))
    if state is None:
        raise UnknownJob.named(job_id)
    if not state.ended:
        raise UserError(
            f"{job_id} has not ended yet: wait for its end (`handoff watch {job_id}`), and submit the follow-up then"
        )
    results = results_to_give(state)
    if not results:
        raise UserError(
            f"{job_id} has no result to continue from: submit the whole request without after (--after)"
        )
    manifest = None
    if request.documents is None:
        manifest = state.submitted.manifest
    if manifest:
        keep_documents(store, state)
    digests = [state.submitted.request.digest]
    if manifest:
        digests.append(manifest.digest)
    result_digests = [ref.digest for ref in results.values()]
    texts = store.payloads.get(job_id, digests, results=result_digests)
    given, payloads = copy_results(state, ResultTexts(texts))
    taken_over = [texts[digest] for digest in digests]
    return EarlierWork(
        earlier=Earlier(job_id=job_id, request=state.submitted.request),
        given=given,
        manifest=manifest,
        document_count=state.submitted.document_count if manifest else 0,
        payloads=(*taken_over, *payloads),
        priority=state.submitted.priority,
    )


def keep_documents(store: Store, state: JobState) -> None:
    """Extend the retention of an ended job's documents, for the time limit of the job.

    Raises:
        UserError: the documents are gone.
    """
    if (manifest_ref := state.submitted.manifest) is None:
        return
    manifest = Manifest.from_json(
        store.payloads.get(state.job_id, [manifest_ref.digest])[manifest_ref.digest]
    )
    digests = [document.digest for document in manifest.documents]
    if gone := store.payloads.missing_documents(digests, state.submitted.limits.max_seconds):
        raise UserError(
            f"{len(gone)} of the documents of {state.job_id} are no longer stored: give them again in documents (--docs)"
        )
