"""Whom one can pause: a slip of the pen must not pass for a pause, and nobody's absence may keep anybody from pausing."""

from __future__ import annotations

import re
from collections.abc import Iterable

from handoff_queue.shared.store.store import Ledger
from handoff_queue.shared.text.suggestions import close_names, suggestion
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import NAME_PATTERN
from handoff_queue.shared.types.names import RESERVED, ROLES, THINK_QUEUE

_ALIKE = 0.9
"""Of difflib's ratio: a letter more or less, or two that changed places."""
MOST_REASON_CHARS = 200
"""It stands in a line of everything that waits for the role."""


def pause(ledger: Ledger, role: str, reason: str) -> None:
    """Raises: UserError: see `check_pausable`."""
    check_pausable(ledger, role)
    ledger.pauses.pause(role, " ".join(reason.split())[:MOST_REASON_CHARS])


def check_pausable(ledger: Ledger, role: str) -> None:
    """While nobody at all is announced (all processes are gone, or Redis was full), every name may be one that was served before.

    Raises:
        UserError: nobody serves or has served it; or nobody is announced, and it is no name, or one of those that are known but for a slip.
    """
    served = ledger.roles.served()
    known = _known(ledger, served)
    is_name = re.fullmatch(NAME_PATTERN, role) is not None and role not in RESERVED
    may_be_served = not served and is_name and not close_names(role, known, alike=_ALIKE)
    if role not in known and not may_be_served:
        raise UserError(
            f"no worker serves or has served {role[:64]!r}: {suggestion(role, sorted(known))}"
        )


def resume(ledger: Ledger, role: str) -> int | None:
    """Let a role go on. Return how many handoffs it had been stopped at. None: it was not paused.

    Raises:
        UserError: the role is not paused, and it is not a role that `check_pausable` accepts.
    """
    held = ledger.pauses.resume(role)
    if held is None and role not in _known(ledger, ledger.roles.served()):
        if paused := close_names(role, ledger.pauses.all()):
            raise UserError(f"{role[:64]!r} is not paused: did you mean {paused[0]}?")
        check_pausable(ledger, role)
    return held


def _known(ledger: Ledger, served: Iterable[str]) -> set[str]:
    """Return the roles that have a queue, or that workers or supervisors serve."""
    return {*ROLES, *served, *(one.queue for one in ledger.health.depths())} - {THINK_QUEUE}
