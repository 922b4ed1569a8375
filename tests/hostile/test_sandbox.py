"""Code that tries to leave its sandbox, or to use up the machine, reaches nothing and costs one
result.
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.workers.tools import sandbox
from handoff_queue.workers.tools.sandbox import SandboxRun, run_in_sandbox
from handoff_queue.workers.tools.sandbox_limits import SandboxLimits
from tests.needs_sandbox import NEEDS_SANDBOX
from tests.waiting import wait_until

pytestmark = [NEEDS_SANDBOX, pytest.mark.slow]

LIMITS = SandboxLimits(memory_bytes=300_000_000, cpu_s=5, seconds=20, processes=16)
CANARY = "canary-of-the-worker"
TRIED = """
def tried(action):
    try:
        action()
        print("DONE")
    except BaseException as error:
        print(type(error).__name__, error)
"""
SYSTEM_CALL = """
import ctypes, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    result = libc.syscall(*arguments)
    print("DONE" if result >= 0 else os.strerror(ctypes.get_errno()))
"""

END_OF_THREAD = 60 if os.uname().machine == "x86_64" else 93
"""Number of the system call that ends one thread only."""
PLAIN_PROGRAM = """
import asyncio, http.server, json, multiprocessing, shutil, sqlite3, subprocess, threading
import urllib.request
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.shared_memory import SharedMemory

def fill(array, n):
    array[n] = n * n

def main():
    array = multiprocessing.Array("i", 4)
    children = [multiprocessing.Process(target=fill, args=(array, n)) for n in range(4)]
    for child in children: child.start()
    for child in children: child.join()
    assert list(array) == [0, 1, 4, 9]
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        with ProcessPoolExecutor(2, context) as pool:
            assert list(pool.map(abs, [-1, -2])) == [1, 2]
    memory = SharedMemory(create=True, size=1_000_000)
    memory.buf[:5] = b"bytes"
    other = SharedMemory(memory.name)
    assert bytes(other.buf[:5]) == b"bytes"
    other.close()
    memory.close()
    memory.unlink()
    with ThreadPoolExecutor(20) as pool:
        barrier = threading.Barrier(20)
        assert list(pool.map(lambda n: barrier.wait(30) >= 0, range(20))) == [True] * 20
    database = sqlite3.connect("/work/data.db")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("CREATE TABLE numbers AS SELECT 1 AS number")
    database.commit()
    assert sqlite3.connect("/work/data.db").execute("SELECT * FROM numbers").fetchall() == [(1,)]
    first = subprocess.run("sort | head -1", shell=True, input=b"b\\na\\n", stdout=-1).stdout
    assert first == b"a\\n"
    subprocess.run(["cp", "-a", "/work/data.db", "/tmp/copy.db"], check=True)
    shutil.copy2("/work/data.db", "/tmp/second.db")
    shutil.make_archive("/tmp/archive", "zip", "/work/inputs")
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/code.py") as reply:
        assert b"SimpleHTTPRequestHandler" in reply.read()
    async def children_of_a_loop():
        child = await asyncio.create_subprocess_exec("echo", "text", stdout=-1)
        return (await child.communicate())[0]
    assert asyncio.run(children_of_a_loop()) == b"text\\n"

if __name__ == "__main__":
    main()
    print("ready")
"""

AS_NOBODY = """
import ctypes, os
from pathlib import Path

from handoff_queue.workers.tools.sandbox import PROGRAM, run_in_sandbox

if os.getuid() == 0:
    os.setresgid(65_534, 65_534, 65_534)
    os.setresuid(65_534, 65_534, 65_534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # /proc/self belongs to the new user
ended = run_in_sandbox('''
import os, signal, socket
try:
    socket.socket().connect(("127.0.0.1", 80))
except OSError as error:
    print(type(error).__name__)
started = 0
while True:
    try:
        pid = os.fork()
    except OSError as error:
        print(type(error).__name__, started <= 32)
        break
    if pid == 0:
        signal.pause()
    started += 1
print("ready")
''', {}, python=Path("/usr/bin/python3"))
print(ended.stdout)
"""


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this process, which is the worker here, a key."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", CANARY)


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """Yield the port of a server on loopback that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def run(code: str, limits: SandboxLimits = LIMITS) -> SandboxRun:
    return run_in_sandbox(code, {}, limits)


OUTSIDE = {
    "TCP": "socket.create_connection(('127.0.0.1', PORT), 5)",
    "UDP": "socket.socket(type=2).sendto(b'x', ('192.0.2.1', PORT))",
    "a name server": "socket.getaddrinfo('example.org', 80)",
    "a Unix socket": "socket.socket(socket.AF_UNIX)",
    "a virtual machine": "socket.socket(socket.AF_VSOCK)",
    "packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "SCTP": "socket.socket(type=socket.SOCK_STREAM, proto=132)",
    "SCTP without a protocol": "socket.socket(type=socket.SOCK_SEQPACKET)",
    "ICMP": "socket.socket(type=socket.SOCK_DGRAM, proto=1)",
    "a terminal": "os.openpty()",
    "the terminal of the worker": "open('/dev/tty')",
    "memory behind /dev/zero": "open('/dev/zero')",
    "passwords": "open('/etc/shadow').read()",
    "accounts": "open('/etc/passwd').read()",
    "the home of root": "os.listdir('/root/.ssh')",
    "the code of the worker": "open(WORKER).read()",
    "/sys": "os.listdir('/sys')",
    "the disk": "open('/dev/vda', 'rb').read(1)",
    "memory of the kernel": "open('/proc/kcore', 'rb').read(1)",
    "settings of the kernel": "open('/proc/sys/kernel/hostname', 'w').write('x')",
    "a new file in /": "open('/x', 'w')",
    "a new file in /usr": "open('/usr/x', 'w')",
    "a new file in /etc": "open('/etc/x', 'w')",
    "a new file in /dev": "open('/dev/x', 'w')",
    "the interpreter": "open(sys.executable, 'ab')",
    "root": "os.setuid(0)",
    "root by a group": "os.setgroups([0])",
    "a device": "os.mknod('/work/disk', 0o60666, os.makedev(254, 0))",
    "another root": "os.chroot('/work')",
    "a higher limit": "resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))",
    "the first process": "open('/proc/1/environ').read()",
    "the root of another": "os.listdir('/proc/1/root')",
    "the packer": "open(f'/proc/{os.getppid()}/mem', 'r+b')",
    "files of the packer": "os.listdir(f'/proc/{os.getppid()}/fd')",
}
"""What the code looks for -> how it tries."""


def test_code_reaches_nothing_outside(server: int) -> None:
    head = f"import os, resource, socket, sys\nPORT = {server}\nWORKER = {__file__!r}\n"
    tries = [f"tried(lambda: {action})\n" for action in OUTSIDE.values()]

    ended = run("".join((head, TRIED, *tries)))

    printed = dict(zip(OUTSIDE, ended.stdout.splitlines(), strict=True))
    assert [name for name, line in printed.items() if line == "DONE"] == []


NUMBERS_OF_X86_64 = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="the numbers are those of x86_64"
)
INTO_THE_KERNEL = (
    "101, 16, os.getppid(), 0, 0",  # ptrace: attach
    "310, os.getppid(), 0, 0, 0, 0, 0",  # process_vm_readv
    "272, 0x10000000",  # unshare: a user namespace
    "56, 0x10000000 | 17, 0, 0, 0, 0",  # clone with a user namespace
    "435, ctypes.create_string_buffer(88), 88",  # clone3
    "308, 0, 0",  # setns
    "165, b'none', b'/work', b'tmpfs', 0, 0",  # mount
    "321, 0, 0, 0",  # bpf
    "298, 0, 0, -1, -1, 0",  # perf_event_open
    "250, 0, -3, 1",  # keyctl
    "425, 4, ctypes.create_string_buffer(120)",  # io_uring_setup
    "323, 0",  # userfaultfd
    "304, -100, 0, 0",  # open_by_handle_at
    "438, 0, 0, 0",  # pidfd_getfd
    "317, 2, 0, ctypes.create_string_buffer(8)",  # seccomp
    "41, 2, 1, 262",  # socket: MPTCP
    "162",  # sync: it writes the files of the whole machine
    "306, 1",  # syncfs
    "256, 0, 0, 0, 0",  # migrate_pages
    "279, 0, 0, 0, 0, 0, 0",  # move_pages
    "72, os.open('y', 0o102), 1024, 1",  # fcntl: a lease
    "72, os.open('.', 0), 1026, 1",  # fcntl: events of a folder
    "154, 0, ctypes.create_string_buffer(8), 8",  # modify_ldt
    "0x40000000 + 39",  # a number of x32
    "463, -100, b'.', 0, b'user.x', 0, 0",  # setxattrat: newer than the filter
)
MEMORY_OF_NO_PROCESS = (
    "319, b'x', 0",  # memfd_create
    "447, 0",  # memfd_secret
    "29, 0, 4096, 0o1600",  # shmget
    "68, 0, 0o1600",  # msgget
    "64, 0, 1, 0o1600",  # semget
    "240, b'x', 0o102, 0o600, 0",  # mq_open
    "248, b'user', b'x', b'x', 1, -3",  # add_key
    "9, 0, 4096, 3, 0x21, -1, 0",  # mmap: shared without a file
    "9, 0, 4096, 3, 0x23, -1, 0",  # the same with MAP_SHARED_VALIDATE
    "9, 0, 4096, 3, 0x40022, -1, 0",  # the machine's pool of huge pages
    "157, 41, 0, 0, 0, 0",  # prctl: huge pages again
    "157, 41, 1, 2, 0, 0",  # the same, with an exception
    "157, 78, 1, 16, 0, 0",  # prctl: a table of futexes, which may have 1 GB
    "72, 1, 1031, 1 << 16",  # fcntl: the size of a pipe
    "72, os.open('x', 0o102), 37, struct.pack('hhqqixxxx', 1, 0, 0, 1, 0)",  # a lock of no process
    "54, socket.socketpair()[0].detach(), 1, 7, struct.pack('i', 1 << 20), 4",  # SO_SNDBUF
    "54, socket.socketpair()[0].detach(), 1, 8, struct.pack('i', 1 << 20), 4",  # SO_RCVBUF
    "54, socket.socketpair()[0].detach(), 1, 18, struct.pack('i', 1 << 20), 4",  # SO_RCVLOWAT
    "278, os.pipe()[1], 0, 0, 0",  # vmsplice
    "275, os.pipe()[0], 0, os.pipe()[1], 0, 0, 0",  # splice
    "276, os.pipe()[0], os.pipe()[1], 0, 0",  # tee
    "206, 1, ctypes.create_string_buffer(8)",  # io_setup
    "213, 1",  # epoll_create
    "291, 0",  # epoll_create1
    "253",  # inotify_init
    "294, 0",  # inotify_init1
    "222, 1, 0, ctypes.create_string_buffer(8)",  # timer_create
    "444, 0, 0, 1",  # landlock_create_ruleset: its version
)


CALLS = (*INTO_THE_KERNEL, *MEMORY_OF_NO_PROCESS)


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    """Return the answer of the kernel to each of CALLS in a sandbox."""
    ended = run("\n".join((SYSTEM_CALL, *(f"call({arguments})" for arguments in CALLS))))
    return dict(zip(CALLS, ended.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("call", CALLS)
@NUMBERS_OF_X86_64
def test_a_system_call_that_plain_programs_do_not_need_is_refused(
    call: str, answers: dict[str, str]
) -> None:
    assert answers[call] in {"Operation not permitted", "Function not implemented"}


def test_attributes_of_files_are_refused_as_not_supported() -> None:
    ended = run("import os\nos.setxattr('.', 'user.x', b'x')")

    assert "Errno 95" in ended.stderr


def test_code_sees_no_process_and_no_variable_of_the_worker() -> None:
    ended = run(
        "import os\n"
        "print(sorted(os.environ))\n"
        "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "    print(open(f'/proc/{pid}/cmdline').read()[:80])\n"
        "    for name in ('environ', 'maps'):\n"
        "        try:\n"
        "            print(open(f'/proc/{pid}/{name}').read())\n"
        "        except OSError:\n"
        "            pass\n"
    )

    names = ["HOME", "LANG", "MALLOC_ARENA_MAX", "OPENBLAS_NUM_THREADS", "PATH", "PWD"]
    assert ended.stdout.startswith(f"{names}\n")
    assert "pytest" not in ended.stdout
    assert CANARY not in ended.stdout


def test_code_does_not_see_the_name_of_the_machine() -> None:
    assert run("import os\nprint(os.uname().nodename)").stdout == "sandbox\n"


def test_code_sees_only_the_folders_of_python_below_its_prefix(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "secret").write_text(CANARY)
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    python = Path(shutil.copy(base, home / "bin"))
    for name in ("lib", "lib64"):
        (home / name).symlink_to(base.parent.parent / name)

    ended = run_in_sandbox(
        f"import os, sys\nprint(sys.executable, sorted(os.listdir({str(home)!r})))",
        {},
        python=python,
    )

    assert ended.stdout.startswith(str(python)), ended.stderr
    assert "secret" not in ended.stdout


def test_a_fork_bomb_ends_at_the_limit_of_processes() -> None:
    ended = run(
        "import os, signal\n"
        "started = 0\n"
        "while True:\n"
        "    try:\n"
        "        pid = os.fork()\n"
        "    except OSError as error:\n"
        "        print(started, type(error).__name__)\n"
        "        break\n"
        "    if pid == 0:\n"
        "        signal.pause()\n"
        "    started += 1\n"
    )

    started, error = ended.stdout.split()
    assert error == "BlockingIOError"
    assert int(started) <= LIMITS.processes


def test_memory_of_one_process_ends_at_its_limit() -> None:
    assert "MemoryError" in run("x = bytearray(1_000_000_000)").stderr


@pytest.mark.parametrize(
    "child",
    [
        "hold()",
        "os.setpgid(0, 0)\n        if os.fork() == 0: hold()\n        os._exit(0)",
        "threading.Thread(target=hold_alone).start()\n        end_first_thread()",
    ],
    ids=["children", "orphans in groups of their own", "children without their first thread"],
)
def test_memory_of_all_processes_together_ends_at_the_limit(child: str) -> None:
    code = (
        "import ctypes, os, signal, threading\n"
        "def hold():\n"
        "    x = bytearray(b'x') * 150_000_000\n"
        "    signal.pause()\n"
        "def hold_alone():\n"
        "    while 'VmRSS' in open('/proc/self/status').read(): pass\n"
        "    hold()\n"
        "def end_first_thread():\n"
        f"    ctypes.CDLL(None).syscall({END_OF_THREAD}, 0)\n"
        "for _ in range(5):\n"
        "    if os.fork() == 0:\n"
        f"        {child}\n"
        "signal.pause()\n"
    )

    with pytest.raises(ToolFailed, match="used more than 300,000,000 bytes of memory"):
        run(code)


def test_memory_that_processes_share_is_counted_once() -> None:
    code = (
        "import os, signal\n"
        "x = bytearray(b'x') * 60_000_000\n"
        "any(os.fork() == 0 for _ in range(7))\n"
        "signal.pause()\n"
    )
    checks = itertools.count()

    with pytest.raises(ToolFailed, match="given up"):
        run_in_sandbox(
            code,
            {},
            replace(LIMITS, memory_bytes=250_000_000),
            is_abandoned=lambda: next(checks) > 15,
        )


def test_code_has_a_lower_priority_than_its_worker_and_cannot_raise_it() -> None:
    code = """
import os
print(os.getpriority(os.PRIO_PROCESS, 0))
for which in (os.PRIO_PROCESS, os.PRIO_PGRP, os.PRIO_USER):
    try:
        os.setpriority(which, 0, 0)
    except PermissionError:
        print("refused")
for policy in (os.SCHED_FIFO, os.SCHED_RR):
    try:
        os.sched_setscheduler(0, policy, os.sched_param(1))
    except PermissionError:
        print("refused")
"""

    lowered = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
    assert run(code).stdout.split() == [str(lowered), *["refused"] * 5]


def test_code_makes_no_session_because_each_session_has_its_own_share_of_the_processor() -> None:
    code = "import os\nif os.fork() == 0:\n    os.setsid()\nelse:\n    os.wait()\n"

    assert "PermissionError" in run(code).stderr


def test_a_process_has_no_huge_pages_and_is_the_first_to_end_without_memory() -> None:
    ended = run(
        "import mmap\n"
        "x = mmap.mmap(-1, 1 << 25, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        "x.madvise(mmap.MADV_HUGEPAGE)\n"
        "x.write(bytes(1 << 25))\n"
        "for line in open('/proc/self/smaps_rollup'):\n"
        "    if 'AnonHuge' in line: print(line.split()[1])\n"
        "print(open('/proc/self/oom_score_adj').read(), end='')\n"
    )

    assert ended.stdout == "0\n1000\n", ended.stderr


@pytest.mark.parametrize(
    "action",
    [
        "open(f'/tmp/{n}', 'w').close()",
        "open(f'/dev/shm/{n}' + 'x' * 200, 'w').close()",
        "os.symlink('x' * 100, f'/work/{n}')",
        "os.link('code.py', str(n))",
        "os.mkdir(str(n))",
    ],
)
def test_many_empty_files_end_the_run(action: str) -> None:
    code = f"import os, signal\nfor n in range(500): {action}\nsignal.pause()"

    with pytest.raises(ToolFailed, match="made more than 200 files"):
        run(code, replace(LIMITS, files=200))


@pytest.mark.parametrize(
    "action",
    [
        "kept += socket.socketpair()",
        "kept += [socket.create_connection(listener.getsockname())]",  # never accepted
        "kept += [socket.socket(type=socket.SOCK_DGRAM)]",
    ],
)
def test_many_sockets_end_the_run(action: str) -> None:
    code = (
        "import signal, socket\n"
        "kept = []\n"
        "listener = socket.create_server(('127.0.0.1', 0), backlog=100)\n"
        f"for _ in range(40): {action}\n"
        "signal.pause()\n"
    )

    with pytest.raises(ToolFailed, match="opened more than 32 sockets"):
        run(code)


def test_many_locks_of_a_file_end_the_run() -> None:
    code = (
        "import fcntl, signal\n"
        "file = open('x', 'w')\n"
        "for n in range(300): fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * n)\n"
        "signal.pause()\n"
    )

    with pytest.raises(ToolFailed, match="held more than 256 locks of files"):
        run(code)


def test_plain_programs_of_the_standard_library_work() -> None:
    ended = run(PLAIN_PROGRAM, SandboxLimits())

    assert ended.stdout == "ready\n", ended.stderr


@pytest.mark.parametrize("folder", ["/work", "/tmp", "/dev/shm"])
def test_folders_in_memory_have_a_size(folder: str) -> None:
    limits = replace(LIMITS, file_bytes=1_000_000)
    code = f"for n in range(9): open('{folder}/' + str(n), 'wb').write(bytes(300_000))"

    assert "No space left" in run(code, limits).stderr


def test_an_endless_loop_ends_at_the_limit_of_processor_time() -> None:
    ended = run("while True: pass", replace(LIMITS, cpu_s=1))

    assert ended.exit_code == -24  # SIGXCPU


def test_code_that_waits_ends_at_the_limit_of_time_with_its_output() -> None:
    ended = run(
        "import os, signal\n"
        "signal.pthread_sigmask(0, range(1, 32))\n"
        "print('first', flush=True)\n"
        "os.fork()\n"
        "signal.pause()\n",
        replace(LIMITS, seconds=4),
    )

    assert (ended.stopped, ended.stdout) == ("time", "first\n")


def test_code_that_stops_the_packer_ends_at_the_limit_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox, "PACKED_WITHIN_S", 0.5)
    code = "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nsignal.pause()"
    began = time.monotonic()

    with pytest.raises(ToolFailed, match="the code did not end within 1 s"):
        run(code, replace(LIMITS, seconds=1))

    assert time.monotonic() - began < LIMITS.seconds


def test_code_that_prints_for_ever_is_ended_with_a_part_of_its_output() -> None:
    ended = run("while True: print('x' * 1_000)")

    assert ended.stopped == "output"
    assert len(ended.stdout) == LIMITS.kept_bytes


def test_an_error_after_a_long_output_is_in_the_result() -> None:
    ended = run("import sys\nsys.stderr.write('x' * 30_000)\nraise ValueError('the cause')")

    assert ended.stderr.endswith("ValueError: the cause\n")


def test_files_that_are_not_plain_files_or_too_large_are_left_out() -> None:
    ended = run(
        "import os\n"
        "os.symlink('/proc/1/environ', 'outputs/link')\n"
        "os.symlink('/', 'outputs/root')\n"
        "os.mkfifo('outputs/pipe')\n"
        "open('outputs/large', 'wb').truncate(15_000_000)\n"
        "os.mkdir('outputs/folder')\n"
        "open('outputs/folder/good', 'w').write('text')\n"
        "os.link('outputs/folder/good', 'outputs/linked')\n",
        replace(LIMITS, output_bytes=1_000),
    )

    assert ended.decode_contents() == {"linked": b"text", "folder/good": b"text"}
    assert ended.left_out == 4


@pytest.mark.parametrize("target", ["/usr/bin", "/proc/self"])
def test_a_link_in_the_place_of_the_output_folder_is_not_followed(target: str) -> None:
    ended = run(f"import os\nos.rmdir('outputs')\nos.symlink('{target}', 'outputs')")

    assert (ended.files, ended.left_out) == ({}, 1)


def test_a_path_that_is_too_long_or_too_deep_costs_no_other_file() -> None:
    ended = run(
        "import os\n"
        "open('outputs/good', 'w').write('text')\n"
        "long = 'outputs/' + '/'.join(['x' * 250] * 5)\n"
        "os.makedirs(long)\n"
        "open(f'{long}/file', 'w').write('text')\n"
        "os.chdir('outputs')\n"
        "for _ in range(1_500):\n"
        "    os.mkdir('d')\n"
        "    os.chdir('d')\n"
        "open('file', 'w').write('text')\n"
    )

    assert (ended.decode_contents(), ended.left_out) == ({"good": b"text"}, 2)


def test_many_files_are_cut() -> None:
    ended = run("for n in range(100): open(f'outputs/{n}', 'w').write('x')")

    assert (len(ended.files), ended.left_out) == (LIMITS.output_files, 100 - LIMITS.output_files)


@pytest.mark.parametrize(
    "code",
    [
        "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
        "import os, signal\nos.kill(-1, signal.SIGKILL)",
    ],
)
def test_code_that_kills_the_packer_ends_its_own_sandbox(code: str) -> None:
    with pytest.raises(ToolFailed):
        run(code)


def test_no_process_outlives_the_run() -> None:
    name = f"left-{os.getpid()}"
    code = (
        "import ctypes, os, signal\n"
        "if os.fork() == 0:\n"
        "    os.setpgid(0, 0)\n"
        f"    ctypes.CDLL(None).prctl(15, b'{name}', 0, 0, 0)\n"
        "    open('outputs/begun', 'w')\n"
        "    signal.pause()\n"
        "while not os.path.exists('outputs/begun'): pass\n"
    )

    assert run(code).decode_contents() == {"begun": b""}

    wait_until(lambda: name not in names_of_processes(), expected="the end of all processes")


def names_of_processes() -> set[str]:
    names: set[str] = set()
    for file in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):  # it has ended
            names.add(file.read_text().strip())
    return names


def test_a_run_that_is_given_up_ends_at_once() -> None:
    with pytest.raises(ToolFailed, match="given up"):
        run_in_sandbox("import signal\nsignal.pause()", {}, is_abandoned=lambda: True)


def test_a_user_without_the_rights_of_root_has_the_same_sandbox() -> None:
    program = subprocess.run(
        [sys.executable, "-c", AS_NOBODY], check=False, capture_output=True, text=True
    )

    assert program.stdout == "ConnectionRefusedError\nBlockingIOError True\nready\n\n", (
        program.stderr
    )
