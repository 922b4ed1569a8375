"""What a handoff says it is doing while it waits in the middle of its work: written here, and read here."""

from __future__ import annotations

import re
from dataclasses import dataclass

_WAITING = re.compile(r"waiting (?:(?P<left_s>\d+) s: |for )(?P<what>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Waiting:
    """In the ledger it is a sentence, as people read it: `waiting 12 s: rate limit`, `waiting for budget`."""

    what: str
    """What stands against it, or what it wants."""
    left_s: int | None = None
    """None: nobody knows how long it will be."""

    def __str__(self) -> str:
        return (
            f"waiting for {self.what}"
            if self.left_s is None
            else f"waiting {self.left_s} s: {self.what}"
        )


def waiting_in(doing: str) -> Waiting | None:
    """None: it does something else."""
    found = _WAITING.fullmatch(doing)
    return (
        Waiting(found["what"], int(found["left_s"]) if found["left_s"] else None) if found else None
    )


def is_news(doing: str, before: str) -> bool:
    """Whether something else goes on now. The seconds that are left count down by themselves."""
    now, then = waiting_in(doing), waiting_in(before)
    return now.what != then.what if now and then else doing != before
