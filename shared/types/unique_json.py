"""JSON that people write: a name that one object has twice is refused. Every parser would drop the first, and say nothing."""

from __future__ import annotations

import json
from typing import Any

from handoff_queue.shared.types.errors import UserError


def refuse_repeats(text: str) -> None:
    """What is no JSON at all is left to who reads it.

    Raises:
        UserError: names the first name that is given twice.
    """
    try:
        json.loads(text, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        return


def _each_once(pairs: list[tuple[str, Any]]) -> None:
    known: set[str] = set()
    for name, _ in pairs:
        if name in known:
            raise UserError(f"{name!r:.80} is given twice; remove one")
        known.add(name)
