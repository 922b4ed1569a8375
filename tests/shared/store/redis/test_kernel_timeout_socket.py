"""A socket with kernel timeouts fails like Python's socket: after the same time, with the same
error.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from math import inf
from typing import Any

import pytest

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.redis.client_factory import client_for
from handoff_queue.shared.store.redis.fast_path import (
    DirectConnection,
    KernelTimeoutSocket,
    ManagedConnection,
    with_kernel_timeouts,
)

TIMEOUT_S = 0.05
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def sockets() -> Iterator[Pair]:
    """Yield a socket with kernel timeouts, and its peer."""
    plain, other = socket.socketpair()
    plain.settimeout(TIMEOUT_S)
    ours = with_kernel_timeouts(plain)
    yield ours, other
    ours.close()
    other.close()


def test_data_of_the_other_end_is_read(sockets: Pair) -> None:
    ours, other = sockets
    read = bytearray(10)
    other.sendall(b"said")

    assert (ours.recv_into(read), bytes(read[:4])) == (4, b"said")


def test_a_silent_peer_is_a_timeout(sockets: Pair) -> None:
    ours, _ = sockets

    with pytest.raises(TimeoutError):
        ours.recv_into(bytearray(10))


def test_a_peer_that_does_not_read_is_a_timeout(sockets: Pair) -> None:
    ours, _ = sockets

    with pytest.raises(TimeoutError):
        ours.sendall(bytes(10_000_000))


def test_the_timeout_limits_the_whole_send_if_the_peer_stops_reading(sockets: Pair) -> None:
    """The kernel's timeout is for one call, and `sendall` needs two. A busy machine makes a try
    longer, so the shortest of some tries counts.
    """
    ours, peer = sockets
    took_s: list[float] = []
    while len(took_s) < 5 and min(took_s, default=inf) > 1.8:
        peer.setblocking(False)
        with suppress(BlockingIOError):
            while peer.recv(1_000_000):
                pass
        ours.settimeout(1.0)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            ours.sendall(bytes(10_000_000))
        took_s.append(time.monotonic() - began)

    assert min(took_s) < 1.8


def test_all_data_arrives_at_a_slow_receiver(sockets: Pair) -> None:
    ours, other = sockets
    ours.settimeout(30)
    whole, read = bytes(range(256)) * 4000, bytearray()

    with ThreadPoolExecutor(1) as threads:
        sending = threads.submit(ours.sendall, whole)
        while len(read) < len(whole):
            read += other.recv(50_000)
        sending.result(30)

    assert bytes(read) == whole
    assert ours.gettimeout() is None


@pytest.mark.parametrize("seconds", [None, 30.0])
def test_a_socket_that_another_thread_closes_raises_an_error(
    sockets: Pair, seconds: float | None
) -> None:
    ours, _ = sockets
    ours.settimeout(seconds)
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(ours.recv_into, bytearray(1))
        ours.shutdown(socket.SHUT_RDWR)

        assert reading.result(30) == 0


def test_the_shortest_timeout_is_not_infinite(sockets: Pair) -> None:
    ours, _ = sockets
    ours.settimeout(1e-9)

    with pytest.raises(TimeoutError):
        ours.recv_into(bytearray(1))


def test_less_than_no_time_is_refused(sockets: Pair) -> None:
    ours, _ = sockets

    with pytest.raises(ValueError, match="out of range"):
        ours.settimeout(-1)


def test_a_non_blocking_socket_raises_its_own_error_and_no_timeout(sockets: Pair) -> None:
    ours, _ = sockets
    ours.settimeout(0)

    with pytest.raises(BlockingIOError):
        ours.recv_into(bytearray(10))
    with pytest.raises(BlockingIOError):
        ours.sendall(bytes(10_000_000))


def test_a_timeout_can_be_set_again(sockets: Pair) -> None:
    ours, _ = sockets
    ours.settimeout(0)
    ours.settimeout(TIMEOUT_S)

    with pytest.raises(TimeoutError):
        ours.recv_into(bytearray(10))


def test_pythons_own_timeout_is_disabled(sockets: Pair) -> None:
    ours, _ = sockets

    assert isinstance(ours, KernelTimeoutSocket)
    assert ours.gettimeout() is None


def test_a_non_blocking_socket_stays_unchanged() -> None:
    with socket.socket() as plain:
        plain.setblocking(False)

        assert with_kernel_timeouts(plain) is plain


class ForeignSocket:
    """A socket like gevent's: the same methods, but not a subclass of Python's socket."""

    def gettimeout(self) -> float:
        return TIMEOUT_S


def test_a_foreign_socket_stays_unchanged() -> None:
    foreign: Any = ForeignSocket()

    assert with_kernel_timeouts(foreign) is foreign


class RefusingSocket(socket.socket):
    """Socket of a system without kernel timeouts."""

    def setsockopt(self, *_: Any) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")


def test_without_kernel_timeouts_python_keeps_the_timeout() -> None:
    with RefusingSocket() as plain:
        plain.settimeout(TIMEOUT_S)

        assert with_kernel_timeouts(plain) is plain
        assert plain.gettimeout() == TIMEOUT_S


def test_the_connection_continues_and_the_old_socket_is_released() -> None:
    plain, other = socket.socketpair()
    with other, with_kernel_timeouts(plain) as ours:
        other.sendall(b"a")

        assert plain.fileno() == -1
        assert ours.recv_into(bytearray(1)) == 1


KINDS = (
    ("redis://127.0.0.1:6379/0", DirectConnection),
    ("sentinel://127.0.0.1:26379/0?master_name=one", ManagedConnection),
)


@pytest.mark.parametrize(("url", "kind"), KINDS)
def test_the_stores_connections_use_our_classes(url: str, kind: type) -> None:
    assert client_for(url, 30.0, 3).connection_pool.connection_class is kind


@pytest.mark.parametrize(("url", "kind"), KINDS)
def test_connections_for_messages_use_our_classes(url: str, kind: type) -> None:
    with make_app("patient", url, Settings(), ["q"]).connection_for_write() as connection:
        assert connection.get_transport_cls().Channel.connection_class is kind
