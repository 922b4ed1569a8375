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
"""Key for Ctrl-D and for the end of the input."""
_LONGEST_SEQUENCE = 16
"""Most bytes of one key. An arrow key has three bytes."""


@contextmanager
def key_presses() -> Iterator[Callable[[float], str]]:
    """Yield a function `read(timeout_s)` that returns the pressed key.

    It returns '' without a key, and `GONE` at the end of the input. Ctrl-C still interrupts.
    The terminal is restored at the end.
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
        with suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(stdin, termios.TCSADRAIN, before)


_LOOK_EVERY_S = 0.5
"""Longest time in seconds until Ctrl-C is noticed.

Python only records a signal that arrives just before a blocking read, or in another thread.
The read would then delay the interrupt until the next line.
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
    """Return the next line that the person types, with its line end; '' is the end of the
    input.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    while not select.select([sys.stdin], [], [], _LOOK_EVERY_S)[0]:
        pass
    return sys.stdin.readline()
