"""A filter of system calls (seccomp), which a process sets for itself and its children. Linux only.

A namespace separates a process from IP networks, but not from Unix sockets in files and not from
sockets of virtual machines (AF_VSOCK). The filter refuses these.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable, Mapping

_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_MODE_FILTER = 2
_LOAD, _AND, _EQUALS, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
"""Codes of the instructions that the filter uses, from linux/bpf_common.h."""
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24
"""Offsets in `struct seccomp_data`: the number, the architecture, the first two arguments."""
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_REFUSE = 0x00050001
"""The call returns EPERM. From linux/seccomp.h, as the values above."""
_NO_SUCH_CALL = 0x00050026
"""The call returns ENOSYS."""
_NEW_USER = 0x10000000
"""Flag of clone, from linux/sched.h."""
_AF_INET, _AF_INET6 = 2, 10
_SOCK_STREAM, _SOCK_SEQPACKET, _TYPE_MASK = 1, 5, 0xF
_OTHER_ABI = 0x40000000
"""Numbers of system calls of x32, a second set of numbers on x86_64."""
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""Machine -> architecture, from linux/audit.h."""
_COLUMNS = ("x86_64", "aarch64")
_BY_NAME = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clone": (56, 220),
    "clone3": (435, 435),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "init_module": (175, 105),
    "io_uring_setup": (425, 425),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "request_key": (249, 218),
    "setns": (308, 268),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
"""System call -> its number on each machine of `_COLUMNS`, from asm/unistd.h."""
NEVER_IN_A_SANDBOX = tuple(
    name for name in _BY_NAME if name not in ("clone", "clone3", "socket", "socketpair")
)
"""System calls that plain programs do not need, and that reach far into the kernel."""
Instruction = tuple[int, int, int, int]
"""Code, instructions to skip if true, and if false, and the operand."""
_libc = ctypes.CDLL(None, use_errno=True)


def internet_only_filter(*refused: str) -> bytes:
    """Return a filter that allows sockets for IP only, and pairs of connected sockets.

    Args:
        refused: names of further system calls that the filter refuses.

    Raises:
        OSError: the filter does not know the numbers of this machine.
    """
    machine = platform.machine()
    if machine not in _COLUMNS:
        raise OSError(f"no filter of system calls for {machine}")
    column = _COLUMNS.index(machine)
    number = {name: numbers[column] for name, numbers in _BY_NAME.items()}
    refusals: list[Instruction] = []
    for name in ("io_uring_setup", *refused):  # io_uring can open sockets, too
        refusals += [(_EQUALS, 0, 1, number[name]), (_RETURN, 0, 0, _REFUSE)]
    if "unshare" in refused:
        refusals += _no_user_namespaces(number)
    return _assembled(
        [
            (_LOAD, 0, 0, _ARCHITECTURE),
            (_EQUALS, 1, 0, _ARCHITECTURES[machine]),
            (_RETURN, 0, 0, _KILL),
            (_LOAD, 0, 0, _NUMBER),
            (_AT_LEAST, 0, 1, _OTHER_ABI),
            (_RETURN, 0, 0, _REFUSE),
            *refusals,
            (_EQUALS, 0, 5, number["socket"]),
            (_LOAD, 0, 0, _FIRST),
            (_EQUALS, 1, 0, _AF_INET),
            (_EQUALS, 0, 1, _AF_INET6),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _REFUSE),
            # A pair of datagram sockets can send to any other Unix socket.
            (_EQUALS, 0, 5, number["socketpair"]),
            (_LOAD, 0, 0, _SECOND),
            (_AND, 0, 0, _TYPE_MASK),
            (_EQUALS, 2, 0, _SOCK_STREAM),
            (_EQUALS, 1, 0, _SOCK_SEQPACKET),
            (_RETURN, 0, 0, _REFUSE),
            (_RETURN, 0, 0, _ALLOW),
        ]
    )


def filter_system_calls(program: bytes) -> None:
    """Set a filter for this process and all processes that it will start.

    Raises:
        OSError: the kernel refuses it.
    """
    instructions = ctypes.create_string_buffer(program, len(program))
    count = len(program) // struct.calcsize("HBBI")
    pointer = ctypes.addressof(instructions)
    described = struct.pack("HP", count, pointer)
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if _libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, described, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _no_user_namespaces(number: Mapping[str, int]) -> list[Instruction]:
    """Return instructions that refuse a child in a user namespace. The flags of clone3 are in
    memory, which a filter cannot read, so the C library must fall back to clone.
    """
    return [
        (_EQUALS, 0, 1, number["clone3"]),
        (_RETURN, 0, 0, _NO_SUCH_CALL),
        (_EQUALS, 0, 3, number["clone"]),
        (_LOAD, 0, 0, _FIRST),
        (_ANY_BIT, 0, 1, _NEW_USER),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER),
    ]


def _assembled(instructions: Iterable[Instruction]) -> bytes:
    return b"".join(struct.pack("HBBI", *instruction) for instruction in instructions)
