"""Standard output and standard error of a command, key presses, and questions to the person at
the terminal.

A failed write to standard output ends the command. A failed write to standard error is
ignored.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.errors import (
    HandoffError,
)
from handoff_queue.supervisor.text.sanitizing import (
    escape_unsafe_in_json,
    flatten_to_line,
    replace_unsafe,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

ESCAPE = "\x1b"
END_OF_INPUT = "\x04"
"""Key for Ctrl-D and for the end of the input."""
_MAX_SEQUENCE_BYTES = 16
"""Most bytes of one key. An arrow key has three bytes."""


@contextmanager
def key_presses() -> Iterator[Callable[[float], str]]:
    """Yield a function `read(timeout_s)` that returns the pressed key.

    It returns '' without a key, and `END_OF_INPUT` at the end of the input. Ctrl-C still
    interrupts. The terminal is restored at the end.
    """
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)

    def read(timeout_s: float) -> str:
        if not select.select([stdin], [], [], timeout_s)[0]:
            return ""
        return os.read(stdin, _MAX_SEQUENCE_BYTES).decode(errors="replace") or END_OF_INPUT

    tty.setcbreak(stdin)
    try:
        yield read
    finally:
        with suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(stdin, termios.TCSADRAIN, before)


_CHECK_EVERY_S = 0.5
"""Longest time in seconds until Ctrl-C is noticed.

Python only records a signal that arrives just before a blocking read, or in another thread.
The read would then delay the interrupt until the next line.
"""


def can_ask() -> bool:
    """Return whether a person sees a question on stderr and can answer it on stdin."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str) -> bool:
    """Ask a question on stderr. Return whether the answer is yes; the end of the input is no."""
    sys.stderr.write(f"{replace_unsafe(question)} [y/N] ")
    sys.stderr.flush()
    line = read_terminal_line()
    if not line:
        sys.stderr.write("\n")
    return line.strip().lower() in ("y", "yes")


def read_terminal_line() -> str:
    """Return the next line that the person types, with its line end; '' is the end of the
    input.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    while not select.select([sys.stdin], [], [], _CHECK_EVERY_S)[0]:
        pass
    return sys.stdin.readline()


_OUTPUT, _ERRORS = 1, 2
"""File descriptors of standard output and standard error."""


class BrokenPipe(Exception):
    """The pipe on standard output has no reader, or its terminal was closed.

    It is not an OSError, because Rich and Typer end the process with 1 after a
    BrokenPipeError.
    """


class OutputFailed(HandoffError):
    """The output of a command cannot be written, for example on a full disk."""


class _Descriptor(io.FileIO):
    """An inherited descriptor. A write to a full non-blocking pipe waits for its reader."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)

    def write(self, data: ReadableBuffer) -> int:
        written_bytes = super().write(data)
        while written_bytes is None:  # the pipe is full
            waiting = select.poll()
            waiting.register(self, select.POLLOUT)
            waiting.poll()
            written_bytes = super().write(data)
        return written_bytes


class _Output(_Descriptor):
    """Standard output. After a failure it drops all text, so that the flush at exit succeeds."""

    def __init__(self) -> None:
        super().__init__(_OUTPUT)
        self._is_terminal = self.isatty()  # a closed terminal is no longer reported as a terminal
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
                raise BrokenPipe("standard output has no reader") from error
            raise OutputFailed(f"cannot write to standard output: {error.strerror}") from error


class _Remarks(_Descriptor):
    """Standard error. It ignores failures, so that an answer is never lost for a progress line."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def use_standard_streams(*, is_output_wanted: bool = True) -> None:
    """Replace `sys.stdout` and `sys.stderr` of this process by streams with the rules above.

    A descriptor that the caller has closed becomes `/dev/null`. Otherwise the next file or
    connection would get its number.

    Args:
        is_output_wanted: whether a failed write to standard output ends the process. False for
            Celery, which only writes a banner there.
    """
    for number in (0, _OUTPUT, _ERRORS):
        _open_if_closed(number)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    output = _Output() if is_output_wanted else _Remarks(_OUTPUT)
    sys.stdout = _create_text_stream(output, sys.stdout, is_for_lines=os.isatty(_OUTPUT))
    sys.stderr = _create_text_stream(_Remarks(_ERRORS), sys.stderr, is_for_lines=True)
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


def _create_text_stream(
    descriptor: _Descriptor, earlier: TextIO | None, *, is_for_lines: bool
) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(descriptor),
        encoding=getattr(earlier, "encoding", None),
        errors="replace",
        line_buffering=is_for_lines,
    )


AT_MOST = "≤ "
"""Prefix of a figure that is an upper bound."""

_REPEATED_CHARS = 200
"""Longest line that an error repeats if standard output cannot be written."""

FILE_COLUMNS = 160
"""Width of output that goes to a file."""


def shorten(text: str, limit: int) -> str:
    """Return a text as one line of at most `limit` characters."""
    line = flatten_to_line(text)
    if len(line) <= limit:
        return line
    return line[: limit - 1].rstrip() + "…"


class _PlainConsole(Console):
    """A console without the control characters of texts. Its own escapes, such as colours, stay."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(replace_unsafe(segment.text), segment.style)


def get_stderr() -> Console:
    """Return a console of standard error."""
    return _create_console(sys.stderr)


def get_stdout() -> Console:
    """Return a console of standard output."""
    return _create_console(sys.stdout)


def _create_console(stream: TextIO) -> Console:
    """Return a console of this stream.

    FORCE_COLOR, which CI jobs set, enables colours in a log. It does not make a stream a
    terminal.
    """
    if stream.isatty():
        return _PlainConsole(file=stream, highlight=False, markup=False, emoji=False)
    return _PlainConsole(
        file=stream,
        highlight=False,
        markup=False,
        emoji=False,
        width=FILE_COLUMNS,
        force_terminal=False,
        color_system="standard" if os.environ.get("FORCE_COLOR") else "auto",
    )


def write(text: str) -> None:
    """Write text to standard output at once.

    Raises:
        OutputFailed: standard output cannot be written.
        BrokenPipe: standard output has no reader.
    """
    sys.stdout.write(text)
    sys.stdout.flush()


def write_line(text: str = "") -> None:
    """Write a line to standard output at once. The line may have texts of others, so control
    characters are made visible.

    Raises:
        OutputFailed: it cannot be written. The error repeats a short line, such as a job id.
        BrokenPipe: standard output has no reader.
    """
    try:
        write(replace_unsafe(text) + "\n")
    except OutputFailed as error:
        if len(text) > _REPEATED_CHARS or not text.strip():
            raise
        raise OutputFailed(f"{error}; the line was: {text}") from error


def write_json(text: str) -> None:
    """Write a JSON text as a line. Control characters are escaped, because a terminal may show
    it.
    """
    write_line(escape_unsafe_in_json(text))


def write_as_json(value: object) -> None:
    """Write a value as one line of JSON."""
    write_json(json.dumps(value, ensure_ascii=False))


def print_progress(text: str) -> None:
    """Write a line of progress to standard error at once, without `handoff: `. The line may have
    texts of others, so control characters are made visible.
    """
    sys.stderr.write(replace_unsafe(text) + "\n")
    sys.stderr.flush()


def format_bounded_count(count: int, word: str, *, at_most: bool) -> str:
    """Return a count and its noun: `2,310 tokens`, or `≤ 2,310 tokens` for an upper bound."""
    if at_most:
        return f"{AT_MOST}{format_count(count, word)}"
    return format_count(count, word)


def format_money(usd: float | None, *, at_most: bool = False) -> str:
    """Return an amount with four decimals. A small amount has up to six, to show two digits.

    Return `cost unknown` for None. An upper bound is `≤ $0.0123`.
    """
    if usd is None:
        return "cost unknown"
    if not usd:
        return "$0"
    two_digits = 1 - math.floor(math.log10(abs(usd)))  # decimals that show two digits
    decimals = max(4, min(6, two_digits))
    amount = f"${usd:.{decimals}f}"
    if at_most:
        return AT_MOST + amount
    return amount


def format_clock(unix_s: float) -> str:
    """Return a time in the time zone of this machine: `2026-01-31 09:05:00`."""
    return datetime.fromtimestamp(unix_s, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def print_message(message: str) -> None:
    """Write a message as one line to standard error, after `handoff: `."""
    sys.stderr.write(f"handoff: {replace_unsafe(join_lines(message))}\n")
    sys.stderr.flush()


def join_lines(message: str) -> str:
    """Join the lines of a message that are not empty."""
    return " ".join(part.strip() for part in message.splitlines() if part.strip())
