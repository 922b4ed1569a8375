"""A user's tool that does damage costs one result, and reaches no key of its worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.agent.tool_calls import ToolThreads
from handoff_queue.shared.types.checkpoints import ToolObserved
from handoff_queue.shared.types.errors import InvalidTool
from handoff_queue.workers.tools.tool_confinement import NICE, can_separate_processes
from handoff_queue.workers.tools.tool_host_protocol import ToolLimits
from tests.doubles.function_tools import hosted, write_tools
from tests.process_states import is_gone
from tests.waiting import wait_until
from tests.workers.tools.contexts import ToolHarness

pytestmark = pytest.mark.slow

LIMITS = ToolLimits(
    memory_bytes=300_000_000, cpu_s=1, file_bytes=100_000, open_files=40, processes=20
)
KEYS = {"HANDOFF_REDIS_URL": "canary-of-redis", "ANTHROPIC_API_KEY": "canary-of-the-model"}
SECRETS = {"SHOP_TOKEN": "canary-of-the-shop", "BANK_TOKEN": "canary-of-the-bank"}
NEEDS_LANDLOCK = pytest.mark.skipif(
    not can_separate_processes(), reason="the kernel has no Landlock"
)
FORK_BOMB = """
import json, os, signal, sys
from handoff_queue.workers.tools.tool_confinement import confine
from handoff_queue.workers.tools.tool_host_protocol import ToolLimits

if os.getuid() == 0:  # the kernel does not limit the processes of root
    os.setresuid(65_534, 65_534, 65_534)
confine(ToolLimits.model_validate_json(sys.argv[1]))
started = 0
try:
    while started < 50_000:
        if os.fork() == 0:
            signal.pause()
        started += 1
except BlockingIOError:
    print(started, flush=True)
"""
"""Program that starts processes until the system refuses."""
CHANGES_OF_ITS_PARENT = """
import ctypes, os, platform, resource, sys
from handoff_queue.workers.tools.tool_confinement import confine, separate_host
from handoff_queue.workers.tools.tool_host_protocol import ToolLimits

if os.getuid() == 0:
    os.setresuid(65_534, 65_534, 65_534)
worker = os.getpid()
ioprio_set = {"x86_64": 251, "aarch64": 30}[platform.machine()]
idle = 3 << 13


def set_priority_of_input():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ioprio_set, 1, worker, idle) < 0:
        raise OSError(ctypes.get_errno(), "")


ways = {
    "prlimit": lambda: resource.prlimit(worker, resource.RLIMIT_CORE, (0, 0)),
    "setpriority": lambda: os.setpriority(os.PRIO_PROCESS, worker, 1),
    "group": lambda: os.setpriority(os.PRIO_PGRP, os.getpgid(worker), 1),
    "user": lambda: os.setpriority(os.PRIO_USER, os.getuid(), 1),
    "affinity": lambda: os.sched_setaffinity(worker, {0}),
    "scheduler": lambda: os.sched_setscheduler(worker, os.SCHED_BATCH, os.sched_param(0)),
    "parameters": lambda: os.sched_setparam(worker, os.sched_param(0)),
    "input": set_priority_of_input,
}
if (child := os.fork()) == 0:
    separate_host()
    confine(ToolLimits.model_validate_json(sys.argv[1]))
    for name, way in ways.items():
        try:
            way()
            print(name, flush=True)
        except PermissionError:
            pass
    os._exit(0)
os.waitpid(child, 0)
"""
"""Program that forks a call of a tool, which prints each change of its parent that worked."""
TOOLS = '''
"""Tools that do damage."""

import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

from handoff_queue import CallContext, ToolFailed, tool


def echo(text: str) -> str:
    """Return a text."""
    return text


def host() -> int:
    """Return the process id of the host."""
    return os.getppid()


def end_process(how: str) -> str:
    """End this process."""
    if how == "exit":
        sys.exit(3)
    if how == "_exit":
        os._exit(3)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "abort":
        os.abort()
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exec":
        os.execvp("true", ["true"])
    if how == "close":
        os.closerange(0, 1_000)
    if how == "recursion":
        return end_process(how)
    return "still here"


def print_for_ever() -> str:
    """Print without end."""
    while True:
        print("x" * 1_000)


def print_secretly() -> str:
    """Print control characters."""
    print("\\x1b[31mred\\x1b[0m\\n" + "line\\n" * 3_000)
    return "printed"


def return_much() -> str:
    """Return 30 MB."""
    return "x" * 30_000_000


def fill_memory() -> str:
    """Fill the memory."""
    return "x" * 1_000_000_000


def fill_memory_in_steps() -> str:
    """Fill the memory, and go on after an error."""
    parts = []
    while True:
        try:
            parts.append(bytearray(10_000_000))
        except MemoryError:
            signal.raise_signal(signal.SIGTERM)


def use_the_processor() -> str:
    """Use the processor without end."""
    while True:
        pass


def ignore_the_limit() -> str:
    """Use the processor without end, and ignore the signal of the limit."""
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    while True:
        pass


def write_a_large_file(path: str) -> str:
    """Write a large file."""
    with open(path, "wb") as file:
        file.write(bytes(1_000_000))
    return "written"


def open_many_files() -> str:
    """Open many files."""
    return str(len([open(os.devnull) for _ in range(1_000)]))


def raise_the_limits() -> str:
    """Raise a limit."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**9, 10**9))
    return "raised"


def write_to_all(text: str) -> str:
    """Write a text into each open descriptor, and end."""
    for descriptor in range(3, 60):
        try:
            os.write(descriptor, text.encode() + b"\\n")
        except OSError:
            pass
    os._exit(0)


def write_for_ever() -> str:
    """Write into each open descriptor without end."""
    while True:
        for descriptor in range(3, 60):
            try:
                os.write(descriptor, b"x" * 100_000)
            except OSError:
                pass


def raise_a_strange_type() -> str:
    """Raise an exception whose type has a strange name."""
    raise type("x y\\x1b[31m", (Exception,), {})("text")


def leave_processes(path: str, wait: bool) -> str:
    """Start processes in all ways, write their ids into a file, and return or wait."""
    started = [
        subprocess.Popen(["sleep", "600"]).pid,
        subprocess.Popen(["sleep", "600"], start_new_session=True).pid,
    ]
    reader, writer = os.pipe()
    if os.fork() == 0:  # a daemon: a grandchild in a session of its own
        os.setsid()
        if (pid := os.fork()) == 0:
            signal.pause()
        os.write(writer, str(pid).encode())
        os._exit(0)
    started.append(int(os.read(reader, 20)))
    with open(path + ".new", "w") as file:
        json.dump([os.getpid(), *started], file)
    os.rename(path + ".new", path)
    if wait:
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
        signal.pause()
    return "left"


def trace_itself() -> str:
    """Let a child trace this process and never wait for it."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        libc = ctypes.CDLL(None, use_errno=True)
        seize = 0x4206
        libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        refused = libc.ptrace(seize, os.getppid(), None, None)
        os.write(writer, b"refused" if refused else b"traced")
        signal.pause()
    return os.read(reader, 20).decode()


def leave_a_namespace() -> str:
    """Leave a namespace of processes whose first process ends only after all others."""
    new_user, new_processes = 0x10000000, 0x20000000
    if ctypes.CDLL(None).unshare(new_user | new_processes) != 0:
        return "no namespaces"
    if os.fork() == 0:
        os.setsid()
        signal.pause()
    if os.fork() == 0:
        os._exit(0)
    return "left"


def environment() -> dict[str, str]:
    """Return all variables."""
    return dict(os.environ)


def spy() -> dict[str, str]:
    """Read and signal all other processes, also with a new program."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if pid == str(os.getpid()):
            continue
        try:
            with open(f"/proc/{pid}/environ") as file:
                found[pid] = file.read()
        except OSError:
            pass
    pids = [str(os.getppid())]
    with open(f"/proc/{pids[0]}/status") as file:
        pids += [line.split()[1] for line in file if line.startswith("PPid")]
    for pid in pids:
        names = [f"/proc/{pid}/environ", f"/proc/{pid}/maps"]
        found[f"cat {pid}"] = subprocess.run(["cat", *names], capture_output=True).stdout.decode()
        try:
            os.kill(int(pid), signal.SIGKILL)
        except OSError as error:
            found[f"kill {pid}"] = type(error).__name__
    return found


def _tried(way):
    try:
        way()
    except OSError:
        return "refused"
    return "done"


_WORKER = os.getppid()
_WHILE_LOADED = {
    "environment": _tried(lambda: open(f"/proc/{_WORKER}/environ", "rb").read()),
    "memory": _tried(lambda: open(f"/proc/{_WORKER}/mem", "rb").close()),
    "signal": _tried(lambda: os.kill(_WORKER, 0)),
    "limit": _tried(lambda: resource.prlimit(_WORKER, resource.RLIMIT_CORE)),
}


def while_loaded() -> dict[str, str]:
    """Return what this file could do to the worker while it was loaded."""
    return _WHILE_LOADED


def keep_memory() -> list[int]:
    """Return the ids of memory and of queues that would outlive this process."""
    libc = ctypes.CDLL(None)
    libc.mq_open.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p]
    private, new = 0, 0o600
    return [
        libc.shmget(private, 4_096, new),
        libc.msgget(private, new),
        libc.semget(private, 1, new),
        libc.mq_open(b"/handoff-hostile-test", os.O_CREAT | os.O_RDWR, new, None),
    ]


def raise_its_priority() -> list[int]:
    """Return the priority of this process before and after it tries to raise its priority."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    except PermissionError:
        pass
    return [before, os.getpriority(os.PRIO_PROCESS, 0)]


def change_itself() -> str:
    """Change limits and priorities of this process."""
    resource.prlimit(0, resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
    os.nice(1)
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    return "changed"


@tool(secrets=["SHOP_TOKEN"])
def shop() -> list[str]:
    """Return the names of all variables."""
    return sorted(os.environ)


@tool(secrets=["BANK_TOKEN"])
def bank(context: CallContext) -> list[str]:
    """Return the names of all variables."""
    return sorted(os.environ)

'''


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Tool]]:
    """Yield the tools of `TOOLS` in a host with tight limits. Keys are in this process only."""
    folder = write_tools(tmp_path_factory.mktemp("tools"), {"damage": TOOLS})
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (KEYS | SECRETS).items():
            patch.setenv(name, value)
        with hosted(folder, LIMITS) as tools:
            yield tools


def observe(tool: Tool, timeout_s: float = 60.0, **arguments: Any) -> ToolObserved:
    """Run one call as the agent loop does."""
    call = {"id": "t", "name": tool.name, "input": arguments}
    limited = replace(tool, timeout_s=timeout_s)
    threads = ToolThreads({tool.name: limited}, ToolHarness().context)
    (observed,) = threads.run_calls([call], lambda: None)
    return observed


def output_of(tool: Tool, **arguments: Any) -> Any:
    """Return the output of a call, without the JSON around it."""
    observed = observe(tool, **arguments)
    assert not observed.is_error, observed.text
    return json.loads(observed.text)


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("end_process", {"how": "exit"}, "end_process failed with SystemExit"),
        ("end_process", {"how": "_exit"}, "end_process ended its process with exit code 3"),
        ("end_process", {"how": "segfault"}, "end_process crashed (SIGSEGV)"),
        ("end_process", {"how": "abort"}, "end_process crashed (SIGABRT)"),
        ("end_process", {"how": "kill"}, "end_process was killed; it may need too much memory"),
        ("end_process", {"how": "exec"}, "end_process ended its process with exit code 0"),
        ("end_process", {"how": "close"}, "end_process ended its process with exit code"),
        ("end_process", {"how": "recursion"}, "end_process failed with RecursionError"),
        ("print_for_ever", {}, "print_for_ever printed more than 1,000,000 bytes"),
        ("return_much", {}, "it returned 30,000,0"),
        ("fill_memory", {}, "fill_memory failed with MemoryError"),
        ("fill_memory_in_steps", {}, "fill_memory_in_steps crashed (SIGTERM)"),
        ("use_the_processor", {}, "use_the_processor used more than 1 s of processor time"),
        ("ignore_the_limit", {}, "ignore_the_limit was killed"),
        ("write_a_large_file", {"path": "/tmp/never"}, "write_a_large_file failed with OSError"),
        ("open_many_files", {}, "open_many_files failed with OSError"),
        ("raise_the_limits", {}, "raise_the_limits failed with ValueError"),
        ("write_to_all", {"text": "no result"}, "write_to_all returned data that is not a result"),
        (
            "write_to_all",
            {"text": "[" * 100_000},
            "write_to_all returned data that is not a result",
        ),
        ("write_to_all", {"text": '{"text": 5, "images": []}'}, "data that is not a result"),
        ("write_to_all", {"text": '{"text": "", "images": ["eA=="]}'}, "data that is not an image"),
        ("write_for_ever", {}, "write_for_ever returned more than 24,000,000 bytes"),
        ("raise_a_strange_type", {}, "raise_a_strange_type failed with Exception"),
    ],
)
def test_a_tool_that_does_damage_costs_one_result_with_one_line(
    tools: dict[str, Tool], tmp_path: Path, name: str, arguments: dict[str, Any], reason: str
) -> None:
    if "path" in arguments:
        arguments = {"path": str(tmp_path / "large")}
    host = output_of(tools["host"])

    observed = observe(tools[name], **arguments)

    assert observed.is_error
    assert reason in observed.text
    assert observed.text.isprintable()
    assert output_of(tools["host"]) == host, "the host goes on"


def test_a_call_goes_on_while_others_crash(tools: dict[str, Tool]) -> None:
    with ThreadPoolExecutor(8) as pool:
        crashes = [pool.submit(observe, tools["end_process"], how="segfault") for _ in range(8)]
        texts = [pool.submit(observe, tools["echo"], text=str(n)) for n in range(8)]

    assert [text.result().text for text in texts] == [str(n) for n in range(8)]
    assert all("SIGSEGV" in crash.result().text for crash in crashes)


@pytest.mark.parametrize("end", ["return", "timeout", "lost claim"])
def test_no_process_of_a_call_outlives_the_call(
    tools: dict[str, Tool], tmp_path: Path, end: str
) -> None:
    path = tmp_path / "pids"
    tool = tools["leave_processes"]
    arguments = {"path": str(path), "wait": end != "return"}

    if end == "lost claim":

        def lose_claim() -> None:
            if path.exists():
                raise InterruptedError

        call = {"id": "t", "name": tool.name, "input": arguments}
        with pytest.raises(InterruptedError):
            list(
                ToolThreads({tool.name: tool}, ToolHarness().context).run_calls([call], lose_claim)
            )
    else:
        observed = observe(tool, timeout_s=60.0 if end == "return" else 5.0, **arguments)
        text = (
            "left" if end == "return" else "leave_processes did not return within 5 s; it was ended"
        )
        assert observed.text == text

    pids = json.loads(path.read_text())
    assert len(set(pids)) == 4
    wait_until(lambda: all(map(is_gone, pids)), expected="the end of all processes")


@pytest.mark.parametrize("name", ["trace_itself", "leave_a_namespace"])
def test_a_call_that_delays_its_end_stops_no_other_call(tools: dict[str, Tool], name: str) -> None:
    host = output_of(tools["host"])

    assert observe(tools[name]).text != "traced"

    assert [output_of(tools["host"]) for _ in range(2)] == [host, host]


def test_a_fork_bomb_ends_at_the_limit_of_processes() -> None:
    limits = LIMITS.model_copy(update={"cpu_s": 600})
    command = [sys.executable, "-c", FORK_BOMB, limits.model_dump_json()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as bomb:
        assert bomb.stdout is not None
        try:
            started = int(bomb.stdout.readline())
        finally:
            os.killpg(bomb.pid, signal.SIGKILL)

    assert 0 < started < 49_000


def test_a_tool_has_no_variables_but_the_named_ones(tools: dict[str, Tool]) -> None:
    variables = output_of(tools["environment"])

    assert set(variables) <= {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "PYTHONPATH", "LC_CTYPE"}
    assert "canary" not in str(variables)


def test_a_tool_gets_its_own_secrets_and_not_those_of_another_tool(tools: dict[str, Tool]) -> None:
    shop, bank = output_of(tools["shop"]), output_of(tools["bank"])

    assert ("SHOP_TOKEN" in shop, "BANK_TOKEN" in shop) == (True, False)
    assert ("SHOP_TOKEN" in bank, "BANK_TOKEN" in bank) == (False, True)


@NEEDS_LANDLOCK
def test_a_tool_can_neither_read_nor_end_another_process(tools: dict[str, Tool]) -> None:
    host = output_of(tools["host"])

    output = output_of(tools["spy"])

    assert not {name: text for name, text in output.items() if text and "kill" not in name}
    kills = {text for name, text in output.items() if name.startswith("kill")}
    assert kills == {"PermissionError"}
    assert output_of(tools["host"]) == host


@NEEDS_LANDLOCK
def test_a_file_of_tools_cannot_reach_its_worker_while_it_is_loaded(tools: dict[str, Tool]) -> None:
    tried = output_of(tools["while_loaded"])

    assert set(tried.values()) == {"refused"}, tried
    assert len(tried) == 4


def test_a_call_leaves_no_memory_and_no_queue_in_the_kernel(tools: dict[str, Tool]) -> None:
    assert output_of(tools["keep_memory"]) == [-1, -1, -1, -1]


@NEEDS_LANDLOCK
def test_a_tool_changes_no_limit_and_no_priority_of_another_process() -> None:
    command = [sys.executable, "-c", CHANGES_OF_ITS_PARENT, LIMITS.model_dump_json()]

    changed = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert changed.split() == []


def test_a_tool_has_a_lower_priority_than_its_worker_and_cannot_raise_it(
    tools: dict[str, Tool],
) -> None:
    lowered = min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICE)

    assert output_of(tools["raise_its_priority"]) == [lowered, lowered]


def test_a_tool_may_lower_its_own_limits_and_its_own_priority(tools: dict[str, Tool]) -> None:
    assert observe(tools["change_itself"]).text == "changed"


def test_the_worker_starts_a_host_again_that_has_ended(tools: dict[str, Tool]) -> None:
    host = output_of(tools["host"])

    os.kill(host, 9)
    wait_until(lambda: is_gone(host), expected="the end of the host")

    assert output_of(tools["echo"], text="1") == 1
    assert output_of(tools["host"]) != host


def test_the_calls_of_a_host_that_is_killed_fail_and_leave_no_process_of_their_groups(
    tools: dict[str, Tool], tmp_path: Path
) -> None:
    path = tmp_path / "pids"
    host = output_of(tools["host"])
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(observe, tools["leave_processes"], path=str(path), wait=True)
        wait_until(path.exists, expected="the processes of the call")
        os.kill(host, 9)

        assert "the process of all tools ended" in call.result().text
    leader, child, *escaped = json.loads(path.read_text())
    wait_until(lambda: is_gone(leader) and is_gone(child), expected="the end of the group")
    for pid in escaped:
        os.kill(pid, 9)


def test_no_process_of_a_call_outlives_the_worker_that_stops(tmp_path: Path) -> None:
    path = tmp_path / "pids"
    folder = write_tools(tmp_path / "tools", {"damage": TOOLS})
    with ThreadPoolExecutor(1) as pool:
        with hosted(folder, LIMITS) as tools:
            call = pool.submit(observe, tools["leave_processes"], path=str(path), wait=True)
            wait_until(path.exists, expected="the processes of the call")
        assert call.result().is_error

    pids = json.loads(path.read_text())
    wait_until(lambda: all(map(is_gone, pids)), expected="the end of all processes")


def test_output_of_a_tool_is_logged_in_one_line_without_control_characters(
    tools: dict[str, Tool], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        assert observe(tools["print_secretly"]).text == "printed"

    (line,) = [record.getMessage() for record in caplog.records if "printed" in record.getMessage()]
    assert "[31mred" in line
    assert "\\x1b" not in line
    assert "\x1b[31m" not in line
    assert len(line) < 5_000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import os\nos._exit(7)\n", "damage.py: cannot be loaded (its process ended with exit"),
        (
            "import ctypes\nctypes.string_at(0)\n",
            "): correct the file, or take it out of the folder",
        ),
        ("import os\nos.write(5, b'x')\nos.write(6, b'x\\n' * 9)\nos._exit(0)\n", ""),
        ("raise SystemExit('no')\n", "damage.py:1: cannot be loaded (SystemExit: no)"),
        ("raise SystemExit('\\x1b[31m')\n", "damage.py:1: cannot be loaded (SystemExit"),
    ],
)
def test_a_file_that_does_damage_while_it_is_loaded_is_refused_with_one_line(
    tmp_path: Path, text: str, reason: str
) -> None:
    with (
        pytest.raises(InvalidTool) as caught,
        hosted(write_tools(tmp_path / "tools", {"damage": text}), LIMITS),
    ):
        pass

    assert reason in str(caught.value)
    assert str(caught.value).isprintable()
