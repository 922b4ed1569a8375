"""Store the decision to continue an ended job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.audit import Actor
from handoff_queue.shared.types.budget_measures import MEASURES
from handoff_queue.shared.types.errors import Conflict, UnknownJob, VersionConflict
from handoff_queue.shared.types.events import RecordedEvent, RetryRequested
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.limits import NewLimits
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.supervisor.client.job_lookup import read_job_info
from handoff_queue.supervisor.client.submission import build_budget_fields, keep_documents
from handoff_queue.supervisor.lifecycle.job_retry import build_retry
from handoff_queue.supervisor.lifecycle.reduce import fold, fold_on
from handoff_queue.supervisor.lifecycle.state import JobState

WAKE_AFTER_S = 1.0
"""Seconds after which a sweeper finds a retry whose wake-up was lost."""
KEY_CHARS = 16
"""Characters of the digest of an idempotency key in the journal."""
MAX_CONFLICTS = 20
"""Version conflicts in a row at which a retry is given up."""


def build_retry_commit(
    state: JobState,
    info: JobInfo,
    from_step: str | None,
    new: NewLimits,
    due_at: float,
    actor: Actor | None = None,
    key: str | None = None,
) -> Commit:
    """Return the commit of a retry. Redis takes the commit only while the journal has this
    state.

    Args:
        info: the usage of the job.
        due_at: Unix time in seconds at which a sweeper evaluates the job if the wake-up is lost.
        key: the digest of the idempotency key.

    Raises:
        UserError: see `build_retry`.
    """
    event = build_retry(state, get_usage_by_limit(info), from_step, new)
    return build_event_commit(state, event.model_copy(update={"actor": actor, "key": key}), due_at)


def get_usage_by_limit(info: JobInfo) -> dict[str, int]:
    """Return the usage of a job under the names of its limits."""
    return {measure.limit: measure.get_used_amount(info) for measure in MEASURES}


def build_event_commit(state: JobState, event: RetryRequested, due_at: float) -> Commit:
    """Return the commit of a retry's event.

    Args:
        due_at: see `build_retry_commit`.
    """
    status = fold_on(state, [RecordedEvent(state.version + 1, state.as_of, event)]).status
    answered = dict.fromkeys(("cancelled", "asks", "limits_to_raise"), "")
    fields = {"status": status.value, **answered, **build_budget_fields(event)}
    return Commit(
        job_id=state.job_id,
        expected=state.version,
        tip=state.tip,
        events=[event],
        fields=fields,
        due_at=due_at,
    )


def retry_job(
    store: Store,
    job_id: JobId,
    from_step: str | None,
    new: NewLimits,
    actor: Actor | None = None,
    key: str | None = None,
) -> None:
    """Store a retry, and try again if the journal of the job changes during the call.

    Args:
        key: idempotency key. If the job was retried with this key before, nothing is stored.

    Raises:
        UnknownJob: there is no such job.
        Conflict: the key was used for another retry of the job.
        TooManyOpenJobs: the tenant has as many open jobs as it may have.
        VersionConflict: the journal has changed in each of many tries.
        UserError: see `build_retry`, or the documents of the job are gone.
    """
    digest = None
    if key is not None:
        digest = compute_digest(f"{job_id}\0{key}")[:KEY_CHARS]
    conflicts = 0
    while True:
        info = read_job_info(store, job_id)
        events = store.journal.read(job_id)
        state = fold(job_id, None, events)
        if state is None or info is None:
            raise UnknownJob.for_job(job_id)
        if digest is not None and _is_stored(events, digest, from_step, new):
            return
        due_at = store.connection.now() + WAKE_AFTER_S
        commit = build_retry_commit(state, info, from_step, new, due_at, actor, digest)
        keep_documents(store, state)
        # The journal changes when the webhook is tried, or when another client retries the job. An
        # event of a worker does not matter: the job has ended.
        try:
            store.journal.commit(replace(commit, ignores_workers=True))
        except VersionConflict:
            conflicts += 1
            if conflicts > MAX_CONFLICTS:
                raise
        else:
            return


def _is_stored(
    events: Sequence[RecordedEvent], key: str, from_step: str | None, new: NewLimits
) -> bool:
    """Return whether the journal has the retry with this key.

    Raises:
        Conflict: the key belongs to another retry of the job.
    """
    for recorded in events:
        event = recorded.event
        if not isinstance(event, RetryRequested) or event.key != key:
            continue
        limits = NewLimits(**{name: getattr(event, name) for name in NewLimits.model_fields})
        if (event.from_step, limits) != (from_step, new):
            raise Conflict(
                f"the idempotency key {key!r:.80} belongs to another retry: use another key"
            )
        return True
    return False
