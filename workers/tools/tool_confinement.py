"""Limits and borders of the processes of a tool call. Linux only.

A child sets them for itself before it runs the code of a user. The kernel passes them on to the
processes that the child starts.
"""

from __future__ import annotations

import ctypes
import resource
from contextlib import suppress
from pathlib import Path

from handoff_queue.workers.tools.tool_messages import ToolLimits

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
"""Options of prctl, from linux/prctl.h."""


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


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
    """Limit this process and all processes that it starts. It gets no new rights from a program
    with the setuid bit. The kernel may not know a limit; it then does not hold.
    """
    adopt_orphans()
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # the first process to kill
    mapped_pages = int(Path("/proc/self/statm").read_text().split()[0])
    running_tasks = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    memory = mapped_pages * resource.getpagesize() + limits.memory_bytes
    _limit(resource.RLIMIT_AS, memory)
    _limit(resource.RLIMIT_FSIZE, limits.file_bytes)
    _limit(resource.RLIMIT_NOFILE, limits.open_files)
    # The kernel counts all threads of the user. All threads of the system are no fewer.
    _limit(resource.RLIMIT_NPROC, running_tasks + limits.processes)
    _limit(resource.RLIMIT_CORE, 0)
    # SIGXCPU at the first limit names the reason. A process may ignore it, but not SIGKILL.
    _limit(resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 1)


def _limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Lower a limit of this process. A lower limit of the system stays."""
    _, most = resource.getrlimit(kind)
    if hard is None:
        hard = soft
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(kind, (soft, hard))
