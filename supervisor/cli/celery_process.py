"""Start Celery processes.

Plain `celery` puts the current folder at the front of the import path. A user's `shared/` or
`workers/` folder would then hide our packages. Here the app is imported first.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from importlib import import_module

from handoff_queue.shared.broker.isolated_worker import limit_wait_for_threads
from handoff_queue.shared.settings.folders import LOADING
from handoff_queue.shared.settings.foreign_environment import (
    forget_celery_variables,
    forget_service_links,
)
from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.cli.display.terminal import (
    print_message,
    print_progress,
    use_standard_streams,
)

LOADED_WITHIN_S = 120.0
"""Seconds in which a process must have made its app. Large libraries take up to 30 s to import
from a slow disk.
"""


def build_celery_command(app: str, *arguments: str) -> list[str]:
    """Return the command line of one of our Celery processes."""
    return [
        sys.executable,
        "-P",
        "-m",
        "handoff_queue.supervisor.cli.celery_process",
        "-A",
        app,
        *arguments,
    ]


def check_app(
    app: str, variables: Mapping[str, str], *, within_s: float = LOADED_WITHIN_S
) -> list[str]:
    """Create the app once in a short process, to find faults in user files before anything
    starts. Print and return its messages, for example about tools that no specialist names.

    Args:
        variables: environment variables to add.
        within_s: seconds within which the files must be loaded.

    Raises:
        UserError: the app refuses a file or cannot be created, or a file was not loaded in time.
    """
    process = subprocess.Popen(
        build_celery_command(app, "--version"),
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    is_late = threading.Event()

    def end_late_process() -> None:
        is_late.set()
        process.kill()

    limit = threading.Timer(within_s, end_late_process)
    limit.start()
    try:
        log, loading = _read_log(process)
    finally:
        limit.cancel()
        process.kill()
        process.wait()
    if is_late.is_set():
        raise UserError(
            f"{loading or 'the files of your specialists and tools'}: not loaded within"
            f" {within_s:g} s: a file of tools must not block while it is imported"
        )
    messages = find_messages(log)
    if not process.returncode:
        for message in messages:
            print_message(message)
        return messages
    problem = f"{app} cannot be started: {log.strip()[-1_500:]}"
    if messages:
        problem = messages[-1]
    raise UserError(problem)


def _read_log(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for the end of a process. Print its messages about files that take long to load at
    once. Return the rest of its output, and the last such file, or "".
    """
    assert process.stderr is not None
    loading = ""
    lines: list[str] = []
    with process.stderr as log:
        for line in log:
            if line.startswith(f"handoff: {LOADING}"):
                loading = line.removeprefix(f"handoff: {LOADING}").strip()
                print_progress(f"{LOADING}{loading}")
            else:
                lines.append(line)
    process.wait()
    return "".join(lines), loading


def find_messages(log: str) -> list[str]:
    """Return the messages for a person in the output of a process, without `handoff: `."""
    messages: list[str] = []
    for line in log.splitlines():
        if line.startswith("handoff: "):
            messages.append(line.removeprefix("handoff: "))
    return messages


def run_celery(arguments: list[str]) -> None:
    """Run Celery in this process. It reads no option from the environment.

    Raises:
        SystemExit: always, with the exit code of the command.
    """
    forget_celery_variables()
    forget_service_links()
    use_standard_streams(is_output_wanted=False)
    import_module(arguments[arguments.index("-A") + 1])
    sys.argv = ["celery", *arguments]
    from celery import maybe_patch_concurrency
    from celery.bin.celery import celery

    maybe_patch_concurrency()
    for option in celery.params:
        option.envvar = None
    celery.main(arguments, prog_name="celery")


def _main() -> None:
    try:
        run_celery(sys.argv[1:])
    except SystemExit as end:
        exit_code = end.code
        if not isinstance(exit_code, int):  # a text counts as 1, None as 0
            exit_code = int(exit_code is not None)
        limit_wait_for_threads(exit_code)
        raise


if __name__ == "__main__":
    _main()
