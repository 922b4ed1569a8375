"""Limits and borders of the processes of a tool call. Linux only.

A child sets them for itself before it runs the code of a user. The kernel passes them on to the
processes that the child starts.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from contextlib import suppress
from pathlib import Path

from handoff_queue.workers.tools.seccomp_filter import filter_system_calls, own_process_filter
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
NICE = 10
"""Without it, many busy processes slow down the worker in the same container."""
_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    _libc.prctl(option, value, 0, 0, 0)


def landlock_version() -> int:
    """Return the version of Landlock in this kernel. 0 or less: there is none."""
    return int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION))


def separates_processes() -> bool:
    """Return whether the kernel can keep a tool from other processes of the same user."""
    return landlock_version() >= _VERSION_WITH_REFER


def _separate() -> None:
    """Put this process and all processes that it will start into a Landlock domain.

    The kernel lets no process look into a process outside of its domain: not into its memory, and
    not into its environment. With version 6 it also lets no process send a signal out of its
    domain. The domain has all rights to files. The right to move files must be given, because
    Landlock takes it from each process in a domain.
    """
    version = landlock_version()
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


def _drop_capabilities() -> None:
    """Take the rights of root from this process, except the rights to files. With these rights a
    process may raise its limits, and look into each process.
    """
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    sets = ctypes.create_string_buffer(24)
    if _libc.capget(header, sets) == 0:
        words = struct.unpack("=6I", sets.raw)
        kept = [word & _KEPT_CAPABILITIES for word in words[:3]]
        _libc.capset(header, struct.pack("=6I", *kept, 0, 0, 0))


def adopt_orphans() -> None:
    """Let this process become the parent of each process below it whose parent has ended."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def outlive_parent() -> None:
    """Let this process live on when its parent has ended."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def children_of_this_process() -> frozenset[int]:
    """Return the process ids of the children of this process."""
    pids: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended, or the kernel has no such file
            pids.update(map(int, (thread / "children").read_text().split()))
    return frozenset(pids)


def confine(limits: ToolLimits) -> None:
    """Limit this process and all processes that it will start, and separate them from the other
    processes of the user. They get no new rights from a program with the setuid bit.
    """
    adopt_orphans()
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _separate()
    _drop_capabilities()
    os.nice(NICE)
    with suppress(OSError):  # a machine whose numbers of system calls the filter does not know
        filter_system_calls(own_process_filter())
    with suppress(OSError), open("/proc/self/oom_score_adj", "wb", 0) as file:  # noqa: PTH123 - `Path` is slower
        file.write(b"1000")  # the first process to kill
    mapped_pages = int(_text_of("/proc/self/statm").split()[0])
    running_tasks = int(_text_of("/proc/loadavg").split()[3].partition("/")[2])
    memory = mapped_pages * resource.getpagesize() + limits.memory_bytes
    _limit(resource.RLIMIT_AS, memory)
    _limit(resource.RLIMIT_FSIZE, limits.file_bytes)
    _limit(resource.RLIMIT_NOFILE, limits.open_files)
    # The kernel counts all threads of the user. All threads of the system are no fewer.
    _limit(resource.RLIMIT_NPROC, running_tasks + limits.processes)
    _limit(resource.RLIMIT_CORE, 0)
    # SIGXCPU at the first limit names the reason. A process may ignore it, but not SIGKILL.
    _limit(resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 1)


def _text_of(path: str) -> str:
    with open(path, "rb", 0) as file:  # noqa: PTH123 - `Path` is slower
        return file.read().decode()


def _limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Lower a limit of this process. A lower limit of the system stays."""
    _, most = resource.getrlimit(kind)
    if hard is None:
        hard = soft
    if most != resource.RLIM_INFINITY:
        soft = min(soft, most)
        hard = min(hard, most)
    resource.setrlimit(kind, (soft, hard))
