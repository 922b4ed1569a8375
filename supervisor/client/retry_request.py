"""Store the decision to go on with an ended job."""

from __future__ import annotations

from contextlib import suppress

from handoff_queue.shared.store.jobs import JobStanding
from handoff_queue.shared.store.journal import Commit
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import UnknownJob, VersionConflict
from handoff_queue.shared.types.events import Recorded, RetryRequested
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.limits import NewLimits
from handoff_queue.supervisor.client.follow_up import keep_documents
from handoff_queue.supervisor.client.submission import budget_fields
from handoff_queue.supervisor.lifecycle.reduce import fold, fold_on
from handoff_queue.supervisor.lifecycle.retry_rules import retry_of
from handoff_queue.supervisor.lifecycle.state import JobState

WAKE_AFTER_S = 1.0
"""A retry whose wake-up was lost is found by a sweeper after this."""


def retry_commit(
    state: JobState,
    books: JobStanding,
    from_step: str | None,
    new: NewLimits,
    due_at: float,
    *,
    whole: bool = False,
) -> Commit:
    """The decision to go on, made on this state and no other: of two at once, one finds that
    the job has not ended any more.

    `due_at`: Unix time in seconds at which a sweeper looks, should the wake-up be lost.

    Raises:
        UserError: see `retry_of`.
    """
    return resume_commit(
        state, retry_of(state, used_limits(books), from_step, new, whole=whole), due_at
    )


def used_limits(books: JobStanding) -> dict[str, int]:
    """What a job has used, by the names of the limits that hold it."""
    return {
        "max_turns": books.turns,
        "max_tokens": books.input_tokens + books.output_tokens,
        "max_microusd": books.cost_microusd or 0,
    }


def resume_commit(state: JobState, event: RetryRequested, due_at: float) -> Commit:
    """The commit of this event. `due_at`: as of `retry_commit`."""
    status = fold_on(state, [Recorded(state.version + 1, state.as_of, event)]).status
    fields = {"status": status.value, "cancelled": "", "asks": "", **budget_fields(event)}
    return Commit(
        job_id=state.job_id,
        expected=state.version,
        tip=state.as_of,
        events=[event],
        fields=fields,
        due_at=due_at,
    )


def retry_job(
    store: Store, job_id: JobId, from_step: str | None, new: NewLimits, *, whole: bool = False
) -> None:
    """Decide it, and write it down, whatever else happens to the job meanwhile.

    Raises:
        UserError: see `retry_of`, or its documents are gone.
    """
    while True:
        books = next(iter(store.jobs.standings([job_id])), None)
        state = fold(job_id, None, store.journal.read(job_id))
        if state is None or books is None:
            raise UnknownJob.named(job_id)
        commit = retry_commit(
            state, books, from_step, new, store.connection.now() + WAKE_AFTER_S, whole=whole
        )
        keep_documents(store, state)
        with suppress(
            VersionConflict
        ):  # its webhook was tried meanwhile, or somebody else retries it
            store.journal.commit(commit)
            return
