"""Plain `celery` with a setting that is wrong: the same one line as from our own commands, without the setting's value."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.e2e.commands import BAD_INPUT, said

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("app", "command"),
    [("workers.app", "worker"), ("supervisor.app", "worker"), ("supervisor.app", "flower")],
)
def test_a_wrong_url_is_one_line_without_its_password(app: str, command: str) -> None:
    wrong = {**os.environ, "HANDOFF_REDIS_URL": "redis://:can#ary@localhost:6379/0"}
    ended = subprocess.run(
        [sys.executable, "-m", "celery", "-A", app, command],
        env=wrong,
        capture_output=True,
        text=True,
        check=False,
    )

    line = said(ended, BAD_INPUT)

    assert "HANDOFF_REDIS_URL" in line
    assert "can#ary" not in line
