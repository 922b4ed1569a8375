"""Questions to a person at the terminal."""

from __future__ import annotations

import select
import sys

_LOOK_EVERY_S = 0.5
"""Longest time for which Ctrl-C can go unseen.

Python only notes a signal that arrives just before a blocking read, or in another thread. The read
would then wait for the person's line before the interrupt is raised.
"""


def can_ask() -> bool:
    """Return whether a person sees a question on stderr and can answer it on stdin."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def is_confirmed(question: str) -> bool:
    """Ask a question on stderr. Return whether the answer is yes; the end of the input is no."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    line = line_of_terminal()
    if not line:
        sys.stderr.write("\n")
    return line.strip().lower() in ("y", "yes")


def line_of_terminal() -> str:
    """Return the next line that the person types, with its line end; '' is the end of the input.

    Raises: KeyboardInterrupt: Ctrl-C.
    """
    while not select.select([sys.stdin], [], [], _LOOK_EVERY_S)[0]:
        pass
    return sys.stdin.readline()
