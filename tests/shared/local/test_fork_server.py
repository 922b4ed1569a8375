"""A forked process behaves like a newly started process. Each test runs with both."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.local.fork_server import ForkedProcess, ForkServer
from tests.process_states import is_gone
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
REPORTING_MODULE = """
import json, os, signal, sys, threading
report = {"argv": sys.argv, "name": __name__, "main": sys.modules["__main__"].__name__, "file": __file__, "folder": os.getcwd(),
        "environment": dict(os.environ), "leads_session": os.getsid(0) == os.getpid(), "threads": threading.active_count(),
        "default_signals": [signal.getsignal(n) is signal.SIG_DFL for n in (signal.SIGTERM, signal.SIGCHLD)]
        + [not signal.pthread_sigmask(0, ())],
        "open": sorted(int(n) for n in os.listdir("/proc/self/fd") if n != str(max(map(int, os.listdir("/proc/self/fd"))))),
        "first": sys.path[0], "stdin": sys.stdin.read()}
print(json.dumps(report))
print("an error", file=sys.stderr)
"""  # noqa: E501 - lines of a text
ENDINGS = {
    "by itself": ("pass", 0),
    "with a code": ("import sys; sys.exit(7)", 7),
    "with words": ("import sys; sys.exit('so it is')", 1),
    "with an error": ("raise ValueError('so it is')", 1),
    "at SIGTERM": (
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM); signal.pause()",
        -signal.SIGTERM,
    ),
    "at Ctrl-C": (
        "import os, signal; os.kill(os.getpid(), signal.SIGINT); signal.pause()",
        -signal.SIGINT,
    ),
    "after what it has to do at its end": (
        "import atexit, os; atexit.register(lambda: os._exit(9))",
        9,
    ),
    "after its threads": (
        "import os, threading, time; threading.Thread(target=lambda: os._exit(5)).start()",
        5,
    ),
}

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
WAITING_MODULE = """
import os, pathlib, signal
pathlib.Path(os.environ["HANDOFF_READY_FILE"]).touch()
print(os.getppid(), flush=True)
signal.pause()
"""
KEEPING_MODULE = """
import os
keepers = []
def keep():
    keepers.append(os.getpid())
def fail():
    raise ValueError("the children report it")
"""

Process = subprocess.Popen[bytes] | ForkedProcess
Start = Callable[..., Process]


@pytest.fixture(scope="module")
def shared_fork_server() -> Iterator[ForkServer]:
    with ForkServer(["json", "tempfile"], ENVIRONMENT) as running:
        yield running


@pytest.fixture(params=["forked", "of its own"])
def start(request: pytest.FixtureRequest, shared_fork_server: ForkServer, tmp_path: Path) -> Start:
    """Return a function that runs code as a module in a new process. Its output goes to files."""

    def forked(
        code: str, *arguments: str, options: tuple[str, ...] = (), stdin: str = "", **more: str
    ) -> Process:
        (tmp_path / "reporter.py").write_text(code)
        (tmp_path / "in").write_text(stdin)
        command, environment = (
            [sys.executable, *options, "-m", "reporter", *arguments],
            {**_interpreter_environment(), **more},
        )
        with (
            (tmp_path / "in").open() as given,
            (tmp_path / "out").open("wb") as out,
            (tmp_path / "err").open("wb") as err,
        ):
            if request.param == "of its own":
                return subprocess.Popen(
                    command,
                    stdin=given,
                    stdout=out,
                    stderr=err,
                    env=environment,
                    cwd=tmp_path,
                    start_new_session=True,
                    preexec_fn=_restore_sigint,  # noqa: PLW1509 (it only sets a signal)
                )
            assert shared_fork_server.can_fork(command, environment)
            streams = {"errors": err.fileno(), "stdin": given.fileno()}
            return shared_fork_server.fork(
                command, environment, out.fileno(), **streams, folder=tmp_path, leads_session=True
            )

    return forked


def _restore_sigint() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _interpreter_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in ENVIRONMENT.items()
        if name.startswith(("PYTHON", "LANG", "LC_", "TERM", "PATH"))
    }


def test_a_forked_process_has_separate_arguments_environment_folder_and_streams(
    start: Start, tmp_path: Path
) -> None:
    process = start(REPORTING_MODULE, "-A", "an app", stdin="come in", HANDOFF_OWN="1")

    assert process.wait(20) == 0
    reported = json.loads((tmp_path / "out").read_text())
    assert (tmp_path / "err").read_text() == "an error\n"
    assert reported["argv"] == [str(tmp_path / "reporter.py"), "-A", "an app"]
    assert (reported["name"], reported["main"], reported["file"]) == (
        "__main__",
        "__main__",
        str(tmp_path / "reporter.py"),
    )
    assert reported["folder"] == reported["first"] == str(tmp_path)
    assert {**reported["environment"], "LC_CTYPE": ""} == {
        **_interpreter_environment(),
        "HANDOFF_OWN": "1",
        "LC_CTYPE": "",
    }
    assert reported["leads_session"]
    assert reported["threads"] == 1
    assert all(reported["default_signals"])
    assert reported["open"] == [0, 1, 2]
    assert reported["stdin"] == "come in"


def test_ps_shows_the_command_of_a_forked_process(start: Start) -> None:
    process = start("import signal; signal.pause()", "-n", "worker1@%h")
    pid = pid_of(process)

    assert command_line(pid) == f"{sys.executable} -m reporter -n worker1@%h"
    process.kill()
    process.wait(20)


def pid_of(process: ForkedProcess | subprocess.Popen[bytes]) -> int:
    """Return the pid of a process that has begun, or begins soon."""
    return wait_until(lambda: process.pid, expected="the beginning of the process") or 0


def command_line(pid: int) -> str:
    """Return the command line of a process, as `ps` prints it."""
    return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").replace("\0", " ")


def test_a_forked_python_obeys_the_safe_path_option(start: Start, tmp_path: Path) -> None:
    assert start("", options=("-P",)).wait(20) == 1
    assert "No module named" in (tmp_path / "err").read_text()


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_exit_code_of_a_forked_process_tells_its_end(start: Start, ending: str) -> None:
    code, exit_code = ENDINGS[ending]

    assert start(code).wait(20) == exit_code


def test_a_forked_process_can_be_stopped_and_killed(start: Start) -> None:
    process = start("import signal; signal.pause()")
    pid = pid_of(process)

    os.kill(pid, signal.SIGSTOP)
    stat = Path(f"/proc/{pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", expected="the stop")
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()

    assert process.wait(20) == process.poll() == -signal.SIGKILL
    assert is_gone(pid)


def test_no_child_outlives_the_fork_server_and_its_pending_children_are_known_as_lost(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "0"]
    with ForkServer([], ENVIRONMENT) as shared_fork_server, (tmp_path / "out").open("wb") as out:
        process = shared_fork_server.fork(command, ENVIRONMENT, out.fileno())
        pid = pid_of(process)

    assert process.wait(20) == -signal.SIGKILL
    wait_until(lambda: is_gone(pid), expected="the end of the child")


def test_an_orphaned_child_is_killed(shared_fork_server: ForkServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "0"]
    with (tmp_path / "out").open("wb") as out:
        process = shared_fork_server.fork(command, ENVIRONMENT, out.fileno())
    pid = pid_of(process)

    del process

    wait_until(lambda: is_gone(pid), expected="the end of the child")


def test_a_child_that_is_cancelled_before_its_begin_never_begins(tmp_path: Path) -> None:
    (tmp_path / "reporter.py").write_text("import pathlib, time\npathlib.Path('begun').touch()")
    with (
        ForkServer(["handoff_queue.supervisor.assembly"], ENVIRONMENT) as shared_fork_server,
        (tmp_path / "out").open("wb") as out,
    ):
        process = shared_fork_server.fork(
            [sys.executable, "-m", "reporter"], ENVIRONMENT, out.fileno(), folder=tmp_path
        )
        process.send_signal(signal.SIGTERM)
        behind = shared_fork_server.fork(
            [sys.executable, "-m", "json.tool", os.devnull],
            ENVIRONMENT,
            out.fileno(),
            folder=tmp_path,
        )

        assert process.wait(20) == -signal.SIGKILL
        assert behind.wait(20) == 1, "what was ordered first would have begun before it"
        assert process.pid is None
        assert not (tmp_path / "begun").exists()


@pytest.mark.parametrize(
    ("command", "more"),
    [
        (["redis-server", "a.conf"], {}),
        ([sys.executable, "-c", "pass"], {}),
        ([sys.executable, "-W", "ignore", "-m", "celery"], {}),
        ([sys.executable, "-m"], {}),
        ([sys.executable, "-m", "celery"], {"PYTHONPATH": "/elsewhere"}),
        ([sys.executable, "-m", "celery"], {"OTEL_SDK_DISABLED": "true"}),
    ],
)
def test_an_unforkable_command_is_not_forked(
    shared_fork_server: ForkServer, command: list[str], more: dict[str, str]
) -> None:
    assert not shared_fork_server.can_fork(command, {**ENVIRONMENT, **more})


def test_an_unknown_module_is_refused(shared_fork_server: ForkServer) -> None:
    with pytest.raises(ValueError, match="not `python -m MODULE`"):
        shared_fork_server.fork(["redis-server"], {}, 1)


def test_the_server_calls_a_function_once_for_all_its_children(tmp_path: Path) -> None:
    (tmp_path / "kept.py").write_text(KEEPING_MODULE)
    (tmp_path / "kept_printer.py").write_text("import kept; print(*kept.keepers)")
    here = {**ENVIRONMENT, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    with (
        ForkServer(["kept:keep", "kept:fail"], here) as fork_server,
        (tmp_path / "out").open("wb") as out,
    ):
        for _ in range(2):
            command = [sys.executable, "-m", "kept_printer"]
            assert fork_server.fork(command, here, out.fileno(), folder=tmp_path).wait(20) == 0

        kept_by = {int(line) for line in (tmp_path / "out").read_text().split()}
        assert kept_by == {fork_server.pid}


def test_processes_fork_where_possible_and_restart_the_fork_server(
    tmp_path: Path, shared_fork_server: ForkServer
) -> None:
    (tmp_path / "reporter.py").write_text(WAITING_MODULE)
    here = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    with (
        ForkServer([], {**os.environ, **here}) as fork_server,
        Processes(tmp_path, fork_server) as processes,
    ):
        processes.start(ChildSpec("one", [sys.executable, "-m", "reporter"], here))
        processes.wait_until_ready()
        first = processes.get_pids()["one"]
        os.kill(first, signal.SIGKILL)
        (second,) = wait_until(
            lambda: {*processes.get_pids().values()} - {first}, expected="another process"
        )
        processes.wait_until_ready()

        assert processes.get_names_by_pid() == {first: "one", second: "one"}
        assert {int(line) for line in processes.get_log_path("one").read_text().split()} == {
            fork_server.pid
        }
    assert is_gone(first)
    assert is_gone(second)


def test_without_a_fork_server_processes_start_cold(tmp_path: Path) -> None:
    (tmp_path / "reporter.py").write_text(WAITING_MODULE)
    here = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    with (
        ForkServer([], {**os.environ, **here}) as fork_server,
        Processes(tmp_path, fork_server) as processes,
    ):
        processes.start(ChildSpec("one", [sys.executable, "-m", "reporter"], here))
        processes.wait_until_ready()
        os.kill(fork_server.pid, signal.SIGKILL)
        wait_until(
            lambda: len(processes.get_log_path("one").read_text().split()) == 2,
            expected="another process",
        )

        assert processes.get_log_path("one").read_text().split() == [
            str(fork_server.pid),
            str(os.getpid()),
        ]


def test_a_child_that_reports_a_permanent_error_is_not_restarted(processes: Processes) -> None:
    processes.start(
        ChildSpec(
            "bad",
            [sys.executable, "-c", "print('so it is'); raise SystemExit(2)"],
            fatal_exit_code=2,
        )
    )

    wait_until(processes.read_log_ends_of_broken_children, expected="the end of it")
    assert processes.read_log_ends_of_broken_children() == {"bad": "so it is"}
