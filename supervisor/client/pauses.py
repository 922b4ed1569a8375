"""Pause and unpause roles."""

from __future__ import annotations

import re
from collections.abc import Iterable

from handoff_queue.shared.store.store import Store
from handoff_queue.shared.text.word_forms import close_names, suggestion
from handoff_queue.shared.types.actors import Actor
from handoff_queue.shared.types.audit import AuditAction
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.names import NAME_PATTERN, RESERVED, ROLES, ROLES_QUEUE
from handoff_queue.supervisor.client.audit import audit_change

_ALIKE = 0.9
"""Least similarity, as a ratio of difflib, of a misspelled name and a known role: one letter
more or less, or two swapped letters.
"""
MAX_REASON_CHARS = 200
"""Most characters of a reason. Each waiting handoff shows the reason in one line."""


def pause(store: Store, role: str, reason: str, actor: Actor | None = None) -> None:
    """Pause a role. The reason becomes one line of at most `MAX_REASON_CHARS` characters.

    Raises:
        UserError: see `check_pausable`.
    """
    check_pausable(store, role)
    short = " ".join(reason.split())[:MAX_REASON_CHARS]
    audit_change(
        store, actor, AuditAction.PAUSE, role, lambda: store.pauses.pause(role, short), short
    )


def check_pausable(store: Store, role: str) -> None:
    """Check that a role can be paused.

    If no process is announced (all have stopped, or Redis was full), a role may have been
    served before. Any name is accepted then, unless it looks like a misspelled known role.

    Raises:
        UserError: no worker serves or has served the role.
    """
    served = store.presence.load_served_specialists()
    known = _find_known_roles(store, served)
    is_name = re.fullmatch(NAME_PATTERN, role) is not None and role not in RESERVED
    may_be_served = not served and is_name and not close_names(role, known, alike=_ALIKE)
    if role not in known and not may_be_served:
        raise UserError(
            f"no worker serves or has served {role[:64]!r}: {suggestion(role, sorted(known))}"
        )


def unpause(store: Store, role: str, actor: Actor | None = None) -> int | None:
    """End the pause of a role. Return the number of handoffs that waited, or None if the role
    was not paused.

    Raises:
        UserError: the role is not paused, and it is not a role that `check_pausable` accepts.
    """
    if role in store.pauses.roles():
        return audit_change(
            store, actor, AuditAction.UNPAUSE, role, lambda: store.pauses.unpause(role)
        )
    released_count = store.pauses.unpause(role)
    if released_count is None and role not in _find_known_roles(
        store, store.presence.load_served_specialists()
    ):
        if paused := close_names(role, store.pauses.all()):
            raise UserError(f"{role[:64]!r} is not paused: did you mean {paused[0]}?")
        check_pausable(store, role)
    return released_count


def _find_known_roles(store: Store, served: Iterable[str]) -> set[str]:
    """Return the roles of the supervisor, and the specialists that have a queue or a worker."""
    known = {*ROLES, *served}
    for depth in store.health.depths():
        known.add(depth.queue)
    return known - {ROLES_QUEUE}
