"""Whom one can pause: a slip of the pen must not pass for a pause, and nobody's absence may keep anybody from pausing."""

from __future__ import annotations

import re
from difflib import get_close_matches

from shared.ledger.ledger import Ledger
from shared.wire.errors import UserError
from shared.wire.ids import NAME_PATTERN
from shared.wire.names import RESERVED, ROLES, THINK_QUEUE

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
    known = {*ROLES, *served, *(one.queue for one in ledger.health.depths())} - {THINK_QUEUE}
    is_name = re.fullmatch(NAME_PATTERN, role) is not None and role not in RESERVED
    may_be_served = not served and is_name and not get_close_matches(role, known, cutoff=_ALIKE)
    if role not in known and not may_be_served:
        raise UserError(
            f"nobody serves or has served {role[:64]!r}; there are: {', '.join(sorted(known))}"
        )
