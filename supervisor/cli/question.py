"""Questions to a person at the terminal."""

from __future__ import annotations

import sys


def can_ask() -> bool:
    """Return whether a person sees a question on stderr and can answer it on stdin."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def is_confirmed(question: str) -> bool:
    """Ask a question on stderr. Return whether the answer is yes; the end of the input is no."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        sys.stderr.write("\n")
    return line.strip().lower() in ("y", "yes")
