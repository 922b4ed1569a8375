"""A call of a user's tool as the worker sees it: the process of the call, its request, its
result, its output and its end.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from handoff_queue.shared.agent.tool import Image, ToolFailed, ToolOutput
from handoff_queue.shared.agent.tool_return_values import parse_image
from handoff_queue.shared.local.fork_server import ForkedProcess
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.types.json_values import has_more_values
from handoff_queue.workers.tools.network_proxy import CallNetwork, NetworkProxy
from handoff_queue.workers.tools.tenant_credentials import without_values
from handoff_queue.workers.tools.tool_host import (
    RunningHost,
    ToolHost,
    build_base_environment,
    clean_output,
)
from handoff_queue.workers.tools.tool_host_protocol import (
    MAX_RESULT_BYTES,
    MAX_RESULT_VALUES,
    CallRequest,
    CallResult,
    Failed,
    NetworkAccess,
    Raised,
    Returned,
    ToolLimits,
)

MAX_OUTPUT_BYTES = 1_000_000
"""Bytes that a call may print."""
STARTED_WITHIN_S = 60.0
"""Seconds within which the host must have forked the child of a call."""
CHECK_EVERY_S = 0.25
"""Seconds between two checks whether the call was abandoned."""
_PIECE = 65_536
"""Most bytes of one read of a process, and of the kept output of a call."""
_MODULE = "handoff_queue.workers.tools.tool_host_process"
ALL_NETWORKS = CallNetwork()
_log = get_log(__name__)


def run_in_process(
    host: ToolHost,
    limits: ToolLimits,
    name: str,
    request: CallRequest,
    is_abandoned: Callable[[], bool],
    network: CallNetwork = ALL_NETWORKS,
) -> ToolOutput:
    """Run one call of a tool in a new process. The process and all processes that it has
    started are killed at the end.

    Args:
        name: name of the tool.
        is_abandoned: returns whether to give the call up.
        network: networks that the call may reach.

    Raises:
        ToolFailed: the call failed, or was given up.
    """
    request = request.model_copy(update={"network": network.access})
    try:
        line = _run(host, limits, name, request, is_abandoned, network)
    except _NotStarted:  # the host had just ended, and the tool has not run
        line = _run(host, limits, name, request, is_abandoned, network)
    result = parse_result(line)
    if result is None:
        raise ToolFailed(f"{name} returned data that is not a result of a tool")
    if isinstance(result, Returned):
        images = [_decode_image(name, data) for data in result.images]
        return ToolOutput(result.text, tuple(images))
    if isinstance(result, Raised):
        _log.warning("a tool raised", tool=name, error=result.raised, place=result.place)
        raise ToolFailed(f"{name} failed with {result.raised}; try other arguments, or do without")
    assert isinstance(result, Failed)
    raise ToolFailed(result.failed)


def parse_result(line: bytes) -> Returned | Failed | Raised | None:
    """Return the result in a line; None if it is not a result."""
    if has_more_values(line, MAX_RESULT_VALUES):
        return None
    try:
        return CallResult.validate_json(line)
    except ValidationError:
        return None


def _run(
    host: ToolHost,
    limits: ToolLimits,
    name: str,
    request: CallRequest,
    is_abandoned: Callable[[], bool],
    network: CallNetwork,
) -> bytes:
    """Return the line of the result of a call.

    Raises:
        _NotStarted: the host has ended.
        ToolFailed: there is no result.
    """
    running = host.get_running()
    call = _Call(running, limits, name, network)
    try:
        return call.run(request, is_abandoned)
    except _NotStarted:
        running.close()
        running.end_event.wait(STARTED_WITHIN_S)
        raise
    finally:
        call.end()


class _NotStarted(ToolFailed):
    """The host ended before it forked the child of a call."""


def _decode_image(name: str, data: str) -> Image:
    """Raises: ToolFailed."""
    try:
        image = parse_image(b64decode(data, validate=True))
    except ValueError:
        image = None
    if image is None:
        raise ToolFailed(f"{name} returned data that is not an image")
    return image


class _Call:
    """A call that runs."""

    def __init__(
        self, running: RunningHost, limits: ToolLimits, name: str, network: CallNetwork
    ) -> None:
        self._running = running
        self._limits = limits
        self._name = name
        self._network = network
        self._awaits_listener = network.access is NetworkAccess.PROXY
        self._proxy: NetworkProxy | None = None
        self._connection, self._theirs = socket.socketpair()
        self._output, self._their_output = os.pipe()
        self._process: ForkedProcess | None = None
        self._secrets: dict[str, str] = {}
        self._result = bytearray()
        self._is_complete = False
        self._printed = bytearray()
        self._printed_bytes = 0
        self._open_descriptors = {self._connection.fileno(), self._output}
        self._started_at = time.monotonic()

    def run(self, request: CallRequest, is_abandoned: Callable[[], bool]) -> bytes:
        """Return the line of the result.

        Raises:
            ToolFailed: there is no result.
        """
        self._secrets = request.secrets
        self._process = process = self._fork_process()
        self._connection.settimeout(STARTED_WITHIN_S)
        with suppress(OSError):  # the child has ended already, or the host does not answer
            self._connection.sendall(request.model_dump_json().encode() + b"\n")
        self._connection.settimeout(0.0)
        while not self._is_complete:
            ready = self._wait(process)
            self._read(ready)
            if process.poll() is not None:
                self._read(self._open_descriptors)
                break
            if is_abandoned():
                raise ToolFailed(f"{self._name} was given up")
            self._check_start(process)
        if process.is_lost and process.pid is None:
            raise _NotStarted(f"{self._name} cannot be started")
        if not self._is_complete:
            raise ToolFailed(f"{self._name} {self._describe_failure(process)}")
        self._read({self._output} & self._open_descriptors)
        return bytes(self._result).partition(b"\n")[0]

    def end(self) -> None:
        """Let the host kill the processes of this call. Log their output."""
        if self._process is not None:
            self._process.abandon()
        if self._proxy is not None:
            self._proxy.close()
        for descriptor in (self._output, self._their_output):
            if descriptor >= 0:
                os.close(descriptor)
        self._connection.close()
        self._theirs.close()
        if self._printed:
            printed = without_values(self._printed.decode("utf-8", "replace"), self._secrets)
            _log.info("a tool printed", tool=self._name, text=clean_output(printed.encode()))

    def _fork_process(self) -> ForkedProcess:
        command = [sys.executable, "-P", "-m", _MODULE, self._name]
        os.set_blocking(self._output, False)
        try:
            return self._running.server.fork(
                command,
                build_base_environment(),
                self._their_output,
                stdin=self._theirs.fileno(),
                folder=Path.cwd(),
                leads_session=True,
            )
        except OSError as error:
            raise ToolFailed(f"{self._name} cannot be started: {type(error).__name__}") from None
        finally:
            self._theirs.close()
            os.close(self._their_output)
            self._their_output = -1

    def _wait(self, process: ForkedProcess) -> set[int]:
        poll = select.poll()
        for descriptor in (*self._open_descriptors, process.fileno()):
            poll.register(descriptor, select.POLLIN)
        return {
            descriptor for descriptor, _ in poll.poll(CHECK_EVERY_S * 1_000)
        } & self._open_descriptors

    def _read(self, descriptors: set[int]) -> None:
        """Read without waiting.

        Raises:
            ToolFailed: the call has written too much.
        """
        if self._awaits_listener and self._connection.fileno() in descriptors:
            self._start_proxy()
        for descriptor in tuple(descriptors):
            while (piece := _read_piece(descriptor)) is not None:
                if not piece:
                    self._open_descriptors.discard(descriptor)
                    break
                self._keep(descriptor, piece)

    def _start_proxy(self) -> None:
        """Take the socket that the process of the call listens on, and start its proxy. Without a
        socket, the byte belongs to the result.
        """
        try:
            byte, descriptors, _, _ = socket.recv_fds(self._connection, 1, 1)
        except BlockingIOError:
            return
        except OSError:  # the process has ended
            byte, descriptors = b"", []
        self._awaits_listener = False
        if not descriptors:
            self._result += byte
            return
        try:
            listener = socket.socket(fileno=descriptors[0])
        except OSError:
            os.close(descriptors[0])
            raise ToolFailed(f"{self._name} sent no socket for its proxy") from None
        self._proxy = NetworkProxy(listener, self._name, self._network)

    def _keep(self, descriptor: int, piece: bytes) -> None:
        """Raises: ToolFailed."""
        if descriptor == self._output:
            self._printed_bytes += len(piece)
            self._printed += piece[: max(0, _PIECE - len(self._printed))]
            if self._printed_bytes > MAX_OUTPUT_BYTES:
                raise ToolFailed(f"{self._name} printed more than {MAX_OUTPUT_BYTES:,} bytes")
        else:
            self._result += piece
            self._is_complete = self._is_complete or b"\n" in piece
            if len(self._result) > MAX_RESULT_BYTES:
                raise ToolFailed(f"{self._name} returned more than {MAX_RESULT_BYTES:,} bytes")

    def _check_start(self, process: ForkedProcess) -> None:
        """End a host that does not fork.

        Raises:
            ToolFailed: the host did not fork the child in time.
        """
        if process.pid is None and time.monotonic() - self._started_at > STARTED_WITHIN_S:
            _log.error("the tool host does not answer, it is killed")
            self._running.close()
            raise ToolFailed(f"{self._name} was not started within {STARTED_WITHIN_S:g} s")

    def _describe_failure(self, process: ForkedProcess) -> str:
        """Return the reason why an ended process has no result."""
        if process.is_lost:
            self._kill_group(process)
            return "was cut off: the process of all tools ended"
        code = process.poll() or 0
        if code >= 0:
            return f"ended its process with exit code {code}, without a result"
        if code == -signal.SIGXCPU:
            return f"used more than {self._limits.cpu_s} s of processor time"
        if code == -signal.SIGKILL:
            return "was killed; it may need too much memory"
        return f"crashed ({_get_signal_name(-code)})"

    def _kill_group(self, process: ForkedProcess) -> None:
        """Kill the processes of this call that the ended host has left."""
        if process.pid is not None:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)


def _read_piece(descriptor: int) -> bytes | None:
    """Return bytes; none at the end; None if there are no bytes yet."""
    try:
        return os.read(descriptor, _PIECE)
    except BlockingIOError:
        return None
    except OSError:  # the other side was closed before it had read everything
        return b""


def _get_signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
