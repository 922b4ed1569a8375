"""`handoff up` keeps the password of Flower in its home folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.cli.flower import build_flower_command, load_flower_password


def test_a_home_folder_keeps_its_flower_password(tmp_path: Path) -> None:
    assert load_flower_password(tmp_path) == load_flower_password(tmp_path)


def test_two_home_folders_have_different_flower_passwords(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()

    assert load_flower_password(first) != load_flower_password(second)


def test_only_its_owner_can_read_the_password_file(tmp_path: Path) -> None:
    load_flower_password(tmp_path)

    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_password_that_other_users_could_read_is_replaced(tmp_path: Path) -> None:
    exposed = load_flower_password(tmp_path)
    (file,) = tmp_path.iterdir()
    file.chmod(0o644)

    assert load_flower_password(tmp_path) != exposed
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "short", "a password:with a colon", "line\nbreak-of-a-file"])
def test_a_malformed_password_is_replaced(tmp_path: Path, text: str) -> None:
    load_flower_password(tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text(text)

    assert load_flower_password(tmp_path) not in ("", text)
    assert file.read_text() == load_flower_password(tmp_path)


def test_the_command_line_of_flower_holds_no_password(tmp_path: Path) -> None:
    password = load_flower_password(tmp_path)

    assert password not in " ".join(build_flower_command(tmp_path, 5555))


def test_a_password_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "flower-password").mkdir()

    with pytest.raises(UserError, match="flower-password cannot be written"):
        load_flower_password(tmp_path)
