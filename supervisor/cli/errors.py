"""How a command ends: one line for whatever went wrong, and an exit code that a script can rely on. Never a traceback."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from shared.extras import is_optional, missing
from shared.wire.errors import HandoffError, LedgerUnavailable, ManyProblems, UserError
from supervisor.cli.streams import ReaderGone

if TYPE_CHECKING:
    from shared.wire.events import JobStatus

OK, FAILED, BAD_INPUT, NO_REDIS, NOT_ENDED, PARTIAL = (
    0,
    1,
    UserError.exit_code,
    LedgerUnavailable.exit_code,
    4,
    5,
)
DEFECT = 70
"""sysexits.h, EX_SOFTWARE."""
INTERRUPTED = 130
"""A shell's 128 + SIGINT; a cancelled job ends its command the same way."""
DEBUG = "HANDOFF_DEBUG"
"""Set: a defect shows its traceback."""

EXIT_CODES = (
    "Exit codes: 0 ok; 1 failed; 2 bad input; 3 no Redis; 4 the job has not ended yet; "
    "5 partial: the answer has gaps, which stderr names (0 with --allow-partial); "
    "130 cancelled, or Ctrl-C."
)


def exit_code_of(status: JobStatus, *, allow_partial: bool = False) -> int:
    """Return the exit code of a command that shows a job. `allow_partial`: a partial answer will do."""
    from shared.wire.events import JobStatus

    match status:
        case JobStatus.OK:
            return OK
        case JobStatus.PARTIAL:
            return OK if allow_partial else PARTIAL
        case JobStatus.CANCELLED:
            return INTERRUPTED
        case JobStatus.FAILED:
            return FAILED
        case JobStatus.QUEUED | JobStatus.RUNNING | JobStatus.WAITING:
            return NOT_ENDED


def guarded(command: Callable[[], object]) -> NoReturn:
    """Run a command and leave the process with its exit code."""

    def flushed() -> object:
        ended = command()
        sys.stdout.flush()
        return ended

    try:
        code = _outcome(flushed)
    except ReaderGone:  # `handoff list | head` is no error
        code = OK
    sys.exit(code)


def end_like_ctrl_c() -> None:
    """Have SIGTERM and SIGHUP do what Ctrl-C does, so that what was begun is stopped, and the terminal is as it was. What was told to live
    on without its terminal (`nohup`) does.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for kind in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(kind) is signal.SIG_DFL:
            signal.signal(kind, interrupt)


def say(message: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(f"handoff: {one_line(message)}\n")
    sys.stderr.flush()


def one_line(message: str) -> str:
    return " ".join(part.strip() for part in message.splitlines() if part.strip())


def _outcome(command: Callable[[], object]) -> int:
    try:
        ended = command()
    except ManyProblems as error:
        for problem in str(error).splitlines():
            say(problem)
        return error.exit_code
    except (UserError, LedgerUnavailable) as error:
        say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except ReaderGone:
        raise
    except Exception as error:  # noqa: BLE001 (the last line of defence against tracebacks)
        return _unforeseen(error)
    return ended if isinstance(ended, int) else OK


def _unforeseen(error: Exception) -> int:
    from shared.wire.message import in_our_words

    if isinstance(error, HandoffError):
        say(str(error))
        return FAILED
    if isinstance(error, ModuleNotFoundError) and is_optional(error.name or ""):
        say(missing(error.name or "", "this command", "all"))
        return BAD_INPUT
    if isinstance(error, OSError):
        say(f"{error.filename or 'the system'}: {error.strerror or error}")
        return FAILED
    if callable(
        format_message := getattr(error, "format_message", None)
    ):  # typer's: an unknown option, a missing argument
        if message := format_message():  # none: nothing was typed, and the help has been shown
            say(f"{in_our_words('', message.replace('Value error, ', ''))} (see `handoff --help`)")
        return BAD_INPUT
    if type(error).__module__.startswith(
        ("kombu.", "redis.")
    ):  # Redis went while Celery was publishing
        say("Redis cannot be reached: is it running, and is HANDOFF_REDIS_URL right?")
        return NO_REDIS
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    say(
        f"a defect of ours, please report it: {type(error).__name__}: {str(error)[:300]} ({DEBUG}=1 shows where)"
    )
    return DEFECT
