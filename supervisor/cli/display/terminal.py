"""Where a command writes: the answer and what was asked for on stdout, everything else on stderr."""

from __future__ import annotations

import json
import math
import os
import sys
from datetime import UTC, datetime
from typing import TextIO

from rich.console import Console

from handoff_queue.shared.text.plurals import counted
from handoff_queue.supervisor.cli.display.streams import OutputFailed
from handoff_queue.supervisor.text.sanitizing import in_one_line, json_for_all

AT_MOST = "≤ "
"""Before a figure that is an upper bound."""

_REPEATED_CHARS = 200
"""Longest line that an error repeats if standard output cannot be written."""

FILE_COLUMNS = 160
"""Where nobody's screen is the limit."""


def short(text: str, most: int) -> str:
    """One line of it."""
    line = in_one_line(text)
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def stderr() -> Console:
    return _console(sys.stderr)


def stdout() -> Console:
    return _console(sys.stdout)


def _console(stream: TextIO) -> Console:
    """A terminal is what is one: FORCE_COLOR, which jobs of CI set, asks for colours in a log, but for no picture that is drawn anew."""
    is_there = stream.isatty()
    return Console(
        file=stream,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if is_there else FILE_COLUMNS,
        force_terminal=None if is_there else False,
        color_system="auto" if is_there or not os.environ.get("FORCE_COLOR") else "standard",
    )


def write(text: str) -> None:
    """Write text to standard output at once.

    Raises:
        OutputFailed: standard output cannot be written.
        ReaderGone: nobody reads standard output.
    """
    sys.stdout.write(text)
    sys.stdout.flush()


def write_line(text: str = "") -> None:
    """Write a line to standard output at once.

    Raises:
        OutputFailed: it cannot be written. The error repeats a short line, such as a job id.
        ReaderGone: nobody reads standard output.
    """
    try:
        write(text + "\n")
    except OutputFailed as error:
        if len(text) > _REPEATED_CHARS or not text.strip():
            raise
        raise OutputFailed(f"{error}; the line was: {text}") from error


def write_json(text: str) -> None:
    """The same of JSON, whatever stands in it: it may be a terminal that shows it."""
    write_line(json_for_all(text))


def write_as_json(value: object) -> None:
    """On one line of JSON."""
    write_json(json.dumps(value, ensure_ascii=False))


def note(text: str) -> None:
    """Write a line to standard error at once."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def figures(count: int, word: str, *, at_most: bool = False) -> str:
    """`1 turn`, `2,310 tokens`; `≤ 2,310 tokens` for an upper bound."""
    return f"{AT_MOST if at_most else ''}{counted(count, word)}"


def money(usd: float | None, *, at_most: bool = False) -> str:
    """Never zero for unknown, nor for little: four decimals, or as many as show two digits. `≤ $0.0123` for an upper bound."""
    if usd is None:
        return "cost unknown"
    if not usd:
        return "$0"
    decimals = max(4, min(6, 1 - math.floor(math.log10(usd))))
    return f"{AT_MOST if at_most else ''}${usd:.{decimals}f}"


def clock(unix_s: float) -> str:
    """A moment in the reader's own time."""
    return datetime.fromtimestamp(unix_s, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
