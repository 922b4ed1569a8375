"""Limits and borders of the processes of a tool call. Linux only.

A child sets them for itself before it runs the code of a user. The kernel passes them on to the
processes that the child starts.

The process of a call that may not use the worker's networks moves into its own network namespace.
There is no way out, except a socket of which the worker holds the other side.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from handoff_queue.workers.tools.seccomp_filter import (
    build_internet_only_filter,
    build_own_process_filter,
    filter_system_calls,
)
from handoff_queue.workers.tools.tool_host_protocol import ToolLimits

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
"""Options of prctl, from linux/prctl.h."""
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Numbers of the system calls of Landlock, the same on all architectures."""
_VERSION = 1
"""Flag of `_CREATE_RULESET` that asks for the version of Landlock."""
_PATH_BENEATH = 1
_REFER = 1 << 13
"""Right to move a file to another folder."""
_SCOPE_SIGNAL = 1 << 1
"""Border for signals. From linux/landlock.h, as the values above."""
_VERSION_WITH_REFER = 2
_VERSION_WITH_SIGNALS = 6
_CAPABILITY_VERSION = 0x20080522
"""From linux/capability.h. A set of capabilities has two words of 32 bits."""
_KEPT_CAPABILITIES = 1 << 0 | 1 << 1 | 1 << 3
"""Bits of CAP_CHOWN, CAP_DAC_OVERRIDE and CAP_FOWNER: the rights of root to files."""
_CAPABILITIES_OF_HOST = _KEPT_CAPABILITIES | 1 << 31
"""The same with CAP_SETFCAP, without which root gets no user namespace for a call. CAP_SYS_ADMIN
would do, too, but the kernel then shows the environment of each process.
"""
NICE = 10
"""Without it, many busy processes slow down the worker in the same container."""
_libc = ctypes.CDLL(None, use_errno=True)
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
"""Flags of unshare, from linux/sched.h."""
_SET_INTERFACE_FLAGS = 0x8914
_UP = 0x1
"""From linux/sockios.h and linux/if.h."""
_MAX_WAITING = 64
"""Connections that wait for the worker."""


def _call_prctl(option: int, value: int) -> None:
    _libc.prctl(option, value, 0, 0, 0)


def get_landlock_version() -> int:
    """Return the version of Landlock in this kernel. 0 or less: there is none."""
    return int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION))


def can_separate_processes() -> bool:
    """Return whether the kernel can keep a tool from other processes of the same user."""
    return get_landlock_version() >= _VERSION_WITH_REFER


def _separate() -> None:
    """Put this process and all processes that it will start into a Landlock domain.

    The kernel lets no process look into a process outside of its domain: not into its memory, and
    not into its environment. With version 6 it also lets no process send a signal out of its
    domain. The domain has all rights to files. The right to move files must be given, because
    Landlock takes it from each process in a domain.
    """
    version = get_landlock_version()
    if version < _VERSION_WITH_REFER:
        return
    fields = [_REFER]
    if version >= _VERSION_WITH_SIGNALS:
        fields += [0, _SCOPE_SIGNAL]
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = _libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    _libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", _REFER, root), 0)
    _libc.syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(root)
    if ruleset >= 0:
        os.close(ruleset)


def _drop_capabilities(kept_bits: int) -> None:
    """Take the rights of root from this process, except these. With the other rights a process
    may raise its limits, and look into each process.
    """
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    sets = ctypes.create_string_buffer(24)
    if _libc.capget(header, sets) == 0:
        words = struct.unpack("=6I", sets.raw)
        kept_words = [word & kept_bits for word in words[:3]]
        _libc.capset(header, struct.pack("=6I", *kept_words, 0, 0, 0))


def adopt_orphans() -> None:
    """Let this process become the parent of each process below it whose parent has ended."""
    _call_prctl(_PR_SET_CHILD_SUBREAPER, 1)


def outlive_parent() -> None:
    """Let this process live on when its parent has ended."""
    _call_prctl(_PR_SET_PDEATHSIG, 0)


def find_children() -> frozenset[int]:
    """Return the process ids of the children of this process."""
    pids: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended, or the kernel has no such file
            pids.update(map(int, (thread / "children").read_text().split()))
    return frozenset(pids)


def separate_host() -> None:
    """Separate the tool host from all processes that it does not start, because files of users
    run code while they are loaded. The host and its calls get no new rights from a program with
    the setuid bit.
    """
    _call_prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _separate()
    _drop_capabilities(_CAPABILITIES_OF_HOST)
    with suppress(OSError):  # a machine whose numbers of system calls the filter does not know
        filter_system_calls(build_own_process_filter())


def confine(limits: ToolLimits) -> None:
    """Limit the process of a call and all processes that it will start, and separate them from the
    host and the other calls. `separate_host` has set the filter of system calls before.
    """
    adopt_orphans()
    _call_prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _separate()
    _drop_capabilities(_KEPT_CAPABILITIES)
    os.nice(NICE)
    with suppress(OSError), open("/proc/self/oom_score_adj", "wb", 0) as file:  # noqa: PTH123 - `Path` is slower
        file.write(b"1000")  # the first process to kill
    mapped_pages = int(_read_text("/proc/self/statm").split()[0])
    running_tasks = int(_read_text("/proc/loadavg").split()[3].partition("/")[2])
    memory = mapped_pages * resource.getpagesize() + limits.memory_bytes
    _lower_limit(resource.RLIMIT_AS, memory)
    _lower_limit(resource.RLIMIT_FSIZE, limits.file_bytes)
    _lower_limit(resource.RLIMIT_NOFILE, limits.open_files)
    # The kernel counts all threads of the user. All threads of the system are not fewer.
    _lower_limit(resource.RLIMIT_NPROC, running_tasks + limits.processes)
    _lower_limit(resource.RLIMIT_CORE, 0)
    # SIGXCPU at the first limit names the reason. A process may ignore it, but not SIGKILL.
    _lower_limit(resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 1)


def _read_text(path: str) -> str:
    with open(path, "rb", 0) as file:  # noqa: PTH123 - `Path` is slower
        return file.read().decode()


def _lower_limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Lower a limit of this process. A lower limit of the system stays."""
    _, limit = resource.getrlimit(kind)
    if hard is None:
        hard = soft
    if limit != resource.RLIM_INFINITY:
        soft = min(soft, limit)
        hard = min(hard, limit)
    resource.setrlimit(kind, (soft, hard))


def leave_networks(kept_descriptor: int) -> None:
    """Move this process into an empty network namespace, and put an end to the sockets that it
    has inherited.

    Args:
        kept_descriptor: descriptor of the socket to the worker, which stays open.

    Raises:
        OSError: the kernel allows no namespace.
    """
    uid, gid = os.geteuid(), os.getegid()
    if _libc.unshare(_NEW_USER | _NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    _end_sockets(kept_descriptor)


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
    filter_system_calls(build_internet_only_filter())


def find_border_fault() -> str:
    """Return the reason why this machine cannot limit the network of a call, or "". The process
    must have one thread.
    """
    if not can_separate_processes():
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


def _end_sockets(kept_descriptor: int) -> None:
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
            if is_socket and descriptor != kept_descriptor:
                os.dup2(nothing.fileno(), descriptor, inheritable=False)
