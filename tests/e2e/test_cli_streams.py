"""Commands whose output nobody reads on, or nobody hears, and whose terminal has gone or speaks another language."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.commands import DOCUMENTS, REQUEST, Handoff
from tests.e2e.test_approvals import read_until
from tests.running_system import RunningSystem

pytestmark = pytest.mark.slow


@pytest.fixture
def unread() -> Iterator[int]:
    """A pipe to write to that nobody reads."""
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
def test_a_pipe_that_nobody_reads_is_no_error(
    handoff: Handoff, system: RunningSystem, job_id: str, command: str, unread: int
) -> None:
    """`handoff show JOB | head -1`; of 1 a script would think that the job has failed."""
    typed = handoff.command(*command.replace("JOB", job_id).split())
    environment = handoff.environment(HANDOFF_REDIS_URL=system.redis_url)
    done = subprocess.run(
        typed, stdin=subprocess.DEVNULL, stdout=unread, stderr=unread, env=environment, check=False
    )

    assert done.returncode == 0


def test_a_run_whose_account_nobody_hears_goes_on_to_its_answer(
    handoff: Handoff, unread: int
) -> None:
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


def test_a_run_whose_terminal_is_closed_is_kept(handoff: Handoff) -> None:
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
def test_an_input_that_is_closed_is_one_that_says_nothing(
    handoff: Handoff, system: RunningSystem, command: tuple[str, ...]
) -> None:
    closing = ["sh", "-c", 'exec "$@" <&-', "sh", *handoff.command(*command)]
    environment = handoff.environment(HANDOFF_REDIS_URL=system.redis_url)
    done = subprocess.run(closing, capture_output=True, text=True, env=environment, check=False)

    assert (done.returncode, "defect" in done.stderr) == (0, False), done.stderr


def test_a_page_is_utf_8_whatever_the_terminal_is(handoff: Handoff, system: RunningSystem) -> None:
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
