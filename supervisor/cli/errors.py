"""The end of a command: one line about an error, and an exit code for scripts. No traceback."""

from __future__ import annotations

import os
import re
import signal
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from handoff_queue.shared.settings.optional_packages import describe_missing_package, is_optional
from handoff_queue.shared.text.word_forms import close_names
from handoff_queue.shared.types.errors import INTERRUPTED, HandoffError, StoreUnavailable, UserError
from handoff_queue.supervisor.cli.display.file_errors import describe_file_problem
from handoff_queue.supervisor.cli.display.terminal import BrokenPipe, print_message

if TYPE_CHECKING:
    from handoff_queue.shared.types.events import JobStatus

OK = 0
FAILED = 1
BAD_INPUT = UserError.exit_code
NO_REDIS = StoreUnavailable.exit_code
NOT_ENDED = 4
PARTIAL = 5
INTERNAL_ERROR = 70
"""Exit code of an internal error: EX_SOFTWARE of sysexits.h."""
_SURPLUS = re.compile(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)", re.DOTALL)
"""Click's message about arguments that a command does not take."""
_ALIKE = 0.65
"""Least similarity of an option that an error proposes. `--facts` and `--gates` have 0.6."""
DEBUG = "HANDOFF_DEBUG"
"""If this variable is set, an internal error prints its traceback."""


def get_exit_code(status: JobStatus, *, allow_partial: bool = False) -> int:
    """Return the exit code for the status of a job.

    Args:
        allow_partial: whether a partial answer gives 0 instead of 5.
    """
    from handoff_queue.shared.types.events import JobStatus

    match status:
        case JobStatus.OK:
            return OK
        case JobStatus.PARTIAL:
            if allow_partial:
                return OK
            return PARTIAL
        case JobStatus.CANCELLED:
            return INTERRUPTED
        case JobStatus.FAILED | JobStatus.UNREADABLE:
            return FAILED
        case JobStatus.QUEUED | JobStatus.RUNNING | JobStatus.WAITING:
            return NOT_ENDED


def run_guarded(command: Callable[[], object]) -> NoReturn:
    """Run a command and leave the process with its exit code."""

    def run_and_flush() -> object:
        result = command()
        sys.stdout.flush()
        return result

    try:
        code = _run_command(run_and_flush)
    except BrokenPipe:  # `handoff list | head` is not an error
        code = OK
    sys.exit(code)


def end_like_ctrl_c() -> None:
    """Handle SIGTERM and SIGHUP like Ctrl-C, so that processes stop and the terminal is
    restored.

    Ignored signals stay ignored, as `nohup` sets them.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for kind in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(kind) is signal.SIG_DFL:
            signal.signal(kind, interrupt)


def _run_command(command: Callable[[], object]) -> int:
    """Run a command, print its error as one line, and return the exit code."""
    try:
        result = command()
    except (UserError, StoreUnavailable) as error:
        for line in error.lines:
            print_message(line)
        return error.exit_code
    except KeyboardInterrupt:
        print_message("interrupted")
        return INTERRUPTED
    except BrokenPipe:
        raise
    except Exception as error:  # noqa: BLE001 (the last line of defence against tracebacks)
        return _report_unforeseen(error)
    if isinstance(result, int):
        return result
    return OK


def _describe_usage_problem(error: Any) -> str | None:
    """Return one line about a command line that Typer refuses, with the command that prints
    its help.

    Return None if there were no arguments. Typer has printed the help then.
    """
    context: Any = getattr(error, "ctx", None)
    # An unknown option. Typer would suggest several options.
    if context and hasattr(error, "possibilities"):
        message = f"there is no option {error.message.removeprefix('No such option: ')}"
        options: dict[str, str] = {}  # word without dashes, which would make names look alike
        for parameter in context.command.get_params(context):
            for option in parameter.opts:
                options[option.lstrip("-")] = option
        close = close_names(error.option_name.lstrip("-"), options, alike=_ALIKE)
        if close:
            message += f": did you mean {options[close[0]]}?"
    else:
        message = _find_wrong_value(error) or _with_advice(error.format_message(), error)
        if not message:
            return None
    command = context.command_path if context else "handoff"
    return f"{message.rstrip('.')} (see `{command} --help`)"


def _with_advice(message: str, error: Any) -> str:
    """Return Typer's message about a missing or surplus word, with what to write."""
    if message.startswith("Missing argument 'JOB"):
        return f"{message.rstrip('.')}: `handoff list` shows the ids of jobs"
    if message.startswith("Missing option"):
        option = error.param
        return f"{message.rstrip('.')}: write {option.opts[0]} {option.metavar}"
    surplus = _SURPLUS.match(message)
    if surplus:
        return (
            f"the command does not take {surplus[1]!r:.82}: remove it, or put a text of several"
            " words into quotes"
        )
    return message


def _find_wrong_value(error: Any) -> str | None:
    """Return the option and its wrong value, if Typer's error comes from Pydantic."""
    from pydantic import ValidationError

    from handoff_queue.shared.types.message import describe_problem, with_value

    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        return None
    problem = cause.errors(include_url=False)[0]
    text = describe_problem(problem["type"], problem["msg"])
    error.message = with_value(text, problem["input"])
    message: str = error.format_message()
    return message


def _report_unforeseen(error: Exception) -> int:
    """Print an error that no command handles, and return the exit code."""
    if isinstance(error, HandoffError):
        print_message(str(error))
        return FAILED
    if isinstance(error, ModuleNotFoundError) and is_optional(error.name or ""):
        print_message(describe_missing_package(error.name or "", "this command", "all"))
        return BAD_INPUT
    if isinstance(error, OSError):
        print_message(describe_file_problem(error))
        return FAILED
    if hasattr(error, "format_message"):  # an error of Typer, such as a missing argument
        message = _describe_usage_problem(error)
        if message:
            print_message(message)
        return BAD_INPUT
    # Redis was lost while Celery published a message.
    if type(error).__module__.startswith(("kombu.", "redis.")):
        from handoff_queue.shared.store.redis.connection import describe_unreachable

        print_message(describe_unreachable(str(error)))
        return NO_REDIS
    hide = _create_secret_filter()
    if os.environ.get(DEBUG):
        sys.stderr.write(hide("".join(traceback.format_exception(error))))
    description = f"{type(error).__name__}: {hide(str(error))[:300]}"
    print_message(f"an internal error, please report it: {description} ({DEBUG}=1 shows where)")
    return INTERNAL_ERROR


def _create_secret_filter() -> Callable[[str], str]:
    """Return a function that removes the secrets of this process from a text, because users
    publish reports of errors.
    """
    from handoff_queue.shared.observability.redaction import (
        Redactor,
        find_secrets,
        without_credentials,
    )
    from handoff_queue.shared.settings.settings import load_settings

    try:
        return Redactor(find_secrets(load_settings())).redact_text
    except UserError:
        return without_credentials
