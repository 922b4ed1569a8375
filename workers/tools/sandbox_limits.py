"""The limits of one run in a sandbox, and the use of its processes, measured from outside.

The kernel limits each process, but without a control group it limits no group of processes. So
the worker reads /proc of the sandbox, in which the code can hide no process.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FOLDERS_IN_MEMORY = ("/dev/shm", "/tmp", "/work")  # noqa: S108 - new folders of the sandbox
_MAPPING_BYTES = 1_024
"""Memory of the kernel that counts for one mapping of a process. It is above the true size,
because the worker reads a line for each mapping.
"""
_INODE_BYTES = 2_048
"""Memory of the kernel for one file: inode, name, and target of a link."""
_REMEASURE_S = 0.02
"""Seconds until memory above the limit is measured again. A child that starts a program shares all
memory of its parent for a moment.
"""
_FIELD = re.compile(rb"^(\w+):\s+(\d+)", re.MULTILINE)
_ENDED = (FileNotFoundError, ProcessLookupError)


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of one run."""

    memory_bytes: int = 512_000_000
    """Memory of each process, and of all processes and files together."""
    cpu_s: int = 30
    """Processor time of each process."""
    seconds: int = 60
    processes: int = 32
    """Processes and threads."""
    open_files: int = 128
    file_bytes: int = 16_000_000
    """Size of each file, and of each folder in memory."""
    files: int = 10_000
    """Files, folders and links of all folders in memory together."""
    sockets: int = 32
    """Sockets of all processes together."""
    locks: int = 256
    """Locks of files that all processes hold together."""
    printed_bytes: int = 1_000_000
    """A run that prints more is ended."""
    kept_bytes: int = 20_000
    """Bytes of each of stdout and stderr in the result: the last ones."""
    output_files: int = 16
    output_bytes: int = 4_000_000
    """Bytes of all output files together."""

    @property
    def max_result_bytes(self) -> int:
        """Return the bytes of the longest result, with base64 and escapes."""
        return 2 * self.output_bytes + 12 * self.kept_bytes + 100_000


def find_exceeded_limit(bubblewrap_pid: int, limits: SandboxLimits) -> str:
    """Return a sentence about the limit that a sandbox exceeds, or "".

    Args:
        bubblewrap_pid: id of the process outside that made the sandbox.
        limits: limits of all processes of the sandbox together.

    Raises:
        PermissionError: this process may not measure the sandbox.
    """
    with suppress(*_ENDED):  # the sandbox starts, or ends
        root = _find_root(bubblewrap_pid)
        return _find_exceeded_count(root, limits) or _find_exceeded_memory(root, limits)
    return ""


def _find_root(bubblewrap_pid: int) -> Path:
    """Return the root of the sandbox, as this process can open it.

    Raises:
        FileNotFoundError: the sandbox has no root of its own yet, or has ended.
    """
    for child in Path(f"/proc/{bubblewrap_pid}/task/{bubblewrap_pid}/children").read_text().split():
        root = Path(f"/proc/{child}/root")
        if not os.path.samestat(os.stat(root), os.stat("/")):  # noqa: PTH116 - follows the link
            return root
    raise FileNotFoundError(f"process {bubblewrap_pid} has no sandbox")


def _find_exceeded_count(root: Path, limits: SandboxLimits) -> str:
    if _count_inodes(root) > limits.files:
        return f"the code made more than {limits.files:,} files"
    if _count_sockets(root) > limits.sockets:
        return f"the code opened more than {limits.sockets:,} sockets"
    if _count_locks(root) > limits.locks:
        return f"the code held more than {limits.locks:,} locks of files"
    return ""


def _find_exceeded_memory(root: Path, limits: SandboxLimits) -> str:
    limit = limits.memory_bytes
    if _measure_memory(root, exact=False) <= limit or _measure_memory(root, exact=True) <= limit:
        return ""
    time.sleep(_REMEASURE_S)
    if _measure_memory(root, exact=True) <= limit:
        return ""
    return f"the code used more than {limit:,} bytes of memory"


def _count_inodes(root: Path) -> int:
    file_systems = [os.statvfs(f"{root}{folder}") for folder in FOLDERS_IN_MEMORY]
    return sum(file_system.f_files - file_system.f_ffree for file_system in file_systems)


def _count_sockets(root: Path) -> int:
    """Return the number of sockets in the network namespace. It includes connections that no
    process has accepted.
    """
    summary = (root / "proc/1/net/sockstat").read_text()
    return int(summary.split("used", 1)[1].split(None, 1)[0])


def _count_locks(root: Path) -> int:
    """Return the number of locks of processes in the sandbox. Locks without a process (OFDLCK)
    belong to the machine, because the sandbox cannot make them.
    """
    lines = (root / "proc/locks").read_text().splitlines()
    return sum("OFDLCK" not in line for line in lines)


def _measure_memory(root: Path, *, exact: bool) -> int:
    """Return the bytes of all processes and all files.

    Args:
        root: root of the sandbox.
        exact: True to count a page that several processes share once. False to count it once for
            each process.
    """
    total = 0
    for folder in FOLDERS_IN_MEMORY:
        file_system = os.statvfs(f"{root}{folder}")
        total += (file_system.f_blocks - file_system.f_bfree) * file_system.f_frsize
        total += (file_system.f_files - file_system.f_ffree) * _INODE_BYTES
    for process in _iterate_processes(root):
        with suppress(*_ENDED):
            total += measure_memory(process, exact=exact)
    return total


def _iterate_processes(root: Path) -> Iterator[Path]:
    for name in os.listdir(root / "proc"):  # noqa: PTH208 - names only
        if name.isdigit():
            yield root / "proc" / name


def measure_memory(process: Path, *, exact: bool) -> int:
    """Return the bytes of a process in memory and in swap, with its page tables and mappings.

    Args:
        process: folder of the process in /proc.
        exact: divide a page by the number of processes that share it.
    """
    thread, status = _find_living_thread(process)
    used_kib = status.get("VmRSS", 0) + status.get("VmSwap", 0)
    if exact and thread == process:
        shares = _read_fields(process / "smaps_rollup")
        used_kib = shares.get("Pss", used_kib) + shares.get("SwapPss", 0)
    mappings = (thread / "maps").read_bytes().count(b"\n")
    return (used_kib + status.get("VmPTE", 0)) * 1_024 + mappings * _MAPPING_BYTES


def _find_living_thread(process: Path) -> tuple[Path, dict[str, int]]:
    """Return the process with the fields of its status. If its first thread has ended, return
    another thread, because the first one shows no memory.
    """
    status = _read_fields(process / "status")
    if "VmRSS" in status:
        return process, status
    for thread in sorted((process / "task").iterdir()):
        with suppress(*_ENDED):
            fields = _read_fields(thread / "status")
            if "VmRSS" in fields:
                return thread, fields
    return process, status


def _read_fields(file: Path) -> dict[str, int]:
    """Return the numbers of a file of /proc by name. Sizes are in units of 1,024 bytes."""
    return {name.decode(): int(number) for name, number in _FIELD.findall(file.read_bytes())}
