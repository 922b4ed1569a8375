"""The private Redis keeps its port and password. Only the owner can read the password."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from handoff_queue.shared.local.redis_server import (
    RedisAccess,
    read_access,
    reuse_access,
    write_access,
)
from handoff_queue.shared.settings.ports import is_free


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "redis-access.json"


def test_stored_access_data_is_read_again_and_no_other_user_can_read_it(file: Path) -> None:
    access = reuse_access(None)

    write_access(file, access)

    assert read_access(file) == access
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_an_existing_file_is_replaced_together_with_its_mode(file: Path) -> None:
    file.write_text("of somebody")
    file.chmod(0o644)

    write_access(file, reuse_access(None))

    assert file.stat().st_mode & 0o777 == 0o600


def test_a_password_that_others_could_read_is_not_used_again(file: Path) -> None:
    write_access(file, reuse_access(None))
    file.chmod(0o640)

    assert read_access(file) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"port": 0, "password": "abcdefghijklmnopqrst"}',
        '{"port": 6379, "password": "x\\nrequirepass easy-to-guess"}',
    ],
)
def test_an_unreadable_file_counts_as_missing(file: Path, text: str) -> None:
    file.touch(mode=0o600)
    file.write_text(text)

    assert read_access(file) is None


def test_without_a_file_there_is_no_access(file: Path) -> None:
    assert read_access(file) is None


def test_a_port_in_use_is_replaced_and_the_password_stays() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        earlier = RedisAccess(port=other.getsockname()[1], password="a-password-of-some-length")

        now = reuse_access(earlier)

        assert not is_free(earlier.port)
    assert now.port != earlier.port
    assert now.password == earlier.password


def test_a_password_never_appears_in_output() -> None:
    access = reuse_access(None)

    assert access.password not in repr(access)
