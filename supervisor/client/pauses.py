"""Pause and unpause agents."""

from __future__ import annotations

import re
from collections.abc import Iterable

from handoff_queue.shared.store.store import Store
from handoff_queue.shared.text.word_forms import close_names, suggest_name
from handoff_queue.shared.types.audit import Actor, AuditAction
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.names import NAME_PATTERN, RESERVED, ROLES, ROLES_QUEUE
from handoff_queue.supervisor.client.audit import audit_change

_ALIKE = 0.9
"""Least similarity, as a ratio of difflib, of a misspelled name and a known agent: one letter
more or less, or two swapped letters.
"""
MAX_REASON_CHARS = 200
"""Most characters of a reason. Each waiting handoff shows the reason in one line."""


def pause(store: Store, agent: str, reason: str, actor: Actor | None = None) -> None:
    """Pause an agent. The reason becomes one line of at most `MAX_REASON_CHARS` characters.

    Raises:
        UserError: see `check_pausable`.
    """
    check_pausable(store, agent)
    short = " ".join(reason.split())[:MAX_REASON_CHARS]
    audit_change(
        store, actor, AuditAction.PAUSE, agent, lambda: store.pauses.pause(agent, short), short
    )


def check_pausable(store: Store, agent: str) -> None:
    """Check that an agent can be paused.

    If no process is announced (all have stopped, or Redis was full), an agent may have been
    served before. Any name is accepted then, unless it looks like a misspelled known agent.

    Raises:
        UserError: no worker serves or has served the agent.
    """
    served = store.presence.load_served_specialists()
    known = _find_known_agents(store, served)
    is_name = re.fullmatch(NAME_PATTERN, agent) is not None and agent not in RESERVED
    may_be_served = not served and is_name and not close_names(agent, known, alike=_ALIKE)
    if agent not in known and not may_be_served:
        raise UserError(
            f"no worker serves or has served {agent[:64]!r}: {suggest_name(agent, sorted(known))}"
        )


def unpause(store: Store, agent: str, actor: Actor | None = None) -> int | None:
    """End the pause of an agent. Return the number of handoffs that waited, or None if the agent
    was not paused.

    Raises:
        UserError: the agent is not paused, and it is not an agent that `check_pausable` accepts.
    """
    if agent in store.pauses.list_agents():
        return audit_change(
            store, actor, AuditAction.UNPAUSE, agent, lambda: store.pauses.unpause(agent)
        )
    released_count = store.pauses.unpause(agent)
    if released_count is None and agent not in _find_known_agents(
        store, store.presence.load_served_specialists()
    ):
        if paused := close_names(agent, store.pauses.read_all()):
            raise UserError(f"{agent[:64]!r} is not paused: did you mean {paused[0]}?")
        check_pausable(store, agent)
    return released_count


def _find_known_agents(store: Store, served: Iterable[str]) -> set[str]:
    """Return the roles of the supervisor, and the specialists that have a queue or a worker."""
    known = {*ROLES, *served}
    for depth in store.health.read_depths():
        known.add(depth.queue)
    return known - {ROLES_QUEUE}
