"""Commands with an output that is closed early, a terminal that has gone, or another encoding."""

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
    """A pipe that no process reads."""
    ours, theirs = os.pipe()
    os.close(ours)
    yield theirs
    os.close(theirs)


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
    """`handoff show JOB | head -1`: with exit code 1 a script would take the job for failed."""
    typed = handoff.command(*command.replace("JOB", job_id).split())
    environment = handoff.environment(HANDOFF_REDIS_URL=system.redis_url)
    done = subprocess.run(
        typed, stdin=subprocess.DEVNULL, stdout=unread, stderr=unread, env=environment, check=False
    )

    assert done.returncode == 0


def test_a_run_with_a_closed_stderr_reaches_its_answer(handoff: Handoff, unread: int) -> None:
    typed = handoff.command("run", REQUEST, "--docs", str(DOCUMENTS))
    done = subprocess.run(
        typed,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=unread,
        env=handoff.environment(),
        check=False,
    )

    assert done.returncode == 0
    assert "Qdrant" in done.stdout.decode()


FULL = "/dev/full"
"""Each write to it fails with ENOSPC, as on a full disk."""


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


@pytest.mark.parametrize("redirection", [f"2>{FULL}", "2>&-"])
def test_a_run_prints_its_answer_although_its_progress_cannot_be_written(
    handoff: Handoff, redirection: str
) -> None:
    done = run_in_shell(handoff, redirection, "run", REQUEST, "--docs", str(DOCUMENTS))

    assert done.returncode == 0
    assert "Qdrant" in done.stdout


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_run_with_an_unwritable_answer_is_kept(
    handoff: Handoff, options: tuple[str, ...]
) -> None:
    done = run_in_shell(handoff, f">{FULL}", "run", REQUEST, "--docs", str(DOCUMENTS), *options)
    line = done.stderr.splitlines()[-1]
    (kept,) = (handoff.folder / "cache" / "interrupted").iterdir()

    assert done.returncode == 1
    assert line.startswith("handoff: cannot write to standard output: No space left on device")
    assert f"`handoff retry {kept.name}`" in line

    resumed = run_in_shell(handoff, f"2>{FULL}", "retry", kept.name, *options)

    assert resumed.returncode == 0
    assert "Qdrant" in resumed.stdout


def test_a_run_on_a_broker_says_how_to_get_an_answer_that_cannot_be_written(
    handoff: Handoff, system: RunningSystem
) -> None:
    done = run_in_shell(
        handoff,
        f">{FULL}",
        *("run", REQUEST, "--docs", str(DOCUMENTS)),
        HANDOFF_REDIS_URL=system.redis_url,
    )

    assert done.returncode == 1
    assert "Nothing is lost: `handoff watch j-" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("is_full", [True, False])
def test_a_file_of_jobs_is_enqueued_completely_even_if_no_id_can_be_written(
    handoff: Handoff, system: RunningSystem, unread: int, is_full: bool
) -> None:
    jobs = handoff.folder / "jobs.jsonl"
    requests = [f"job {number} of a file, full disk: {is_full}" for number in range(3)]
    jobs.write_text("".join(json.dumps({"request": request}) + "\n" for request in requests))
    redirection = f">{FULL}" if is_full else f">&{unread}"
    command = handoff.command("submit", "--file", str(jobs))
    done = subprocess.run(
        ["bash", "-c", f'exec "$@" {redirection}', "sh", *command],
        pass_fds=[unread],
        capture_output=True,
        text=True,
        env=handoff.environment(HANDOFF_REDIS_URL=system.redis_url),
        check=False,
    )
    listed = handoff.run("list", "--json", HANDOFF_REDIS_URL=system.redis_url).stdout

    assert done.returncode == (1 if is_full else 0)
    assert ("all 3 jobs are enqueued" in done.stderr) == is_full
    assert set(requests) <= {job["title"] for job in json.loads(listed)}


@pytest.mark.parametrize("redirections", [">&- 2>&-", f">{FULL} 2>{FULL}"])
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
            what="an announcement of the worker",
        )
        assert worker.poll() is None
    finally:
        worker.terminate()
        assert worker.wait(60) == 0


def test_a_run_with_a_closed_terminal_is_kept(handoff: Handoff) -> None:
    ours, theirs = os.openpty()
    listens = [
        "setsid",
        "--ctty",
        "env",
        "--default-signal=HUP",
        *handoff.command("run", REQUEST, "--docs", str(DOCUMENTS)),
    ]
    process = subprocess.Popen(
        listens, stdin=theirs, stdout=theirs, stderr=theirs, env=handoff.environment(TERM="xterm")
    )
    os.close(theirs)
    try:
        read_until(ours, "planner")
        os.close(ours)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()
    assert [one.name for one in (handoff.folder / "cache").rglob("j-*")]


@pytest.mark.parametrize(
    "command", [("top",), ("specialists",), ("run", REQUEST, "--docs", str(DOCUMENTS))]
)
def test_a_closed_input_counts_as_empty(
    handoff: Handoff, system: RunningSystem, command: tuple[str, ...]
) -> None:
    closing = ["sh", "-c", 'exec "$@" <&-', "sh", *handoff.command(*command)]
    environment = handoff.environment(HANDOFF_REDIS_URL=system.redis_url)
    done = subprocess.run(closing, capture_output=True, text=True, env=environment, check=False)

    assert (done.returncode, "defect" in done.stderr) == (0, False), done.stderr


def test_a_page_is_utf_8_in_every_locale(handoff: Handoff, system: RunningSystem) -> None:
    submitted = handoff.run(
        "submit", "Vergleiche die Größen", HANDOFF_REDIS_URL=system.redis_url
    ).stdout.strip()
    environment = handoff.environment(
        HANDOFF_REDIS_URL=system.redis_url, LC_ALL="POSIX", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    done = subprocess.run(
        handoff.command("trace", submitted, "-o", "-"),
        capture_output=True,
        env=environment,
        check=True,
    )

    assert "Größen" in done.stdout.decode()


def test_an_export_is_utf_8_and_a_hyphen_is_stdout(handoff: Handoff, system: RunningSystem) -> None:
    submitted = handoff.run(
        "submit", "Vergleiche die Größen", HANDOFF_REDIS_URL=system.redis_url
    ).stdout.strip()
    environment = handoff.environment(
        HANDOFF_REDIS_URL=system.redis_url, LC_ALL="POSIX", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    done = subprocess.run(
        handoff.command("export", submitted, "-o", "-"),
        capture_output=True,
        env=environment,
        cwd=handoff.folder,
        check=True,
    )

    assert "Größen" in done.stdout.decode()
    assert not (handoff.folder / "-").exists()
