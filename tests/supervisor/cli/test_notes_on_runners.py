"""`handoff specialists --lint` names a runner that is not installed on this machine."""

from __future__ import annotations

import pytest

from handoff_queue.shared.settings import optional_packages
from handoff_queue.shared.types.specialist import RunnerKind
from handoff_queue.supervisor.cli.specialists import notes_on_runners
from tests.doubles.handoffs import a_spec


def test_a_missing_runner_is_one_line_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = {"agent-sdk": ("no_such_package",)}
    monkeypatch.setattr(optional_packages, "PACKAGES", packages)
    spec = a_spec(name="looker").model_copy(update={"runner": RunnerKind.AGENT_SDK})

    assert list(notes_on_runners([a_spec(), spec])) == [
        "looker: runner: agent-sdk needs the package no_such_package: install"
        " handoff-queue[agent-sdk] on the machine of its worker"
    ]


def test_an_installed_runner_needs_no_line() -> None:
    spec = a_spec(name="looker").model_copy(update={"runner": RunnerKind.AGENT_SDK})

    assert not list(notes_on_runners([spec]))
