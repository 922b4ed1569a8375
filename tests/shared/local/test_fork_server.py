"""A forked process behaves like a process that was started from nothing: each test runs on both."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from handoff_queue.shared.local.fork_server import ForkedProcess, ForkServer
from handoff_queue.shared.local.processes import ChildSpec, Processes
from tests.shared.local.test_processes import is_gone
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
TELLS = """
import json, os, signal, sys, threading
told = {"argv": sys.argv, "name": __name__, "main": sys.modules["__main__"].__name__, "file": __file__, "folder": os.getcwd(),
        "environment": dict(os.environ), "leads": os.getsid(0) == os.getpid(), "threads": threading.active_count(),
        "hears": [signal.getsignal(n) is signal.SIG_DFL for n in (signal.SIGTERM, signal.SIGCHLD)] + [not signal.pthread_sigmask(0, ())],
        "open": sorted(int(n) for n in os.listdir("/proc/self/fd") if n != str(max(map(int, os.listdir("/proc/self/fd"))))),
        "first": sys.path[0], "said": sys.stdin.read()}
print(json.dumps(told))
print("an error", file=sys.stderr)
"""
ENDS = {
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

HERE = {**os.environ, "PYTHONPATH": str(ROOT)}
WAITS = """
import os, pathlib, signal
pathlib.Path(os.environ["HANDOFF_READY_FILE"]).touch()
print(os.getppid(), flush=True)
signal.pause()
"""

Process = subprocess.Popen[bytes] | ForkedProcess
Start = Callable[..., Process]


@pytest.fixture(scope="module")
def nursery() -> Iterator[ForkServer]:
    with ForkServer(["json", "tempfile"], HERE) as running:
        yield running


@pytest.fixture(params=["forked", "of its own"])
def start(request: pytest.FixtureRequest, nursery: ForkServer, tmp_path: Path) -> Start:
    """Run the module `told` with these arguments in its folder. Its output goes to files."""

    def forked(
        code: str, *arguments: str, options: tuple[str, ...] = (), stdin: str = "", **more: str
    ) -> Process:
        (tmp_path / "told.py").write_text(code)
        (tmp_path / "in").write_text(stdin)
        command, environment = (
            [sys.executable, *options, "-m", "told", *arguments],
            {**_of_the_interpreter(), **more},
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
                    preexec_fn=_hears,  # noqa: PLW1509 (it only sets a signal)
                )
            assert nursery.can_fork(command, environment)
            streams = {"errors": err.fileno(), "stdin": given.fileno()}
            return nursery.fork(
                command, environment, out.fileno(), **streams, folder=tmp_path, leads_session=True
            )

    return forked


def _hears() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _of_the_interpreter() -> dict[str, str]:
    return {
        name: value
        for name, value in HERE.items()
        if name.startswith(("PYTHON", "LANG", "LC_", "TERM", "PATH"))
    }


def test_a_forked_process_has_separate_arguments_environment_folder_and_streams(
    start: Start, tmp_path: Path
) -> None:
    process = start(TELLS, "-A", "an app", stdin="come in", HANDOFF_OWN="1")

    assert process.wait(20) == 0
    told = json.loads((tmp_path / "out").read_text())
    assert (tmp_path / "err").read_text() == "an error\n"
    assert told["argv"] == [str(tmp_path / "told.py"), "-A", "an app"]
    assert (told["name"], told["main"], told["file"]) == (
        "__main__",
        "__main__",
        str(tmp_path / "told.py"),
    )
    assert told["folder"] == told["first"] == str(tmp_path)
    assert {**told["environment"], "LC_CTYPE": ""} == {
        **_of_the_interpreter(),
        "HANDOFF_OWN": "1",
        "LC_CTYPE": "",
    }
    assert told["leads"]
    assert told["threads"] == 1
    assert all(told["hears"])
    assert told["open"] == [0, 1, 2]
    assert told["said"] == "come in"


def test_a_forked_python_obeys_the_safe_path_option(start: Start, tmp_path: Path) -> None:
    assert start("", options=("-P",)).wait(20) == 1
    assert "No module named" in (tmp_path / "err").read_text()


@pytest.mark.parametrize("how", ENDS)
def test_its_exit_code_says_how_it_ended(start: Start, how: str) -> None:
    code, exit_code = ENDS[how]

    assert start(code).wait(20) == exit_code


def test_a_forked_process_can_be_stopped_and_killed(start: Start) -> None:
    process = start("import signal; signal.pause()")
    pid = process.begun() if isinstance(process, ForkedProcess) else process.pid

    os.kill(pid, signal.SIGSTOP)
    stat = Path(f"/proc/{pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", what="the stop")
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
    with ForkServer([], HERE) as nursery, (tmp_path / "out").open("wb") as out:
        process = nursery.fork(command, HERE, out.fileno())
        pid = process.begun()

    assert process.wait(20) == -signal.SIGKILL
    wait_until(lambda: is_gone(pid), what="the end of the child")


def test_an_orphaned_child_is_killed(nursery: ForkServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "0"]
    with (tmp_path / "out").open("wb") as out:
        process = nursery.fork(command, HERE, out.fileno())
    pid = process.begun()

    del process

    wait_until(lambda: is_gone(pid), what="the end of the child")


def test_a_child_that_is_cancelled_before_its_begin_never_begins(tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text("import pathlib, time\npathlib.Path('begun').touch()")
    with (
        ForkServer(["handoff_queue.supervisor.assembly"], HERE) as nursery,
        (tmp_path / "out").open("wb") as out,
    ):
        process = nursery.fork([sys.executable, "-m", "told"], HERE, out.fileno(), folder=tmp_path)
        process.send_signal(signal.SIGTERM)
        behind = nursery.fork(
            [sys.executable, "-m", "json.tool", os.devnull], HERE, out.fileno(), folder=tmp_path
        )

        assert process.wait(20) == -signal.SIGKILL
        assert behind.wait(20) == 1, "what was ordered first would have begun before it"
        assert process.pid is None
        assert not (tmp_path / "begun").exists()
        with pytest.raises(ChildProcessError):
            process.begun()


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
    nursery: ForkServer, command: list[str], more: dict[str, str]
) -> None:
    assert not nursery.can_fork(command, {**HERE, **more})


def test_an_unknown_module_is_refused(nursery: ForkServer) -> None:
    with pytest.raises(ValueError, match="not `python -m MODULE`"):
        nursery.fork(["redis-server"], {}, 1)


def test_processes_fork_where_possible_and_restart_the_fork_server(
    tmp_path: Path, nursery: ForkServer
) -> None:
    (tmp_path / "told.py").write_text(WAITS)
    here = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    with ForkServer([], {**os.environ, **here}) as own, Processes(tmp_path, own) as processes:
        processes.start(ChildSpec("one", [sys.executable, "-m", "told"], here))
        processes.wait_until_ready()
        first = processes.pids()["one"]
        os.kill(first, signal.SIGKILL)
        (second,) = wait_until(
            lambda: {*processes.pids().values()} - {first}, what="another process"
        )
        processes.wait_until_ready()

        assert processes.ever() == {first: "one", second: "one"}
        assert {int(line) for line in processes.log_of("one").read_text().split()} == {own.pid}
    assert is_gone(first)
    assert is_gone(second)


def test_without_a_fork_server_processes_start_cold(tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text(WAITS)
    here = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    with ForkServer([], {**os.environ, **here}) as own, Processes(tmp_path, own) as processes:
        processes.start(ChildSpec("one", [sys.executable, "-m", "told"], here))
        processes.wait_until_ready()
        os.kill(own.pid, signal.SIGKILL)
        wait_until(
            lambda: len(processes.log_of("one").read_text().split()) == 2, what="another process"
        )

        assert processes.log_of("one").read_text().split() == [str(own.pid), str(os.getpid())]


def test_a_child_that_says_it_is_hopeless_is_not_started_again(processes: Processes) -> None:
    processes.start(
        ChildSpec(
            "bad", [sys.executable, "-c", "print('so it is'); raise SystemExit(2)"], hopeless=2
        )
    )

    wait_until(processes.broken, what="the end of it")
    assert processes.broken() == {"bad": "so it is"}
