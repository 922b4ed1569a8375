"""A file with a password or a private key is refused if other users can read or replace it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handoff_queue.shared.observability.telemetry_factory import find_exporter_problems
from handoff_queue.shared.settings.file_permissions import read_private
from handoff_queue.shared.settings.settings import get_redis_url, load_settings
from handoff_queue.shared.store.redis.client_factory import create_client
from handoff_queue.shared.types.errors import UserError
from tests.doubles.tls_proxy import a_certificate

URL = "redis://client:canary@127.0.0.1:6379/0"
ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="the file must belong to root")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of HANDOFF_REDIS_URL_FILE, with mode 0600."""
    made = tmp_path / "redis-url"
    made.touch(0o600)
    made.write_text(URL + "\n")
    monkeypatch.delenv("HANDOFF_REDIS_URL", raising=False)
    monkeypatch.setenv("HANDOFF_REDIS_URL_FILE", str(made))
    return made


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_url_in_a_file_of_the_user_alone_is_used(file: Path, mode: int) -> None:
    file.chmod(mode)

    assert get_redis_url(load_settings()) == URL


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o602])
def test_a_url_in_a_file_that_other_users_can_read_or_write_is_refused(
    file: Path, mode: int
) -> None:
    file.chmod(mode)

    with pytest.raises(UserError) as refused:
        load_settings()

    assert str(refused.value) == (
        f"HANDOFF_REDIS_URL_FILE: other users can read the password in {file}: chmod 600 {file}"
    )


def test_a_file_that_is_not_text_is_named_with_a_remedy(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")

    with pytest.raises(UserError) as refused:
        load_settings()

    assert str(refused.value) == (
        f"HANDOFF_REDIS_URL_FILE: {file} is not UTF-8 text: write the Redis URL into it"
    )


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_url_in_a_folder_that_other_users_can_write_is_refused(file: Path, mode: int) -> None:
    file.parent.chmod(mode)

    with pytest.raises(UserError, match="HANDOFF_REDIS_URL_FILE: other users can write the folder"):
        load_settings()


def test_a_link_to_a_file_that_other_users_can_read_is_refused(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.chmod(0o644)
    (tmp_path / "link").symlink_to(file)
    monkeypatch.setenv("HANDOFF_REDIS_URL_FILE", str(tmp_path / "link"))

    with pytest.raises(UserError, match="other users can read the password in"):
        load_settings()


@ONLY_ROOT
def test_the_group_of_a_pod_may_read_a_file_of_root_that_is_a_link(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes mounts the file of a Secret as a link to a file of root with mode 0440."""
    (tmp_path / "..data").mkdir()
    mounted = file.rename(tmp_path / "..data" / "redis-url")
    mounted.chmod(0o440)
    file.symlink_to("..data/redis-url")
    tmp_path.chmod(0o1777)
    monkeypatch.setattr(os, "geteuid", lambda: 10_001)

    assert get_redis_url(load_settings()) == URL


@ONLY_ROOT
def test_the_group_may_not_read_the_file_of_another_user_than_root(file: Path) -> None:
    file.chmod(0o440)
    os.chown(file, 10_001, 10_001)

    with pytest.raises(UserError, match="other users can read the private key"):
        read_private(file)


def test_a_private_key_for_tls_to_redis_that_other_users_can_read_is_refused(
    tmp_path: Path,
) -> None:
    certificate, key = a_certificate(tmp_path, "redis")
    key.chmod(0o644)
    url = f"rediss://127.0.0.1:1/0?ssl_certfile={certificate}&ssl_keyfile={key}"

    with pytest.raises(UserError, match=f"other users can read the private key {key}"):
        create_client(url, 1.0, None)


def test_a_private_key_for_the_collector_that_other_users_can_read_is_refused(
    tmp_path: Path,
) -> None:
    _, key = a_certificate(tmp_path, "collector")
    variable = "OTEL_EXPORTER_OTLP_CLIENT_KEY"
    key.chmod(0o600)
    assert not list(find_exporter_problems({variable: str(key)}))
    key.chmod(0o640)

    (problem,) = find_exporter_problems({variable: str(key)})

    assert problem == f"{variable}: must name a file that only its owner can read or replace"
