"""Each command `python -m MODULE` of the documents names a module and options that exist."""

from __future__ import annotations

import argparse
import re
import runpy
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, spans

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.rglob("*.md")),
    *sorted(
        path for name in ("benchmarks", "chaos", "tests") for path in (ROOT / name).rglob("*.md")
    ),
]
COMMAND = re.compile(r"\bpython3? -m (.+)")


class Parsed(Exception):
    """The program has parsed its arguments."""


def python_commands() -> list[str]:
    commands = {
        match[1]
        for page in PAGES
        for span in spans(page.read_text())
        for match in COMMAND.finditer(span)
    }
    return sorted(commands)


def file_of(module: str) -> Path:
    """Return the file that `python -m` runs.

    Raises:
        LookupError: there is none.
    """
    for name in (f"{module}.__main__", module):
        try:
            spec = find_spec(name)
        except ModuleNotFoundError:
            continue
        if spec and spec.origin and not spec.origin.endswith("__init__.py"):
            return Path(spec.origin)
    raise LookupError(f"there is no program {module}")


def check_command(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse the arguments of a command as its program does, and do not run the program.

    Raises:
        LookupError: there is no such program.
        SystemExit: an argument is wrong.
    """
    module, *arguments = shlex.split(command)
    path = file_of(module)
    if "ArgumentParser(" not in path.read_text():
        assert arguments == [], f"{module} takes no options"
        return
    parse = argparse.ArgumentParser.parse_args

    def parse_and_stop(self: argparse.ArgumentParser, given: list[str] | None = None) -> None:
        parse(self, given)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    monkeypatch.setattr(sys, "argv", [module, *arguments])
    with pytest.raises(Parsed):
        runpy.run_path(str(path), run_name="__main__")


@pytest.mark.slow
@pytest.mark.parametrize("command", python_commands())
def test_a_python_command_names_a_module_and_options_that_exist(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_command(command, monkeypatch)


def test_a_module_that_does_not_exist_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LookupError):
        check_command("benchmarks.absent", monkeypatch)


def test_an_option_that_does_not_exist_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit):
        check_command("benchmarks.memory --absent", monkeypatch)
