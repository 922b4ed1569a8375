"""Settings out of the environment: lists of folders, and complaints that name the variable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shared.config import load_settings
from shared.wire.errors import UserError


def test_folders_are_separated_as_in_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDOFF_TOOLS_DIRS", os.pathsep.join(["/srv/tools", "mine"]))
    assert load_settings().tools_dirs == (Path("/srv/tools"), Path("mine"))


def test_a_json_list_of_folders_is_understood_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDOFF_SPECIALISTS_DIRS", '["/srv/with:colon"]')
    assert load_settings().specialists_dirs == (Path("/srv/with:colon"),)


def test_a_wrong_setting_is_named_by_its_variable_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDOFF_LEASE_S", "canary")
    with pytest.raises(UserError, match="HANDOFF_LEASE_S") as raised:
        load_settings()
    assert "canary" not in str(raised.value)


def test_a_list_that_is_no_json_is_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDOFF_TOOLS_DIRS", "[/srv/tools")
    with pytest.raises(UserError, match="HANDOFF_TOOLS_DIRS"):
        load_settings()
