"""Key presses, and questions to the person at the terminal."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

ESCAPE = "\x1b"
GONE = "\x04"
"""Ctrl-D, and the end of the input."""
_LONGEST_SEQUENCE = 16
"""Bytes of one key: an arrow is three."""


@contextmanager
def key_presses() -> Iterator[Callable[[float], str]]:
    """Gives `read(timeout_s)`: the key that was pressed, '' for none, `GONE` where nobody can
    press one any more. Ctrl-C stays what it is. The terminal is as it was afterwards.
    """
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)

    def read(timeout_s: float) -> str:
        if not select.select([stdin], [], [], timeout_s)[0]:
            return ""
        return os.read(stdin, _LONGEST_SEQUENCE).decode(errors="replace") or GONE

    tty.setcbreak(stdin)
    try:
        yield read
    finally:
        with suppress(termios.error):  # it was hung up
            termios.tcsetattr(stdin, termios.TCSADRAIN, before)


_LOOK_EVERY_S = 0.5
"""Longest time for which Ctrl-C can go unseen.

Python only notes a signal that arrives just before a blocking read, or in another thread. The read
would then wait for the person's line before the interrupt is raised.
"""


def can_ask() -> bool:
    """Return whether a person sees a question on stderr and can answer it on stdin."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str) -> bool:
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
