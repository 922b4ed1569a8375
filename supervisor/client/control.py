"""Delete jobs; pause and resume roles."""

from __future__ import annotations

import re
from collections.abc import Iterable

from handoff_queue.shared.store.store import Store
from handoff_queue.shared.text.words import close_names, suggestion
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import HandoffIssued
from handoff_queue.shared.types.ids import NAME_PATTERN, JobId
from handoff_queue.shared.types.names import RESERVED, ROLES, THINK_QUEUE


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
