"""Each extra installs its packages, and the error for a missing package names the extra."""

from __future__ import annotations

import re
import sys
import tomllib
from functools import cache
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from handoff_queue.shared.settings.optional_packages import PACKAGES, check_extra
from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.cli.commands import STARTS_PROCESSES, load_command
from handoff_queue.supervisor.cli.errors import BAD_INPUT, run_guarded
from tests.refusals import refusal_of

ROOT = Path(__file__).parents[3]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OWN = "handoff-queue"


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=]", requirement)[0] for requirement in requirements}


distributions = cache(packages_distributions)


def declared_in(extra: str) -> set[str]:
    """Return the distributions of an extra and its included extras, without the base install."""
    requirements = DECLARED["optional-dependencies"][extra]
    names = names_of(requirements) - names_of(DECLARED["dependencies"]) - {OWN}
    for requirement in requirements:
        if requirement.startswith(f"{OWN}["):
            for included in requirement.removeprefix(f"{OWN}[").removesuffix("]").split(","):
                names |= declared_in(included)
    return names


@pytest.mark.slow
@pytest.mark.parametrize("extra", PACKAGES)
def test_an_extras_packages_match_pyproject(extra: str) -> None:
    assert {distributions()[name][0] for name in PACKAGES[extra]} == declared_in(extra)


def test_the_extra_all_has_every_other_extra_but_the_largest() -> None:
    others = set(DECLARED["optional-dependencies"]) - {"all", "agent-sdk"}

    assert declared_in("all") == set().union(*map(declared_in, others))


@pytest.fixture
def without_anthropic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let imports of `anthropic` fail as if the extra `worker` were not installed."""
    monkeypatch.setitem(sys.modules, "anthropic", None)
    load_command.cache_clear()


@pytest.mark.usefixtures("without_anthropic")
@pytest.mark.parametrize("command", sorted(STARTS_PROCESSES))
def test_a_command_that_starts_processes_names_the_package_that_they_lack(
    command: str,
) -> None:
    with pytest.raises(UserError) as refused:
        load_command(command)

    line = f"handoff {command} needs the package anthropic: install the extra all of handoff-queue"
    assert str(refused.value) == line


@pytest.mark.usefixtures("without_anthropic")
def test_a_command_without_processes_needs_no_package_of_a_worker() -> None:
    assert load_command("list").name == "list"


@pytest.mark.usefixtures("without_anthropic")
def test_a_package_that_a_command_lacks_later_is_named_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_guarded(lambda: import_module("anthropic"))

    line = "this command needs the package anthropic: install the extra all of handoff-queue"
    assert (ended.value.code, capsys.readouterr().err) == (BAD_INPUT, f"handoff: {line}\n")


def test_an_extra_that_is_installed_is_not_a_problem() -> None:
    for extra in PACKAGES:
        assert refusal_of(check_extra, extra, "a test") is None
