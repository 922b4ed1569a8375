"""Standard output and standard error of a command, and what a failed write means.

Standard output carries what the caller asked for: a failed write ends the command.
Standard error carries progress and remarks: a failed write is ignored.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from typing import TYPE_CHECKING, TextIO

from handoff_queue.shared.types.errors import HandoffError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_OUTPUT, _ERRORS = 1, 2
"""File descriptors of standard output and standard error."""


class ReaderGone(Exception):
    """The pipe on standard output has no reader, or its terminal was closed.

    It is no OSError: Rich and Typer end the process with 1 after a BrokenPipeError.
    """


class OutputFailed(HandoffError):
    """The place for what the caller asked for cannot be written, for example on a full disk."""


class _Descriptor(io.FileIO):
    """An inherited descriptor. A write to a full non-blocking pipe waits for its reader."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)

    def write(self, data: ReadableBuffer) -> int:
        while (written := super().write(data)) is None:
            waiting = select.poll()
            waiting.register(self, select.POLLOUT)
            waiting.poll()
        return written


class _Output(_Descriptor):
    """Standard output. After a failure it drops all text, so that the flush at exit succeeds."""

    def __init__(self) -> None:
        super().__init__(_OUTPUT)
        self._is_terminal = self.isatty()  # a closed terminal no longer says that it is a terminal
        self._has_failed = False

    def write(self, data: ReadableBuffer) -> int:
        if self._has_failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self._has_failed = True
            is_closed = error.errno == errno.EIO and self._is_terminal
            if error.errno == errno.EPIPE or is_closed:
                raise ReaderGone("nobody reads standard output") from error
            raise OutputFailed(f"cannot write to standard output: {error.strerror}") from error


class _Remarks(_Descriptor):
    """Standard error. It ignores failures: an answer is worth more than a remark about it."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def use_standard_streams(*, is_output_wanted: bool = True) -> None:
    """Replace `sys.stdout` and `sys.stderr` of this process by streams with the rules above.

    `is_output_wanted`: whether the caller needs standard output. Celery only writes a banner there.

    A descriptor that the caller has closed becomes `/dev/null`: otherwise the next file or
    connection that the process opens would get its number.
    """
    for number in (0, _OUTPUT, _ERRORS):
        _open_if_closed(number)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    output = _Output() if is_output_wanted else _Remarks(_OUTPUT)
    sys.stdout = _text_stream(output, sys.stdout, is_for_lines=os.isatty(_OUTPUT))
    sys.stderr = _text_stream(_Remarks(_ERRORS), sys.stderr, is_for_lines=True)
    sys.__stdout__ = sys.stdout  # type: ignore[misc] # Celery prints its banner there
    sys.__stderr__ = sys.stderr  # type: ignore[misc]


def _open_if_closed(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        nothing = os.open(os.devnull, os.O_RDWR)
        if nothing != number:
            os.dup2(nothing, number)
            os.close(nothing)
        os.set_inheritable(number, True)


def _text_stream(
    descriptor: _Descriptor, earlier: TextIO | None, *, is_for_lines: bool
) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(descriptor),
        encoding=getattr(earlier, "encoding", None),
        errors="replace",
        line_buffering=is_for_lines,
    )
