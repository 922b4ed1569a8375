"""Commands work for a user id without an entry in /etc/passwd and without HOME, as in OpenShift.

`tests/package/test_beside_other_packages.py` runs a job for such a user.
"""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from tests.e2e.commands import REQUEST, ROOT, Handoff, HandoffInProcess, error_line
from tests.forked_processes import run_cold
from tests.waiting import MAX_WAIT_S

NO_ENTRY = """
import getpass, pwd

def no_entry(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")

pwd.getpwuid = no_entry
"""
"""Module `sitecustomize` that makes the user's entry unknown to a Python process. It needs no right
to change the user id.
"""


@pytest.fixture
def no_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cold_handoff(no_home_folder: None, tmp_path: Path) -> Handoff:
    (tmp_path / "sitecustomize.py").write_text(NO_ENTRY)
    return Handoff(tmp_path, is_cold=True)


@pytest.fixture
def handoff(
    no_home_folder: None,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Handoff:
    def no_entry(uid: int) -> NoReturn:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    return HandoffInProcess(tmp_path, capture=capfd)


def path_of(handoff: Handoff) -> str:
    return os.pathsep.join((str(handoff.folder), str(ROOT)))


@pytest.mark.parametrize("command", [["run", REQUEST], ["up"]])
def test_a_command_that_starts_workers_names_the_setting_of_a_missing_cache_folder(
    handoff: Handoff, command: list[str]
) -> None:
    completed = handoff.run(*command, HANDOFF_CACHE_DIR="")

    assert "HANDOFF_CACHE_DIR" in error_line(completed, 2)


@pytest.mark.parametrize("command", [["run", REQUEST], ["up"], ["worker", "researcher"]])
def test_a_command_that_starts_workers_names_a_cache_folder_that_it_cannot_write(
    handoff: Handoff, command: list[str]
) -> None:
    (handoff.folder / "file").touch()
    cache = str(handoff.folder / "file" / "cache")

    line = error_line(handoff.run(*command, HANDOFF_CACHE_DIR=cache), 2)

    assert f"HANDOFF_CACHE_DIR: {cache} cannot be written (Not a directory)" in line


@pytest.mark.slow
def test_the_last_line_of_a_worker_without_a_cache_folder_names_the_setting(
    cold_handoff: Handoff, redis_url: str
) -> None:
    """`handoff worker` becomes this process."""
    environment = cold_handoff.environment(
        PYTHONPATH=path_of(cold_handoff), HANDOFF_CACHE_DIR="", HANDOFF_REDIS_URL=redis_url
    )
    worker = [sys.executable, "-m", "celery", "-A", "handoff_queue.workers.app", "worker"]
    completed = run_cold(worker, environment, cold_handoff.folder, "", MAX_WAIT_S)

    assert completed.returncode == 2, completed.stderr
    assert "HANDOFF_CACHE_DIR" in completed.stderr.splitlines()[-1]
    assert "Traceback" not in completed.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HANDOFF_TOOLS_DIRS", "~/tools"),
        ("HANDOFF_SPECIALISTS_DIRS", "/srv/x:~nobody-of-this-name/x"),
    ],
)
def test_a_setting_with_a_home_folder_is_refused_in_one_line(
    handoff: Handoff, name: str, value: str
) -> None:
    completed = handoff.run("run", REQUEST, **{name: value})  # type: ignore[arg-type]

    assert name in error_line(completed, 2)
