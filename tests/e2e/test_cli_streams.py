"""Commands work with a closed or full output, a closed terminal, and another encoding."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.commands import DOCUMENTS, REQUEST, Handoff
from tests.e2e.test_approvals import read_until
from tests.running_system import RunningSystem
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


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
def test_a_closed_output_pipe_is_no_error(
    handoff: Handoff, system: RunningSystem, job_id: str, command: str, unread: int
) -> None:
    """`handoff show JOB | head -1` exits with 0, because 1 means that the job has failed."""
    arguments = handoff.command(*command.replace("JOB", job_id).split())
    environment = handoff.environment(HANDOFF_REDIS_URL=system.redis_url)
    completed = subprocess.run(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=unread,
        stderr=unread,
        env=environment,
        check=False,
    )

    assert completed.returncode == 0


def test_a_run_with_a_closed_stderr_reaches_its_answer(handoff: Handoff, unread: int) -> None:
    arguments = handoff.command("run", REQUEST, "--docs", str(DOCUMENTS))
    completed = subprocess.run(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=unread,
        env=handoff.environment(),
        check=False,
    )

    assert completed.returncode == 0
    assert "Qdrant" in completed.stdout.decode()


FULL_DISK = "/dev/full"
"""File whose writes fail with ENOSPC, as on a full disk."""


def run_in_shell(
    handoff: Handoff, redirections: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirections}', "sh", *handoff.command(*arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=handoff.environment(**environment),
        check=False,
    )


@pytest.mark.parametrize("redirection", [f"2>{FULL_DISK}", "2>&-"])
def test_a_run_prints_its_answer_although_its_progress_cannot_be_written(
    handoff: Handoff, redirection: str
) -> None:
    completed = run_in_shell(handoff, redirection, "run", REQUEST, "--docs", str(DOCUMENTS))

    assert completed.returncode == 0
    assert "Qdrant" in completed.stdout


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_run_with_an_unwritable_answer_is_kept(
    handoff: Handoff, options: tuple[str, ...]
) -> None:
    completed = run_in_shell(
        handoff, f">{FULL_DISK}", "run", REQUEST, "--docs", str(DOCUMENTS), *options
    )
    line = completed.stderr.splitlines()[-1]
    (saved_run,) = (handoff.folder / "cache" / "interrupted").iterdir()

    assert completed.returncode == 1
    assert line.startswith("handoff: cannot write to standard output: No space left on device")
    assert f"`handoff retry {saved_run.name}`" in line

    resumed = run_in_shell(handoff, f"2>{FULL_DISK}", "retry", saved_run.name, *options)

    assert resumed.returncode == 0
    assert "Qdrant" in resumed.stdout


def test_a_run_on_a_broker_says_how_to_get_an_answer_that_cannot_be_written(
    handoff: Handoff, system: RunningSystem
) -> None:
    completed = run_in_shell(
        handoff,
        f">{FULL_DISK}",
        *("run", REQUEST, "--docs", str(DOCUMENTS)),
        HANDOFF_REDIS_URL=system.redis_url,
    )

    assert completed.returncode == 1
    assert "Nothing is lost: `handoff watch j-" in completed.stderr.splitlines()[-1]


@pytest.mark.parametrize("is_full", [True, False])
def test_a_file_of_jobs_is_enqueued_completely_even_if_no_id_can_be_written(
    handoff: Handoff, system: RunningSystem, unread: int, is_full: bool
) -> None:
    jobs = handoff.folder / "jobs.jsonl"
    requests = [f"job {number} of a file, full disk: {is_full}" for number in range(3)]
    jobs.write_text("".join(json.dumps({"request": request}) + "\n" for request in requests))
    redirection = f">{FULL_DISK}" if is_full else f">&{unread}"
    command = handoff.command("submit", "--file", str(jobs))
    completed = subprocess.run(
        ["bash", "-c", f'exec "$@" {redirection}', "sh", *command],
        pass_fds=[unread],
        capture_output=True,
        text=True,
        env=handoff.environment(HANDOFF_REDIS_URL=system.redis_url),
        check=False,
    )
    listed = handoff.run("list", "--json", HANDOFF_REDIS_URL=system.redis_url).stdout

    assert completed.returncode == (1 if is_full else 0)
    assert ("all 3 jobs are enqueued" in completed.stderr) == is_full
    assert set(requests) <= {job["title"] for job in json.loads(listed)}


@pytest.mark.parametrize("redirections", [">&- 2>&-", f">{FULL_DISK} 2>{FULL_DISK}"])
def test_a_worker_serves_jobs_although_its_log_cannot_be_written(
    handoff: Handoff, system: RunningSystem, redirections: str
) -> None:
    environment = handoff.environment(HANDOFF_REDIS_URL=system.redis_url)
    store = system.jobs().store
    before = len(store.presence.announcements())
    worker = subprocess.Popen(
        ["sh", "-c", f'exec "$@" {redirections}', "sh", *handoff.command("worker", "researcher")],
        stdin=subprocess.DEVNULL,
        env=environment,
    )
    try:
        wait_until(
            lambda: len(store.presence.announcements()) > before,
            expected="an announcement of the worker",
        )
        assert worker.poll() is None
    finally:
        worker.terminate()
        assert worker.wait(60) == 0


def test_a_run_with_a_closed_terminal_is_kept(handoff: Handoff) -> None:
    test_end, command_end = os.openpty()
    command = [
        "setsid",
        "--ctty",
        "env",
        "--default-signal=HUP",
        *handoff.command("run", REQUEST, "--docs", str(DOCUMENTS)),
    ]
    process = subprocess.Popen(
        command,
        stdin=command_end,
        stdout=command_end,
        stderr=command_end,
        env=handoff.environment(TERM="xterm"),
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


@pytest.mark.parametrize(
    "command", [("top",), ("specialists",), ("run", REQUEST, "--docs", str(DOCUMENTS))]
)
def test_a_closed_input_counts_as_empty(
    handoff: Handoff, system: RunningSystem, command: tuple[str, ...]
) -> None:
    closing = ["sh", "-c", 'exec "$@" <&-', "sh", *handoff.command(*command)]
    environment = handoff.environment(HANDOFF_REDIS_URL=system.redis_url)
    completed = subprocess.run(
        closing, capture_output=True, text=True, env=environment, check=False
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


def test_an_export_is_utf_8_and_a_hyphen_is_stdout(handoff: Handoff, system: RunningSystem) -> None:
    submitted = handoff.run(
        "submit", "Vergleiche die Größen", HANDOFF_REDIS_URL=system.redis_url
    ).stdout.strip()
    environment = handoff.environment(
        HANDOFF_REDIS_URL=system.redis_url, LC_ALL="POSIX", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    completed = subprocess.run(
        handoff.command("export", submitted, "-o", "-"),
        capture_output=True,
        env=environment,
        cwd=handoff.folder,
        check=True,
    )

    assert "Größen" in completed.stdout.decode()
    assert not (handoff.folder / "-").exists()
