"""The list of commands is quick, and says of each what it says of itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.cli.commands import ENTRIES, loaded

ROOT = Path(__file__).parents[3]
HEAVY = ("pydantic", "redis", "celery", "kombu", "yaml", "shared.config", "shared.wire.events")
LOADED = f"""
import sys
from supervisor.cli.main import app
try:
    app(["--help"])
except SystemExit:
    pass
print(*sorted(set({HEAVY}) & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("name", ENTRIES)
def test_a_line_of_the_list_is_the_first_of_the_commands_own_help(name: str) -> None:
    first, _, _ = loaded(name).help.partition("\n\n")

    assert ENTRIES[name].line == " ".join(first.split())


def test_the_list_is_shown_without_the_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert all(f" {name} " in done.stdout for name in ENTRIES)
    assert done.stderr.strip() == "", "what was imported although nobody has typed a command"
