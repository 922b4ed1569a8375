"""The names that a specialist can have."""

from __future__ import annotations

import re

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import NAME_PATTERN
from handoff_queue.shared.types.names import RESERVED


def check_specialist(name: str, where: str = "") -> None:
    """Check a specialist's name.

    Raises:
        UserError: no specialist can have this name.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise UserError(
            f"{where}{name!r:.80} is not a valid name of a specialist: `handoff specialists` lists the existing specialists"
        )
    if name in RESERVED:
        raise UserError(
            f"{where}{name} is a reserved name: `handoff specialists` lists the existing specialists"
        )
