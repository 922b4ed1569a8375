"""Retry and delete jobs; pause and resume roles."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress

from handoff_queue.shared.store.jobs import JobStanding
from handoff_queue.shared.store.journal import Commit
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.text.words import close_names, suggestion
from handoff_queue.shared.types.errors import UnknownJob, UserError, VersionConflict
from handoff_queue.shared.types.events import HandoffIssued, Recorded, RetryRequested
from handoff_queue.shared.types.ids import NAME_PATTERN, JobId
from handoff_queue.shared.types.limits import NewLimits
from handoff_queue.shared.types.names import RESERVED, ROLES, THINK_QUEUE
from handoff_queue.supervisor.client.follow_up import keep_documents
from handoff_queue.supervisor.client.submission import books_of
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
    return going_on(state, retry_of(state, used_of(books), from_step, new, whole=whole), due_at)


def used_of(books: JobStanding) -> dict[str, int]:
    """What a job has used, by the names of the limits that hold it."""
    return {
        "max_turns": books.turns,
        "max_tokens": books.input_tokens + books.output_tokens,
        "max_microusd": books.cost_microusd or 0,
    }


def going_on(state: JobState, event: RetryRequested, due_at: float) -> Commit:
    """The commit of this event. `due_at`: as of `retry_commit`."""
    status = fold_on(state, [Recorded(state.version + 1, state.as_of, event)]).status
    fields = {"status": status.value, "cancelled": "", "asks": "", **books_of(event)}
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


def delete_job(store: Store, job_id: JobId) -> None:
    """From below, so that what is left after a crash is still found from above.

    Raises:
        UserError: it, or a job below it, has not ended; nothing of that is removed.
    """
    standing = next(iter(store.jobs.standings([job_id])), None)
    if standing is None:
        return
    if not standing.status.ended:
        raise UserError(
            f"{job_id} has not ended yet: "
            + (
                f"it stops with {standing.parent}, try again"
                if standing.parent
                else "cancel it first"
            )
        )
    for child in standing.children:
        delete_job(store, child)
    issued = [
        one.event.handoff_id
        for one in store.journal.read(job_id)
        if isinstance(one.event, HandoffIssued)
    ]
    store.jobs.delete(job_id, issued)


_ALIKE = 0.9
"""Of difflib's ratio: a letter more or less, or two that changed places."""
MOST_REASON_CHARS = 200
"""It stands in a line of everything that waits for the role."""


def pause(store: Store, role: str, reason: str) -> None:
    """Raises: UserError: see `check_pausable`."""
    check_pausable(store, role)
    store.pauses.pause(role, " ".join(reason.split())[:MOST_REASON_CHARS])


def check_pausable(store: Store, role: str) -> None:
    """While nobody at all is announced (all processes are gone, or Redis was full), every name
    may be one that was served before.

    Raises:
        UserError: nobody serves or has served it; or nobody is announced, and it is no name,
        or one of those that are known but for a slip.
    """
    served = store.presence.served()
    known = _known(store, served)
    is_name = re.fullmatch(NAME_PATTERN, role) is not None and role not in RESERVED
    may_be_served = not served and is_name and not close_names(role, known, alike=_ALIKE)
    if role not in known and not may_be_served:
        raise UserError(
            f"no worker serves or has served {role[:64]!r}: {suggestion(role, sorted(known))}"
        )


def resume(store: Store, role: str) -> int | None:
    """Let a role go on. Return how many handoffs it had been stopped at. None: it was not paused.

    Raises:
        UserError: the role is not paused, and it is not a role that `check_pausable` accepts.
    """
    held = store.pauses.resume(role)
    if held is None and role not in _known(store, store.presence.served()):
        if paused := close_names(role, store.pauses.all()):
            raise UserError(f"{role[:64]!r} is not paused: did you mean {paused[0]}?")
        check_pausable(store, role)
    return held


def _known(store: Store, served: Iterable[str]) -> set[str]:
    """Return the roles that have a queue, or that workers or supervisors serve."""
    return {*ROLES, *served, *(one.queue for one in store.health.depths())} - {THINK_QUEUE}
