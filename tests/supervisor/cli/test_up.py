"""`handoff up` has a console unless a package is not installed, and its home folder is private."""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from handoff_queue.shared.settings import optional_packages
from handoff_queue.shared.settings.ports import find_free_port
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.cli import up
from handoff_queue.supervisor.cli.display.file_errors import describe_file_problem
from handoff_queue.supervisor.cli.supervisor_and_worker import check_folders


def test_the_console_has_its_usual_port_if_the_port_is_free(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = find_free_port()
    monkeypatch.setattr(up, "DEFAULT_PORT", usual)

    assert up.get_default_console_port() == usual
    assert capsys.readouterr().err == ""


def test_the_system_starts_without_a_console_if_a_package_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(optional_packages, "PACKAGES", {"serve": ("no_such_package",)})

    assert up.get_default_console_port() is None
    (line,) = capsys.readouterr().err.splitlines()
    assert "the console needs the package no_such_package" in line
    assert "handoff up --no-serve" in line


def test_git_ignores_the_home_folder_with_its_keys(tmp_path: Path) -> None:
    with ExitStack() as parts:
        folder = up.take_home_folder(tmp_path / "home", parts)

    assert (folder / ".gitignore").read_text() == "*\n"


def test_the_error_of_a_full_disk_names_the_home_folder(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as failed, up.name_folder_in_error(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    line = describe_file_problem(failed.value)
    assert line.startswith(f"{tmp_path}: No space left on device: free space")


def test_a_working_directory_that_was_deleted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "deleted"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    with pytest.raises(UserError, match="working directory does not exist any more"):
        check_folders(Settings(cache_dir=tmp_path))
