"""TCP ports of the loopback address, and the error for a port that a server cannot use."""

from __future__ import annotations

import errno
import socket

from handoff_queue.shared.types.errors import UserError

LOOPBACK = "127.0.0.1"
MAX_PORT = 65_535
"""Largest TCP port."""


def is_free(port: int) -> bool:
    """Return whether a server can listen on this port now. Connections of an earlier server
    that are still closing do not count.
    """
    return _bind_error(port) is None


def find_free_port() -> int:
    """Return a port that is free now. Another process may take it at any time."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def check_port(port: int, advice: str) -> None:
    """Check that a server can listen on this port.

    Raises:
        UserError: the port cannot be used; see `build_unusable_port_error`.
    """
    if (error := _bind_error(port)) is not None:
        raise build_unusable_port_error(port, error, advice)


def build_unusable_port_error(port: int, error: OSError, advice: str) -> UserError:
    """Return the error that names the port and the reason.

    Args:
        advice: end of the message, which names the setting that changes the port.
    """
    if error.errno == errno.EADDRINUSE:
        return UserError(f"port {port} is taken by another process: {advice}")
    return UserError(f"port {port} cannot be used ({error.strerror or error}): {advice}")


def _bind_error(port: int) -> OSError | None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            return error
        return None
