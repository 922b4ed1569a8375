"""A user id without an entry in /etc/passwd and without HOME, as OpenShift runs containers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.e2e.commands import DOCUMENTS, REQUEST, ROOT, Handoff, said

pytestmark = pytest.mark.slow

NO_ENTRY = """
import getpass, pwd

def no_entry(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")

pwd.getpwuid = no_entry
"""
"""Every Python process with this as `sitecustomize` has a user without an entry. Works without
the right to change the user id.
"""


@pytest.fixture
def handoff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Handoff:
    for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "sitecustomize.py").write_text(NO_ENTRY)
    return Handoff(tmp_path, is_cold=True)


def path_of(handoff: Handoff) -> str:
    return os.pathsep.join((str(handoff.folder), str(ROOT)))


def test_the_main_job_runs_for_a_user_without_a_home_folder(handoff: Handoff) -> None:
    done = handoff.run(
        *("run", REQUEST, "--docs", str(DOCUMENTS), "--json"),
        timeout_s=120,
        PYTHONPATH=path_of(handoff),
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "ok"


@pytest.mark.parametrize("command", [["run", REQUEST], ["worker", "--all"], ["up"]])
def test_without_a_cache_folder_the_last_line_names_the_setting(
    handoff: Handoff, redis_url: str, command: list[str]
) -> None:
    url = redis_url if command[0] == "worker" else ""

    done = handoff.run(
        *command, PYTHONPATH=path_of(handoff), HANDOFF_CACHE_DIR="", HANDOFF_REDIS_URL=url
    )

    assert done.returncode == 2, done.stderr
    assert "HANDOFF_CACHE_DIR" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HANDOFF_TOOLS_DIRS", "~/tools"),
        ("HANDOFF_SPECIALISTS_DIRS", "/srv/x:~nobody-of-this-name/x"),
    ],
)
def test_a_folder_that_needs_a_home_is_refused_in_a_line(
    handoff: Handoff, name: str, value: str
) -> None:
    done = handoff.run("run", REQUEST, PYTHONPATH=path_of(handoff), **{name: value})  # type: ignore[arg-type]

    assert name in said(done, 2)
