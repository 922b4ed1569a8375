"""Every `make` command of the docs names a target of the Makefile, with variables that it reads."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections import defaultdict

import pytest

from tests.docs.pages import DOCS, ROOT, spans

PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("*/RESULTS.md")]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def make_commands() -> dict[str, set[str]]:
    """Return the `make` commands of all pages, each with the names of its pages."""
    commands = defaultdict[str, set[str]](set)
    for page in PAGES:
        for span in spans(page.read_text()):
            if re.match(r"make(?: |$)", span):
                commands[span].add(str(page.relative_to(ROOT)))
    return commands


COMMANDS = make_commands()


def planned(*words: str) -> subprocess.CompletedProcess[str]:
    """Return the end of `make -n`, which prints the commands of a target and runs none."""
    command = ["make", "--dry-run", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_docs_name_the_targets_for_developers() -> None:
    named = {word for command in COMMANDS for word in command.split()[1:]}

    assert {"run", "check", "test", "docs", "bench", "chaos"} <= named


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_make_command_of_the_docs_has_an_existing_target(command: str) -> None:
    words = shlex.split(command)[1:]
    variables = {word.partition("=")[0] for word in words if "=" in word}
    targets = [word for word in words if "=" not in word]

    assert set(targets) <= TARGETS, COMMANDS[command]
    assert all(re.search(rf"\$\((?:value )?{name}\)", MAKEFILE) for name in variables)
    done = planned(*words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_a_target_that_does_not_exist_is_seen() -> None:
    assert planned("everything").returncode != 0
