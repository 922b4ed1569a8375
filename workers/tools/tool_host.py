"""The worker's side of the tool host: it starts the host, learns the definitions of the user's
tools, and runs their calls. A host that has ended is started again by the next call.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from handoff_queue.shared.agent.function_tools import check_definition
from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.local.fork_server import ForkServer, is_supported
from handoff_queue.shared.local.parent_death_guard import build_guarded_command
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.settings.folders import LOADING
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import InvalidTool
from handoff_queue.workers.tools.tool_confinement import can_separate_processes
from handoff_queue.workers.tools.tool_host_protocol import (
    MAX_REPORT_BYTES,
    HostConfig,
    Loaded,
    Loading,
    Refused,
    Report,
    ToolLimits,
)

VARIABLES = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "PYTHONPATH")
"""Variables of the worker that a tool may read. The variables in its mark `secrets` are added
in its own calls only.
"""
LOADED_WITHIN_S = 120.0
"""Seconds in which the host must have loaded all tools."""
_SLOW_LOAD_S = 5.0
"""Seconds after which a message names the file that is being loaded."""
MAX_OUTPUT_CHARS = 4_000
"""Characters of the output of a call, or of a host while it loads, that are logged."""
_STOPS_WITHIN_S = 2.0
"""Seconds that a tool host may take to stop. Then it is killed."""
_PIECE = 65_536
"""Most bytes of one read of the host, and of its output that is logged."""
_log = get_log(__name__)


def build_tool_limits(settings: Settings) -> ToolLimits:
    return ToolLimits(
        memory_bytes=settings.tool_memory_bytes,
        cpu_s=settings.tool_cpu_s,
        file_bytes=settings.tool_file_bytes,
        open_files=settings.tool_open_files,
        processes=settings.tool_processes,
    )


def build_base_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that each tool may read."""
    return {name: environment[name] for name in VARIABLES if name in environment}


def clean_output(output: bytes) -> str:
    """Return output of a foreign program for a log: without control characters, and cut."""
    text = output.decode("utf-8", "replace")
    printable = "".join(
        character if character.isprintable() else " " for character in text[:MAX_OUTPUT_CHARS]
    )
    cut_note = f" [cut: {len(text):,} characters]" if len(text) > MAX_OUTPUT_CHARS else ""
    return " ".join(printable.split()) + cut_note


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


class HostServer(ForkServer):
    """The fork server whose children run calls of tools."""

    def __init__(self, config: HostConfig) -> None:
        super().__init__((), build_base_environment())
        self._config = config
        self.reports, self._reports = os.pipe()
        self.output, self._output = os.pipe()

    def _start(self, control: int) -> subprocess.Popen[bytes]:
        with os.fdopen(os.memfd_create("config"), "w+b") as config:
            config.write(self._config.model_dump_json().encode())
            config.seek(0)
            descriptors = (control, config.fileno(), self._reports)
            try:
                return subprocess.Popen(
                    build_guarded_command(
                        [
                            sys.executable,
                            "-P",
                            "-m",
                            "handoff_queue.workers.tools.tool_host_process",
                            *map(str, descriptors),
                        ]
                    ),
                    stdin=subprocess.DEVNULL,
                    stdout=self._output,
                    stderr=self._output,
                    env=self._environment,
                    pass_fds=descriptors,
                    start_new_session=True,
                )
            finally:
                os.close(self._reports)
                os.close(self._output)

    def open_end(self) -> int:
        """Return a descriptor that is readable when the host has ended."""
        return os.pidfd_open(self._process.pid)

    def exit_code(self) -> int:
        """Wait for the end of the host, and return its exit code."""
        return self._process.wait()

    def stop(self) -> None:
        """Tell the host to end."""
        with suppress(OSError):  # it has ended
            self._requests.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """Kill the host, if it has begun."""
        with suppress(AttributeError):
            self._process.kill()


class RunningHost(threading.Thread):
    """One host. The thread starts it, reads its reports and waits for its end, because the
    kernel ends the host with the thread that has started it.
    """

    def __init__(self, config: HostConfig) -> None:
        super().__init__(name="tool-host", daemon=True)
        self.server = HostServer(config)
        self.end_event = threading.Event()
        self._is_loaded = threading.Event()
        self._outcome: Loaded | InvalidTool | None = None
        self._place = ""
        self._partial_report = b""
        self._output_bytes = 0
        self._is_closing = threading.Event()

    def wait_for_tools(self) -> Loaded:
        """Wait until the tools are loaded, and return their definitions.

        Raises:
            InvalidTool: a tool cannot be loaded, or the host ended, or was not ready in time.
        """
        is_loaded = self._is_loaded.wait(_SLOW_LOAD_S)
        if not is_loaded:
            sys.stderr.write(f"handoff: {LOADING}{self._place or 'the tools'}\n")
            sys.stderr.flush()
            is_loaded = self._is_loaded.wait(LOADED_WITHIN_S - _SLOW_LOAD_S)
        if not is_loaded:
            self.close()
            raise InvalidTool(
                f"{self._place or 'the tools'}: not loaded within {LOADED_WITHIN_S:g} s: a file of"
                " tools must not block while it is imported"
            )
        if isinstance(self._outcome, Loaded):
            return self._outcome
        raise self._outcome or InvalidTool(
            f"{self._place or 'the tools'}: not loaded: the worker ends; start the worker again"
        )

    def close(self) -> None:
        """End the host and all its calls. A host that forks kills the processes of its calls
        first.
        """
        self._is_closing.set()
        if isinstance(self._outcome, Loaded):
            self.server.stop()
            self.end_event.wait(_STOPS_WITHIN_S)
        self.server.kill()

    def run(self) -> None:
        try:
            with self.server:
                if not self._is_closing.is_set():
                    self._listen()
        except Exception as error:  # noqa: BLE001 - `wait_for_tools` raises it, in another thread
            _log.exception("the tool host cannot be started")
            self._outcome = InvalidTool(
                f"{self._place or 'the tools'}: the tool host cannot start"
                f" ({type(error).__name__}): the worker's log has the cause"
            )
        finally:
            self.end_event.set()
            self._is_loaded.set()
            os.close(self.server.reports)
            os.close(self.server.output)

    def _listen(self) -> None:
        """Read reports and output until the host has ended."""
        end = self.server.open_end()
        poll = select.poll()
        for descriptor in (end, self.server.reports, self.server.output):
            poll.register(descriptor, select.POLLIN)
        has_ended = False
        while not has_ended:
            ready = {descriptor for descriptor, _ in poll.poll()}
            has_ended = end in ready
            if self.server.reports in ready and not self._read_reports():
                poll.unregister(self.server.reports)
            if self.server.output in ready and not self._read_output():
                poll.unregister(self.server.output)
        os.close(end)
        while self._outcome is None and _is_readable(self.server.reports) and self._read_reports():
            pass
        if self._outcome is None:
            self._outcome = InvalidTool(
                f"{self._place or 'the tools'}: cannot be loaded (its process ended with exit code"
                f" {self.server.exit_code()}): correct the file, or take it out of the folder"
            )

    def _read_reports(self) -> bool:
        """Read reports. Return False if no more can follow."""
        piece = os.read(self.server.reports, _PIECE)
        *lines, self._partial_report = (self._partial_report + piece).split(b"\n")
        try:
            for line in lines:
                self._take(Report.validate_json(line))
        except ValidationError:
            self._outcome = InvalidTool(
                f"{self._place or 'the tools'}: the tool host sent a report that cannot be read: a"
                " file of tools must not write to the file descriptors of its process"
            )
        except InvalidTool as error:
            self._outcome = error
        if len(self._partial_report) > MAX_REPORT_BYTES:
            self._outcome = InvalidTool(
                f"{self._place or 'the tools'}: the definitions have more than"
                f" {MAX_REPORT_BYTES:,} bytes: shorten the docstrings and schemas"
            )
        if self._outcome is not None:
            self._is_loaded.set()
        return bool(piece) and self._outcome is None

    def _take(self, report: Loading | Refused | Loaded) -> None:
        """Raises: InvalidTool."""
        if isinstance(report, Loading):
            self._place = clean_output(report.loading.encode())
        elif isinstance(report, Refused):
            raise InvalidTool(clean_output(report.refused.encode()))
        else:
            for source in report.sources:
                for tool in source.tools:
                    check_definition(tool.name, tool.description, tool.input_schema)
            self._outcome = report

    def _read_output(self) -> bool:
        """Read and log the output of the user's files. Return False if no more can follow."""
        piece = os.read(self.server.output, _PIECE)
        self._output_bytes += len(piece)
        if piece and self._output_bytes <= _PIECE:
            _log.info("the tool host printed", text=clean_output(piece))
        return bool(piece)


class ToolHost:
    """The tool host of this worker."""

    def __init__(
        self, folders: Sequence[Path], limits: ToolLimits, may_limit_networks: bool = False
    ) -> None:
        """Prepare a host. It is started by its first use.

        Args:
            folders: folders of tool files.
            may_limit_networks: whether the operator may limit the network of a tool.
        """
        self._config = HostConfig(
            python_path=tuple(sys.path),
            folders=tuple(map(str, folders)),
            limits=limits,
            may_limit_networks=may_limit_networks,
        )
        self._lock = threading.Lock()
        self._running: RunningHost | None = None
        self._is_closed = False

    def wait_for_tools(self) -> Loaded:
        """Return all tools that the host has loaded, by folder.

        Raises:
            InvalidTool: a tool cannot be loaded.
        """
        return self._get_live().wait_for_tools()

    def get_running(self) -> RunningHost:
        """Return a host that has loaded the tools.

        Raises:
            ToolFailed: the tools cannot be loaded any more.
        """
        host = self._get_live()
        try:
            host.wait_for_tools()
        except InvalidTool as error:
            raise ToolFailed(f"the tools of this worker cannot be loaded: {error}") from None
        return host

    def close(self) -> None:
        """End the host and all its calls."""
        with self._lock:
            self._is_closed = True
            running, self._running = self._running, None
        if running is not None:
            running.close()
            running.end_event.wait()

    def _get_live(self) -> RunningHost:
        """Return the running host. Start a host if there is none."""
        with self._lock:
            if self._is_closed:
                raise ToolFailed("this worker stops")
            if self._running is None or self._running.end_event.is_set():
                if self._running is not None:
                    _log.warning("the tool host has ended, it is started again")
                if not is_supported():
                    raise InvalidTool(
                        "tools of users need Linux 5.3 or newer: update the kernel, or remove the"
                        " files of tools"
                    )
                if not can_separate_processes():
                    _log.warning(
                        "without Landlock in the kernel, tools can read this worker's memory"
                    )
                self._running = RunningHost(self._config)
                self._running.start()
            return self._running
