"""The proxy of a call that may reach some hosts only. It runs in the worker, and its socket is in
the namespace of the call.

It takes HTTP CONNECT, and requests for http:// URLs. A host must be in the lists of the call. All
addresses of the host must be public, and the port must be a web port.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from handoff_queue.shared.agent.seen_texts import is_allowed_host
from handoff_queue.shared.network.ssrf_guard import (
    AddressRefused,
    Policy,
    Resolver,
    check_addresses,
    is_public,
    is_web_port,
    resolve_with_system,
)
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.workers.tools.proxy_request import (
    END,
    MAX_HEAD_BYTES,
    NoProxyRequest,
    ProxyRequest,
    read_request,
    with_close,
)
from handoff_queue.workers.tools.tool_host_protocol import NetworkAccess

MAX_CONNECTIONS = 32
"""Connections of one call at the same time."""
MAX_REFUSALS = 20
"""Refusals of one call that are logged."""
CONNECTED_WITHIN_S = 10.0
IDLE_S = 300.0
"""Seconds after which a connection without traffic ends."""
PROCESSOR_SHARE = 0.1
"""Part of one processor that the proxy of a call may use. A connection with large pieces needs far
less.
"""
FIRST_S = 1.0
"""Seconds of processor time that each call has, in addition to its share."""
_MAX_INTERIM_BYTES = 262_144
"""Most bytes of the interim responses before a response."""
_PIECE = 65_536
"""Most bytes of one read of a connection."""
_log = get_log(__name__)


@dataclass(frozen=True, slots=True)
class Network:
    """Access to hosts. Tests replace it to use their own server."""

    resolver: Resolver = resolve_with_system
    policy: Policy = is_public


@dataclass(frozen=True, slots=True)
class CallNetwork:
    """The networks that the calls of a tool reach."""

    lists: tuple[tuple[str, ...], ...] = ()
    """Each list must have a host. Without a list, all networks are reached."""
    network: Network = Network()

    @property
    def access(self) -> NetworkAccess:
        if not self.lists:
            return NetworkAccess.ALL
        return NetworkAccess.PROXY if all(self.lists) else NetworkAccess.NONE


class ProcessorShare:
    """The processor time of the worker that one call uses through its proxy.

    A tool can send requests without end, or a body in very small pieces. The proxy then rests, so
    that the worker has the processor for its other calls. Each thread serves only one call, so
    its whole processor time counts.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._used_s = 0.0
        self._lock = threading.Lock()
        self._end_event = threading.Event()
        self._of_thread = threading.local()

    def end(self) -> None:
        """Let no thread rest any more."""
        self._end_event.set()

    def pace_pieces(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces, and rest between them. The work of the caller counts, too."""
        for piece in pieces:
            yield piece
            self.rest()

    def rest(self) -> None:
        """Rest if the call has used more than its share."""
        now = time.thread_time()
        with self._lock:
            self._used_s += now - getattr(self._of_thread, "counted_s", 0.0)
            rest_s = (self._used_s - FIRST_S) / PROCESSOR_SHARE
            rest_s -= time.monotonic() - self._began
        self._of_thread.counted_s = now
        if rest_s > 0:
            self._end_event.wait(rest_s)


class NetworkProxy:
    """The proxy of one call. `close` ends it and all its connections."""

    def __init__(
        self,
        listener: socket.socket,
        tool: str,
        network: CallNetwork,
    ) -> None:
        """Start the proxy.

        Args:
            listener: socket that listens in the namespace of the call.
            tool: name of the tool.
            network: hosts that the call may reach.
        """
        self._listener = listener
        self._tool = tool
        self._lists = network.lists
        self._network = network.network
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = {listener}
        self._is_closed = False
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._refusals = 0
        self._share = ProcessorShare()
        _start_thread(self._accept)

    def close(self) -> None:
        """End all connections."""
        self._share.end()
        with self._lock:
            self._is_closed = True
            for connection in self._sockets:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with self._listener:
            while self._slots.acquire():
                try:
                    client, _ = self._listener.accept()
                except OSError:  # the call has ended
                    return
                _start_thread(self._serve, client)
                self._share.rest()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                with suppress(OSError):  # one of the two sides has gone
                    if self._keep(client):
                        self._answer_request(client)
            finally:
                self._forget(client)
                self._share.rest()
                self._slots.release()

    def _answer_request(self, client: socket.socket) -> None:
        """Answer one request of a call.

        Raises:
            OSError: the connection of the call breaks.
        """
        client.settimeout(IDLE_S)
        try:
            request = read_request(client.recv)
            server = self._connect(request.host, request.port)
        except NoProxyRequest as error:
            _send_problem(client, "400 Bad Request", str(error))
        except AddressRefused as error:
            self._log_refusal(str(error))
            _send_problem(client, "403 Forbidden", str(error))
        except OSError as error:
            _send_problem(client, "502 Bad Gateway", f"no connection ({type(error).__name__})")
        else:
            with server:
                try:
                    if self._keep(server):
                        _relay(client, server, request, self._share)
                finally:
                    self._forget(server)

    def _connect(self, host: str, port: int) -> socket.socket:
        """Return a connection to an allowed host.

        Raises:
            AddressRefused: the host or its address is not allowed.
            OSError: the host cannot be reached.
        """
        if not all(is_allowed_host(host, hosts) for hosts in self._lists):
            raise AddressRefused(f"{host} is not in the list of hosts of this tool")
        if not is_web_port(port):
            raise AddressRefused(
                f"port {port} of {host} is not a web port (80, 443, or above 1023)"
            )
        try:
            addresses = check_addresses(host, port, self._network.resolver, self._network.policy)
        except UnicodeError:
            raise AddressRefused(f"{host[:100]} is not a host name") from None
        for address in addresses[:-1]:
            with suppress(OSError):
                return socket.create_connection((address, port), CONNECTED_WITHIN_S)
        return socket.create_connection((addresses[-1], port), CONNECTED_WITHIN_S)

    def _log_refusal(self, why: str) -> None:
        with self._lock:
            self._refusals += 1
            is_shown = self._refusals <= MAX_REFUSALS
        if is_shown:
            _log.warning("a tool was kept from a host", tool=self._tool, why=why)

    def _keep(self, connection: socket.socket) -> bool:
        """Remember a socket for the end. Return False if the call has ended."""
        with self._lock:
            self._sockets.add(connection)
            return not self._is_closed

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(connection)


def _start_thread(function: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=function, args=arguments, name="tool-proxy", daemon=True)
    thread.start()
    return thread


def _send_problem(client: socket.socket, status: str, why: str) -> None:
    """Send an answer with a status and its reason.

    Raises:
        OSError: the connection of the call breaks.
    """
    body = f"{why}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    client.sendall(f"{head}Connection: close\r\n\r\n".encode() + body)


def _relay(
    client: socket.socket, server: socket.socket, request: ProxyRequest, share: ProcessorShare
) -> None:
    """Send the request to the host, and the bytes of the host to the call, until the host ends.

    Raises:
        OSError: the call has gone.
    """
    server.settimeout(IDLE_S)
    if request.head is None:
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
    back = _start_thread(_copy if request.head is None else _copy_response, server, client, share)
    try:
        for piece in share.pace_pieces(request.iterate_pieces(client.recv)):
            server.sendall(piece)
        if request.head is None:
            server.shutdown(socket.SHUT_WR)
    except (NoProxyRequest, OSError):
        _end(client, server)
    back.join()


def _copy_response(server: socket.socket, client: socket.socket, share: ProcessorShare) -> None:
    """Copy the response of a host, after its interim responses such as 100 Continue."""
    data = b""
    received_bytes = 0
    is_final = False
    try:
        while not is_final and len(data) < MAX_HEAD_BYTES:
            piece = server.recv(_PIECE)
            if not piece:
                break
            data += piece
            received_bytes += len(piece)
            if received_bytes > _MAX_INTERIM_BYTES:
                _end(server, client)
                return
            end = END.search(data)
            while end is not None and not is_final:
                head, data = data[: end.end()], data[end.end() :]
                is_final = not head.startswith(b"HTTP/1.1 1")
                client.sendall(with_close(head) if is_final else head)
                end = END.search(data)
        client.sendall(data)
    except OSError:
        _end(server, client)
        return
    _copy(server, client, share)


def _copy(source: socket.socket, target: socket.socket, share: ProcessorShare) -> None:
    """Copy bytes until the source ends, and end the target's input then."""
    try:
        for piece in share.pace_pieces(iter(partial(source.recv, _PIECE), b"")):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        _end(source, target)


def _end(*sockets: socket.socket) -> None:
    for connection in sockets:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
