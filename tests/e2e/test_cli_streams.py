"""Commands work with a closed or full output, a closed terminal, and another encoding.

A command with another locale starts in a new interpreter.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from handoff_queue.shared.local.fork_server import ForkedProcess
from handoff_queue.supervisor.cli.celery_process import build_celery_command
from tests import forked_processes
from tests.e2e.commands import DOCUMENTS, REQUEST, Handoff
from tests.e2e.test_approvals import read_until
from tests.running_system import RunningSystem
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow

Process = subprocess.Popen[bytes] | ForkedProcess


@pytest.fixture
def unread() -> Iterator[int]:
    """Yield the write end of a pipe that no process reads."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    yield write_end
    os.close(write_end)


@pytest.mark.parametrize(
    "command",
    [
        "list",
        "show JOB",
        "result JOB",
        "watch JOB",
        "trace JOB -o -",
        "export JOB",
        "stats",
        "top",
        "stats --json",
        "specialists",
        "doctor",
    ],
)
def test_a_closed_output_pipe_is_not_an_error(
    handoff: Handoff, system: RunningSystem, job_id: str, command: str, unread: int
) -> None:
    """`handoff show JOB | head -1` exits with 0, because 1 means that the job has failed."""
    arguments = command.replace("JOB", job_id).split()

    assert get_exit_code(handoff, system, unread, unread, *arguments) == 0


def get_exit_code(
    handoff: Handoff, system: RunningSystem | None, output: int, errors: int, *arguments: str
) -> int:
    """Run a command on the system with these descriptors, and return its exit code.

    `system`: None for a private run.
    """
    url = {"HANDOFF_REDIS_URL": system.redis_url} if system else {}
    process = forked_processes.start(
        handoff.command(*arguments),
        handoff.environment(**url),
        handoff.folder,
        output,
        errors,
    )
    try:
        return process.wait(60)
    finally:
        process.kill()


FULL_DISK = "/dev/full"
"""File whose writes fail with ENOSPC, as on a full disk."""


@pytest.fixture
def full_disk() -> Iterator[int]:
    """Yield a descriptor of a file on a full disk."""
    with Path(FULL_DISK).open("wb", buffering=0) as file:
        yield file.fileno()


@pytest.mark.parametrize("stderr", ["unread", "full_disk"])
def test_a_run_prints_its_answer_although_its_progress_cannot_be_written(
    handoff: Handoff, system: RunningSystem, request: pytest.FixtureRequest, stderr: str
) -> None:
    arguments = ("run", REQUEST, "--docs", str(DOCUMENTS))
    with (handoff.folder / "out").open("wb") as output:
        errors = request.getfixturevalue(stderr)
        exit_code = get_exit_code(handoff, system, output.fileno(), errors, *arguments)

    assert exit_code == 0
    assert "Qdrant" in handoff.read("out")


def test_a_private_run_with_an_unwritable_answer_is_kept_and_continues_without_a_stderr(
    handoff: Handoff, full_disk: int
) -> None:
    arguments = ("run", REQUEST, "--docs", str(DOCUMENTS))
    with (handoff.folder / "err").open("wb") as errors:
        exit_code = get_exit_code(handoff, None, full_disk, errors.fileno(), *arguments)
    line = handoff.read("err").splitlines()[-1]
    (saved_run,) = (handoff.folder / "cache" / "interrupted").iterdir()

    assert exit_code == 1
    assert line.startswith("handoff: cannot write to standard output: No space left on device")
    assert f"`handoff retry {saved_run.name}`" in line

    resumed = forked_processes.run(
        without_streams("2", handoff.command("retry", saved_run.name)),
        handoff.environment(),
        handoff.folder,
        "",
        MAX_WAIT_S,
    )

    assert resumed.returncode == 0
    assert "Qdrant" in resumed.stdout


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_run_on_a_broker_says_how_to_get_an_answer_that_cannot_be_written(
    handoff: Handoff, system: RunningSystem, full_disk: int, options: tuple[str, ...]
) -> None:
    arguments = ("run", REQUEST, "--docs", str(DOCUMENTS), *options)
    with (handoff.folder / "err").open("wb") as errors:
        exit_code = get_exit_code(handoff, system, full_disk, errors.fileno(), *arguments)

    assert exit_code == 1
    assert "Nothing is lost: `handoff watch j-" in handoff.read("err").splitlines()[-1]


@pytest.mark.parametrize("is_full", [True, False])
def test_a_file_of_jobs_is_enqueued_completely_even_if_no_id_can_be_written(
    handoff: Handoff, system: RunningSystem, unread: int, full_disk: int, is_full: bool
) -> None:
    jobs = handoff.folder / "jobs.jsonl"
    requests = [f"job {number} of a file, full disk: {is_full}" for number in range(3)]
    jobs.write_text("".join(json.dumps({"request": request}) + "\n" for request in requests))
    output = full_disk if is_full else unread
    with (handoff.folder / "err").open("wb") as errors:
        exit_code = get_exit_code(
            handoff, system, output, errors.fileno(), "submit", "--file", str(jobs)
        )
    listed = handoff.run("list", "--json", HANDOFF_REDIS_URL=system.redis_url).stdout

    assert exit_code == (1 if is_full else 0)
    assert ("all 3 jobs are enqueued" in handoff.read("err")) == is_full
    assert set(requests) <= {job["title"] for job in json.loads(listed)}


def closed_streams_worker(handoff: Handoff, url: str, _full_disk: int) -> Process:
    """Start the command `handoff worker` without a stdout and a stderr."""
    with Path(os.devnull).open("wb") as unused:
        return forked_processes.start(
            without_streams("12", handoff.command("worker", "researcher")),
            handoff.environment(HANDOFF_REDIS_URL=url),
            handoff.folder,
            unused.fileno(),
            unused.fileno(),
        )


def without_streams(numbers: str, command: list[str]) -> list[str]:
    """Return the command `python -P -m MODULE ...`, changed so that it starts without streams."""
    return [*command[:3], "tests.without_streams", numbers, *command[3:]]


def full_disk_worker(handoff: Handoff, url: str, full_disk: int) -> Process:
    """Start the Celery process that `handoff worker` becomes, with its streams on a full disk."""
    return forked_processes.start(
        build_celery_command(
            "handoff_queue.workers.app", "worker", "-n", "full@%h", "-Q", "researcher"
        ),
        handoff.environment(HANDOFF_REDIS_URL=url),
        handoff.folder,
        full_disk,
        full_disk,
    )


@pytest.mark.parametrize("start_worker", [closed_streams_worker, full_disk_worker])
def test_a_worker_serves_jobs_although_its_log_cannot_be_written(
    handoff: Handoff,
    system: RunningSystem,
    full_disk: int,
    start_worker: Callable[[Handoff, str, int], Process],
) -> None:
    store = system.jobs().store
    before = len(store.presence.read_announcements())
    worker = start_worker(handoff, system.url_of("worker"), full_disk)
    try:
        wait_until(
            lambda: len(store.presence.read_announcements()) > before,
            expected="an announcement of the worker",
        )
        assert worker.poll() is None
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0


def test_a_run_with_a_closed_terminal_is_kept(handoff: Handoff) -> None:
    test_end, command_end = os.openpty()
    command = handoff.command("run", REQUEST, "--docs", str(DOCUMENTS))
    process = forked_processes.start(
        [*command[:3], "tests.on_a_controlling_terminal", *command[3:]],
        handoff.environment(TERM="xterm"),
        handoff.folder,
        command_end,
        command_end,
        command_end,
    )
    os.close(command_end)
    try:
        read_until(test_end, "planner")
        os.close(test_end)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()
    assert [path.name for path in (handoff.folder / "cache").rglob("j-*")]


@pytest.mark.parametrize("command", [("top",), ("run", REQUEST, "--docs", str(DOCUMENTS))])
def test_a_closed_input_counts_as_empty(
    handoff: Handoff, system: RunningSystem, command: tuple[str, ...]
) -> None:
    completed = forked_processes.run(
        without_streams("0", handoff.command(*command)),
        handoff.environment(HANDOFF_REDIS_URL=system.redis_url),
        handoff.folder,
        "",
        MAX_WAIT_S,
    )

    assert (completed.returncode, "defect" in completed.stderr) == (0, False), completed.stderr


def test_a_page_is_utf_8_in_every_locale(handoff: Handoff, system: RunningSystem) -> None:
    submitted = handoff.run(
        "submit", "Vergleiche die Größen", HANDOFF_REDIS_URL=system.redis_url
    ).stdout.strip()
    environment = handoff.environment(
        HANDOFF_REDIS_URL=system.redis_url, LC_ALL="POSIX", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    completed = subprocess.run(
        handoff.command("trace", submitted, "-o", "-"),
        capture_output=True,
        env=environment,
        check=True,
    )

    assert "Größen" in completed.stdout.decode()


def test_the_output_hyphen_of_an_export_is_stdout(handoff: Handoff, system: RunningSystem) -> None:
    url = system.redis_url
    submitted = handoff.run("submit", "Vergleiche die Größen", HANDOFF_REDIS_URL=url).stdout.strip()

    completed = handoff.run("export", submitted, "-o", "-", HANDOFF_REDIS_URL=url)

    assert "Größen" in completed.stdout
    assert not (handoff.folder / "-").exists()
