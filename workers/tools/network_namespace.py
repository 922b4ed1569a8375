"""The border of a call that may not use the worker's networks. Linux only.

The process of the call moves into its own network namespace, before it runs the code of a
user. There is no way out, except a socket of which the worker holds the other side.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import stat
import struct
from pathlib import Path
from typing import NoReturn

from handoff_queue.workers.tools.seccomp_filter import filter_system_calls, internet_only_filter
from handoff_queue.workers.tools.tool_confinement import separates_processes

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
"""Flags of unshare, from linux/sched.h."""
_SET_INTERFACE_FLAGS = 0x8914
_UP = 0x1
"""From linux/sockios.h and linux/if.h."""
_MAX_WAITING = 64
"""Connections that wait for the worker."""
_libc = ctypes.CDLL(None, use_errno=True)


def leave_networks(kept: int) -> None:
    """Move this process into an empty network namespace, and put an end to the sockets that it
    has inherited.

    Args:
        kept: descriptor of the socket to the worker, which stays open.

    Raises:
        OSError: the kernel allows no namespace.
    """
    uid, gid = os.geteuid(), os.getegid()
    if _libc.unshare(_NEW_NETWORK) != 0:
        if _libc.unshare(_NEW_USER | _NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    _end_sockets(kept)


def listen_within() -> socket.socket:
    """Return a socket that listens on loopback of this process's namespace."""
    with socket.socket() as any_socket:
        request = struct.pack("16sh14x", b"lo", _UP)
        fcntl.ioctl(any_socket, _SET_INTERFACE_FLAGS, request)
    return socket.create_server(("127.0.0.1", 0), backlog=_MAX_WAITING)


def open_internet_sockets_only() -> None:
    """Refuse all sockets except those of IP to this process and its children.

    Raises:
        OSError: the kernel allows no filter.
    """
    filter_system_calls(internet_only_filter())


def fault_of_border() -> str:
    """Return the reason why this machine cannot limit the network of a call, or "". The process
    must have one thread.
    """
    if not separates_processes():
        return "no Landlock"
    pid = os.fork()
    if pid == 0:
        _try_border()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return os.strerror(code) if code else ""


def _try_border() -> NoReturn:
    """Try the border, and end this process. Its exit code is the number of the error."""
    code = 1
    try:
        leave_networks(-1)
        listen_within().close()
        open_internet_sockets_only()
        code = 0
    except OSError as error:
        code = error.errno or code
    finally:
        os._exit(code)


def _end_sockets(kept: int) -> None:
    """Replace each socket of this process by an empty file. Their numbers stay in use, because
    an object of a file of tools may have such a number.
    """
    with Path(os.devnull).open("r+b") as nothing:
        for path in Path("/proc/self/fd").iterdir():
            descriptor = int(path.name)
            try:
                is_socket = stat.S_ISSOCK(os.fstat(descriptor).st_mode)
            except OSError:  # the descriptor of the listing itself
                continue
            if is_socket and descriptor != kept:
                os.dup2(nothing.fileno(), descriptor, inheritable=False)
