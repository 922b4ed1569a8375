"""What becomes of what a command says when nobody hears it any more: a pipe that was closed, a terminal that has gone."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_GONE = (errno.EPIPE, errno.EIO)
"""A pipe without a reader, and a terminal that was hung up."""


class NobodyReads(Exception):
    """The pipe on stdout was closed. Of an EPIPE Typer makes an exit code of its own: 1, which says that the job has failed."""

    def __init__(self, code: int) -> None:
        super().__init__("nobody reads on")
        self.code = code


@contextmanager
def nobody_may_read(code: int) -> Iterator[None]:
    """What is written inside is for who wants it. Raises: NobodyReads: its reader has gone, and the process ends with this exit code."""
    try:
        yield
    except BrokenPipeError as error:
        raise NobodyReads(code) from error


@contextmanager
def nobody_may_hear() -> Iterator[None]:
    """What is said inside, on stderr, is a help: that nobody hears it stops nothing."""
    try:
        yield
    except OSError as error:
        if error.errno not in _GONE:
            raise
        point_at_nothing(sys.stderr)


def point_at_nothing(stream: TextIO) -> None:
    """So that the flush at the interpreter's end finds no broken pipe either."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)
