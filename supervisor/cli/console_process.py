"""The process of `handoff serve` next to other processes of a command, and the page of a job in
the browser.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.local.run_directory import RunDirectory
from handoff_queue.shared.settings.ports import LOOPBACK, find_free_port
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.cli.display.terminal import (
    can_ask,
    join_lines,
    print_message,
    print_progress,
)

BROWSER_WITHIN_S = 10.0
"""Longest wait in seconds until a browser says whether it can be opened."""
_OPEN = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.argv[1]))"
_NAME = "serve"


def build_console_spec(environment: Mapping[str, str], port: int) -> ChildSpec:
    """Return the process of the console and the HTTP API on a port of loopback."""
    command = [sys.executable, "-P", "-m", "handoff_queue.supervisor.cli.main", "serve"]
    return ChildSpec(
        _NAME,
        [*command, "--port", str(port)],
        environment,
        is_ready=lambda: has_server(port),
    )


def has_server(port: int) -> bool:
    """Return whether a server listens on a port of loopback."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1.0):
            return True
    except OSError:
        return False


class JobPages:
    """A console on loopback that shows jobs to the user of a command."""

    def __init__(self, processes: Processes, port: int) -> None:
        self._processes = processes
        self._port = port

    def open(self, job_id: JobId) -> None:
        """Print the address of the page of a job, and open the page in the browser.

        A console or a browser that does not start is one line, and the job goes on.
        """
        try:
            self._processes.wait_until_ready()
        except UserError as error:
            print_message(f"there is no page of the job: {join_lines(str(error))[-300:]}")
            return
        url = f"http://{LOOPBACK}:{self._port}/jobs/{job_id}"
        print_progress(f"the page of the job: {url}")
        if not open_in_browser(url):
            print_message("no browser can be opened here: open the address above yourself")

    def stay(self) -> None:
        """Keep the pages until Ctrl-C, if a person is at the terminal."""
        if not can_ask() or self._processes.read_log_ends_of_broken_children():
            return
        try:
            print_progress("the page stays until Ctrl-C")
            threading.Event().wait()
        except KeyboardInterrupt:
            return


@contextmanager
def job_pages(
    redis_url: str, keys: Mapping[str, str] | None = None, *, are_wanted: bool
) -> Iterator[JobPages | None]:
    """Start a console for a Redis, and stop it at the end. None: no pages are wanted.

    The console starts in the background: `JobPages.open` waits for it.

    Args:
        keys: variables with the keys of the console; None: those of this process.
    """
    if not are_wanted:
        yield None
        return
    environment = {"HANDOFF_REDIS_URL": redis_url, "HANDOFF_SERVE_USER_HEADER": "", **(keys or {})}
    port = find_free_port()
    with RunDirectory() as folder, Processes(folder.path) as processes:
        processes.start(build_console_spec(environment, port))
        yield JobPages(processes, port)


def open_in_browser(url: str) -> bool:
    """Open an address in the browser of the user. Return False if there is no browser.

    A separate process opens the browser, so that nothing of its output is mixed with an answer.
    Without a display, only a browser in the variable BROWSER is opened: a browser in the
    terminal would hide the progress of the job.
    """
    has_display = sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    )
    if not has_display:
        return False
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _OPEN, url],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C ends the command, and not the browser
    )
    try:
        return process.wait(BROWSER_WITHIN_S) == 0
    except subprocess.TimeoutExpired:
        process.returncode = 0  # a browser that runs as long as its window is open
        return True
