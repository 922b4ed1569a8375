"""Single keys that a person presses on a terminal, without Enter."""

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
    """Gives `read(timeout_s)`: the key that was pressed, '' for none, `GONE` where nobody can press one any more. Ctrl-C stays what it is.
    The terminal is as it was afterwards.
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
