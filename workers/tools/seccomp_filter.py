"""A filter of system calls (seccomp), which a process sets for itself and its children. Linux only.

A namespace separates a process from IP networks, but not from Unix sockets in files and not from
sockets of virtual machines (AF_VSOCK). Landlock separates processes, but not their limits and
priorities. A filter refuses these.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable, Mapping, Sequence

_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_MODE_FILTER = 2
_LOAD, _AND, _EQUALS, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
"""Codes of the instructions that the filter uses, from linux/bpf_common.h."""
_NUMBER, _ARCHITECTURE = 0, 4
"""Offsets in `struct seccomp_data`: the number, the architecture."""
_FIRST, _SECOND, _THIRD, _FOURTH = 16, 24, 32, 40
"""Offsets of the lower 32 bits of the arguments."""
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_REFUSE = 0x00050001
"""The call returns EPERM. From linux/seccomp.h, as the values above."""
_NO_SUCH_CALL = 0x00050026
"""The call returns ENOSYS."""
_NOT_SUPPORTED = 0x0005005F
"""The call returns EOPNOTSUPP, with which programs leave extended attributes out."""
_NEW_USER = 0x10000000
"""Flag of clone, from linux/sched.h."""
_MAP_SHARED, _MAP_ANONYMOUS, _MAP_HUGETLB = 0x01, 0x20, 0x40000
"""Flags of mmap, from linux/mman.h. MAP_SHARED_VALIDATE has the bit of MAP_SHARED."""
_PR_SET_THP_DISABLE = 41
_REFUSED_COMMANDS = (37, 38, 1024, 1026, 1031)
"""Commands of fcntl, from linux/fcntl.h: locks of an open file, which have no owner, leases, events
of folders (F_NOTIFY), and the size of a pipe.
"""
_REFUSED_OPTIONS = (7, 8, 18)
"""Options of sockets that enlarge a buffer: SO_SNDBUF, SO_RCVBUF, SO_RCVLOWAT."""
_AF_INET, _AF_INET6 = 2, 10
_SOCK_STREAM, _SOCK_DGRAM, _SOCK_SEQPACKET, _TYPE_MASK = 1, 2, 5, 0xF
_ANY_PROTOCOL, _TCP, _UDP = 0, 6, 17
_OTHER_ABI = 0x40000000
"""Numbers of system calls of x32, a second set of numbers on x86_64."""
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""Machine -> architecture, from linux/audit.h."""
_COLUMNS = ("x86_64", "aarch64")
_BY_NAME: dict[str, tuple[int, int | None]] = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clone": (56, 220),
    "clone3": (435, 435),
    "delete_module": (176, 106),
    "epoll_create": (213, None),
    "epoll_create1": (291, 20),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "fcntl": (72, 25),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsetxattr": (190, 7),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "io_setup": (206, 0),
    "io_uring_setup": (425, 425),
    "ioprio_set": (251, 30),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "landlock_create_ruleset": (444, 444),
    "lsetxattr": (189, 6),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "mmap": (9, 222),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "request_key": (249, 218),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "seccomp": (317, 277),
    "semget": (64, 190),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "setsid": (112, 157),
    "setsockopt": (54, 208),
    "setxattr": (188, 5),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "splice": (275, 76),
    "sync": (162, 81),
    "syncfs": (306, 267),
    "syslog": (103, 116),
    "tee": (276, 77),
    "timer_create": (222, 107),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vmsplice": (278, 75),
}
"""System call -> its number on each machine of `_COLUMNS`, from asm/unistd.h."""
_BY_ARGUMENTS = ("clone", "clone3", "fcntl", "mmap", "prctl", "setsockopt", "socket", "socketpair")
_OF_ONE_PROCESS = (
    "prlimit64",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
)
"""System calls that change a process. Its id is the first argument; 0: the caller."""
_OF_SOME_PROCESSES = {"ioprio_set": 1, "setpriority": 0}
"""System call that changes processes -> its first argument that says that the second one is the id
of a process; 0: the caller. From linux/ioprio.h and sys/resource.h.
"""
_OUTLIVE_PROCESSES = ("mq_open", "msgget", "semget", "shmget")
"""System calls that make memory or queues of the kernel which stay when all processes have ended.
No limit of a process counts System V memory.
"""
_NEVER_IN_A_TOOL = (*_OUTLIVE_PROCESSES, "io_uring_setup", "ptrace")
"""System calls that no process of a tool may use. A ring of io_uring keeps sockets, so a call
without a network could use a socket that its file has opened. A process that traces another one
keeps it from its end.
"""
_ATTRIBUTES = ("fsetxattr", "lsetxattr", "setxattr")
"""Lists of access rights in attributes are memory that no limit of a folder counts."""
_ALLOWED_IN_PART = (*_BY_ARGUMENTS, *_OF_ONE_PROCESS, *_OF_SOME_PROCESSES, *_ATTRIBUTES)
_NEVER_IN_A_SANDBOX = tuple(name for name in _BY_NAME if name not in _ALLOWED_IN_PART)
"""System calls that plain programs do not need. They reach far into the kernel, or they keep
memory that belongs to no process. A new session has its own share of the processor (autogroup).
"""
_FIRST_UNKNOWN = 463
"""The first number that is newer than this file. The last call of Linux 6.10 is 462."""
_FIRST_UNKNOWN_OPTION = 74
"""The first option of prctl that is newer than this file. The last option of Linux 6.10 is 73."""
Instruction = tuple[int, int, int, int]
"""Code, instructions to skip if true, and if false, and the operand."""
_libc = ctypes.CDLL(None, use_errno=True)


def build_internet_only_filter(*refused_calls: str) -> bytes:
    """Return a filter that allows sockets for IP only, and pairs of connected sockets.

    Args:
        refused_calls: names of further system calls that the filter refuses.

    Raises:
        OSError: the filter does not know the numbers of this machine.
    """
    numbers = _get_call_numbers()
    names = ("io_uring_setup", *refused_calls)  # io_uring can open sockets, too
    return _build_filter(numbers, _build_refusals(numbers, names))


def build_sandbox_filter() -> bytes:
    """Return the filter of a sandbox. It permits sockets as in `build_internet_only_filter`. It
    permits no call that reaches far into the kernel, or that keeps memory outside of all processes.

    Raises:
        OSError: the filter does not know the numbers of this machine.
    """
    numbers = _get_call_numbers()
    return _build_filter(
        numbers,
        [
            (_AT_LEAST, 0, 1, _FIRST_UNKNOWN),
            (_RETURN, 0, 0, _NO_SUCH_CALL),
            *_build_refusals(numbers, _NEVER_IN_A_SANDBOX),
            *_build_refusals(numbers, _ATTRIBUTES, _NOT_SUPPORTED),
            *_refuse_user_namespaces(numbers),
            *_refuse_anonymous_shared_memory(numbers),
            *_refuse_huge_pages(numbers),
            *_refuse_newer_options(numbers),
            *_allow_tcp_and_udp_only(numbers),
            *_build_argument_refusal(numbers["prctl"], _FIRST, (_PR_SET_SECCOMP,)),
            *_build_argument_refusal(numbers["fcntl"], _SECOND, _REFUSED_COMMANDS),
            *_build_argument_refusal(numbers["setsockopt"], _THIRD, _REFUSED_OPTIONS),
        ],
    )


def build_own_process_filter() -> bytes:
    """Return a filter that lets a process change the limits and the priority of itself only. With a
    limit of processor time, the kernel ends any process of the same user. It also refuses the
    calls of `_NEVER_IN_A_TOOL`.

    Raises:
        OSError: the filter does not know the numbers of this machine.
    """
    numbers = _get_call_numbers()
    instructions = [*_build_beginning(), *_build_refusals(numbers, _NEVER_IN_A_TOOL)]
    for name in _OF_ONE_PROCESS:
        instructions += [
            (_EQUALS, 0, 4, numbers[name]),
            (_LOAD, 0, 0, _FIRST),
            (_EQUALS, 1, 0, 0),
            (_RETURN, 0, 0, _REFUSE),
            (_LOAD, 0, 0, _NUMBER),
        ]
    for name, of_process in _OF_SOME_PROCESSES.items():
        instructions += [
            (_EQUALS, 0, 6, numbers[name]),
            (_LOAD, 0, 0, _FIRST),
            (_EQUALS, 0, 2, of_process),
            (_LOAD, 0, 0, _SECOND),
            (_EQUALS, 1, 0, 0),
            (_RETURN, 0, 0, _REFUSE),
            (_LOAD, 0, 0, _NUMBER),
        ]
    return _assemble_instructions([*instructions, (_RETURN, 0, 0, _ALLOW)])


def filter_system_calls(program: bytes) -> None:
    """Set a filter for this process and all processes that it will start.

    Raises:
        OSError: the kernel refuses it.
    """
    instructions = ctypes.create_string_buffer(program, len(program))
    count = len(program) // struct.calcsize("HBBI")
    pointer = ctypes.addressof(instructions)
    filter_program = struct.pack("HP", count, pointer)
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if _libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, filter_program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _get_call_numbers() -> dict[str, int]:
    """Return the number of each system call that this machine has.

    Raises:
        OSError: the filter does not know the numbers of this machine.
    """
    machine = platform.machine()
    if machine not in _COLUMNS:
        raise OSError(f"no filter of system calls for {machine}")
    column = _COLUMNS.index(machine)
    numbers_of_machine = {name: numbers[column] for name, numbers in _BY_NAME.items()}
    return {name: number for name, number in numbers_of_machine.items() if number is not None}


def _build_beginning() -> list[Instruction]:
    """Return instructions that refuse system calls with the numbers of another architecture, and
    load the number of the call.
    """
    return [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUALS, 1, 0, _ARCHITECTURES[platform.machine()]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _OTHER_ABI),
        (_RETURN, 0, 0, _REFUSE),
    ]


def _build_filter(numbers: Mapping[str, int], refusals: Iterable[Instruction]) -> bytes:
    """Return the filter with these refusals, and the rules about sockets."""
    return _assemble_instructions(
        [
            *_build_beginning(),
            *refusals,
            (_EQUALS, 0, 5, numbers["socket"]),
            (_LOAD, 0, 0, _FIRST),
            (_EQUALS, 1, 0, _AF_INET),
            (_EQUALS, 0, 1, _AF_INET6),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _REFUSE),
            # A pair of datagram sockets can send to any other Unix socket.
            (_EQUALS, 0, 5, numbers["socketpair"]),
            (_LOAD, 0, 0, _SECOND),
            (_AND, 0, 0, _TYPE_MASK),
            (_EQUALS, 2, 0, _SOCK_STREAM),
            (_EQUALS, 1, 0, _SOCK_SEQPACKET),
            (_RETURN, 0, 0, _REFUSE),
            (_RETURN, 0, 0, _ALLOW),
        ]
    )


def _build_refusals(
    numbers: Mapping[str, int], names: Iterable[str], error: int = _REFUSE
) -> list[Instruction]:
    """Return instructions that refuse these calls, as far as this machine has them."""
    refusals: list[Instruction] = []
    for name in names:
        if name in numbers:
            refusals += [(_EQUALS, 0, 1, numbers[name]), (_RETURN, 0, 0, error)]
    return refusals


def _refuse_user_namespaces(numbers: Mapping[str, int]) -> list[Instruction]:
    """Return instructions that refuse a child in a user namespace. The flags of clone3 are in
    memory, which a filter cannot read, so the C library must fall back to clone.
    """
    return [
        (_EQUALS, 0, 1, numbers["clone3"]),
        (_RETURN, 0, 0, _NO_SUCH_CALL),
        (_EQUALS, 0, 3, numbers["clone"]),
        (_LOAD, 0, 0, _FIRST),
        (_ANY_BIT, 0, 1, _NEW_USER),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER),
    ]


def _allow_tcp_and_udp_only(numbers: Mapping[str, int]) -> list[Instruction]:
    """Return instructions that refuse other protocols of IP. For some protocols, the kernel loads
    a module, even if the caller has no rights.
    """
    return [
        (_EQUALS, 0, 10, numbers["socket"]),
        (_LOAD, 0, 0, _SECOND),
        (_AND, 0, 0, _TYPE_MASK),
        (_EQUALS, 1, 0, _SOCK_STREAM),
        (_EQUALS, 0, 4, _SOCK_DGRAM),
        (_LOAD, 0, 0, _THIRD),
        (_EQUALS, 3, 0, _ANY_PROTOCOL),
        (_EQUALS, 2, 0, _TCP),
        (_EQUALS, 1, 0, _UDP),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER),
    ]


def _refuse_anonymous_shared_memory(numbers: Mapping[str, int]) -> list[Instruction]:
    """Return instructions that refuse memory which processes share without a file, and pages of
    the machine's pool of huge pages. Such memory is kept when a process no longer maps it, and
    nothing counts it.
    """
    return [
        (_EQUALS, 0, 6, numbers["mmap"]),
        (_LOAD, 0, 0, _FOURTH),
        (_ANY_BIT, 2, 0, _MAP_HUGETLB),
        (_ANY_BIT, 0, 2, _MAP_ANONYMOUS),
        (_ANY_BIT, 0, 1, _MAP_SHARED),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER),
    ]


def _refuse_huge_pages(numbers: Mapping[str, int]) -> list[Instruction]:
    """Return instructions that refuse to allow transparent huge pages again. A process that
    unmaps most of such a page keeps the whole page, and the kernel counts the rest only.
    """
    return [
        (_EQUALS, 0, 8, numbers["prctl"]),
        (_LOAD, 0, 0, _FIRST),
        (_EQUALS, 0, 5, _PR_SET_THP_DISABLE),
        (_LOAD, 0, 0, _SECOND),
        (_EQUALS, 0, 2, 1),
        (_LOAD, 0, 0, _THIRD),
        (_EQUALS, 1, 0, 0),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER),
    ]


def _refuse_newer_options(numbers: Mapping[str, int]) -> list[Instruction]:
    """Return instructions that refuse options of prctl that this file does not know. With such an
    option, a process of Linux 6.16 takes memory that belongs to no process, without a limit.
    """
    return [
        (_EQUALS, 0, 4, numbers["prctl"]),
        (_LOAD, 0, 0, _FIRST),
        (_AT_LEAST, 0, 1, _FIRST_UNKNOWN_OPTION),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER),
    ]


def _build_argument_refusal(number: int, argument: int, values: Sequence[int]) -> list[Instruction]:
    """Return instructions that refuse a call if an argument has one of these values."""
    last = len(values) - 1
    tests = [(_EQUALS, last - n, int(n == last), value) for n, value in enumerate(values)]
    return [
        (_EQUALS, 0, len(values) + 2, number),
        (_LOAD, 0, 0, argument),
        *tests,
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER),
    ]


def _assemble_instructions(instructions: Iterable[Instruction]) -> bytes:
    return b"".join(struct.pack("HBBI", *instruction) for instruction in instructions)
