"""`handoff up` has a console unless a package is not installed."""

from __future__ import annotations

import pytest

from handoff_queue.shared.settings import optional_packages
from handoff_queue.shared.settings.ports import free_port
from handoff_queue.supervisor.cli import up


def test_the_console_has_its_usual_port_if_the_port_is_free(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = free_port()
    monkeypatch.setattr(up, "DEFAULT_PORT", usual)

    assert up.default_console_port() == usual
    assert capsys.readouterr().err == ""


def test_the_system_starts_without_a_console_if_a_package_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(optional_packages, "PACKAGES", {"serve": ("no_such_package",)})

    assert up.default_console_port() is None
    (line,) = capsys.readouterr().err.splitlines()
    assert "the console needs the package no_such_package" in line
    assert "handoff up --no-serve" in line
