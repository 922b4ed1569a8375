"""Code that tries to leave its sandbox, or to use up the machine, reaches nothing and costs one
result.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.workers.tools.sandbox import SandboxLimits, SandboxRun, run_in_sandbox
from tests.needs_sandbox import NEEDS_SANDBOX
from tests.waiting import wait_until

pytestmark = NEEDS_SANDBOX

LIMITS = SandboxLimits(memory_bytes=300_000_000, cpu_s=5, seconds=20, processes=16)
CANARY = "canary-of-the-worker"
TRIED = """
def tried(action):
    try:
        print("DONE", action())
    except BaseException as error:
        print(type(error).__name__, error)
"""
SYSTEM_CALL = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    result = libc.syscall(*arguments)
    print("DONE" if result >= 0 else os.strerror(ctypes.get_errno()))
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


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("TCP", "tried(lambda: socket.create_connection(('127.0.0.1', PORT), 5))"),
        ("UDP", "tried(lambda: socket.socket(type=2).sendto(b'x', ('192.0.2.1', PORT)))"),
        ("a name server", "tried(lambda: socket.getaddrinfo('example.org', 80))"),
        ("a Unix socket", "tried(lambda: socket.socket(socket.AF_UNIX))"),
        ("a virtual machine", "tried(lambda: socket.socket(socket.AF_VSOCK))"),
        ("packets", "tried(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))"),
        ("passwords", "tried(lambda: open('/etc/shadow').read())"),
        ("accounts", "tried(lambda: open('/etc/passwd').read())"),
        ("the home of root", "tried(lambda: os.listdir('/root/.ssh'))"),
        ("the code of the worker", "tried(lambda: open(WORKER).read())"),
        ("/sys", "tried(lambda: os.listdir('/sys'))"),
        ("the disk", "tried(lambda: open('/dev/vda', 'rb').read(1))"),
        ("memory of the kernel", "tried(lambda: open('/proc/kcore', 'rb').read(1))"),
        (
            "settings of the kernel",
            "tried(lambda: open('/proc/sys/kernel/hostname', 'w').write('x'))",
        ),
        ("a new file in /", "tried(lambda: open('/x', 'w'))"),
        ("a new file in /usr", "tried(lambda: open('/usr/x', 'w'))"),
        ("a new file in /etc", "tried(lambda: open('/etc/x', 'w'))"),
        ("a new file in /dev", "tried(lambda: open('/dev/x', 'w'))"),
        ("the interpreter", "tried(lambda: open(sys.executable, 'ab'))"),
        ("root", "tried(lambda: os.setuid(0))"),
        ("root by a group", "tried(lambda: os.setgroups([0]))"),
        ("a device", "tried(lambda: os.mknod('/work/disk', 0o60666, os.makedev(254, 0)))"),
        ("another root", "tried(lambda: os.chroot('/work'))"),
        (
            "a higher limit",
            "tried(lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40)))",
        ),
        ("the first process", "tried(lambda: open('/proc/1/environ').read())"),
        ("the root of another", "tried(lambda: os.listdir('/proc/1/root'))"),
        ("the packer", "tried(lambda: open(f'/proc/{os.getppid()}/mem', 'r+b'))"),
        ("files of the packer", "tried(lambda: os.listdir(f'/proc/{os.getppid()}/fd'))"),
    ],
)
def test_code_reaches_nothing_outside(server: int, name: str, code: str) -> None:
    head = f"import os, resource, socket, sys\nPORT = {server}\nWORKER = {__file__!r}\n"

    ended = run(head + TRIED + code)

    assert ended.exit_code == 0, ended.stderr
    assert "DONE" not in ended.stdout, ended.stdout
    assert "rror" in ended.stdout, name


@pytest.mark.parametrize(
    "arguments",
    [
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
        "0x40000000 + 39",  # a number of x32
    ],
)
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
def test_system_calls_that_reach_into_the_kernel_are_refused(arguments: str) -> None:
    ended = run(f"{SYSTEM_CALL}\ncall({arguments})")

    assert ended.stdout in ("Operation not permitted\n", "Function not implemented\n"), ended.stderr


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

    assert ended.stdout.startswith("['HOME', 'LANG', 'OPENBLAS_NUM_THREADS', 'PATH', 'PWD']")
    assert "pytest" not in ended.stdout
    assert CANARY not in ended.stdout


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


def test_memory_of_all_processes_together_ends_at_the_limit() -> None:
    code = (
        "import os, signal\n"
        "for _ in range(8):\n"
        "    if os.fork() == 0:\n"
        "        x = bytearray(b'x') * 150_000_000\n"
        "        signal.pause()\n"
        "signal.pause()\n"
    )

    with pytest.raises(ToolFailed, match="used more than 300,000,000 bytes of memory"):
        run(code)


@pytest.mark.parametrize("folder", ["/work", "/tmp", "/dev/shm"])
def test_folders_in_memory_have_a_size(folder: str) -> None:
    limits = replace(LIMITS, file_bytes=1_000_000)
    code = f"for n in range(9): open('{folder}/' + str(n), 'wb').write(bytes(300_000))"

    assert "No space left" in run(code, limits).stderr


def test_an_endless_loop_ends_at_the_limit_of_processor_time() -> None:
    ended = run("while True: pass", replace(LIMITS, cpu_s=1))

    assert ended.exit_code == -24  # SIGXCPU


@pytest.mark.parametrize(
    "code",
    [
        "import signal\nsignal.pause()",
        "import os, signal\nprint('first', flush=True)\nos.fork()\nsignal.pause()",
        "import signal\nsignal.pthread_sigmask(0, range(1, 32))\nsignal.pause()",
    ],
)
def test_code_that_waits_ends_at_the_limit_of_time_with_its_output(code: str) -> None:
    ended = run(code, replace(LIMITS, seconds=4))

    assert ended.stopped == "time"
    assert ended.stdout == ("first\n" if "first" in code else "")


def test_code_that_prints_for_ever_is_ended_with_a_part_of_its_output() -> None:
    ended = run("while True: print('x' * 1_000)")

    assert ended.stopped == "output"
    assert len(ended.stdout) == LIMITS.kept_bytes


def test_files_that_are_no_plain_files_or_too_large_are_left_out() -> None:
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

    assert ended.contents() == {"linked": b"text", "folder/good": b"text"}
    assert ended.left_out == 3


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
        "    os.setsid()\n"
        f"    ctypes.CDLL(None).prctl(15, b'{name}', 0, 0, 0)\n"
        "    open('outputs/begun', 'w')\n"
        "    signal.pause()\n"
        "while not os.path.exists('outputs/begun'): pass\n"
    )

    assert run(code).contents() == {"begun": b""}

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
