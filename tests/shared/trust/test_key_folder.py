"""No other user can change the keys, and processes that change them at the same time lose none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from handoff_queue.shared.local.process_key_folders import SIGNING_KEY, write_process_folders
from handoff_queue.shared.local.redis_users import USERS_FILE, get_url_file, write_users
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.trust.key_files import (
    KEYRING,
    find_private_key_file,
    make_keys,
    make_keys_of,
    read_keyring,
    read_private_keys,
    rotate_key,
)
from handoff_queue.shared.trust.keyring import Identity, Right, create_identities
from handoff_queue.shared.trust.signatures import Trust
from handoff_queue.shared.types.errors import UntrustedMessage, UserError
from handoff_queue.supervisor.cli.local_keys import LocalKeys, prepare_local_keys

REDIS = "redis://redis:6379/0"
ROLES = tuple(f"role-{number}" for number in range(6))
FOREIGN_USER = 10_001
ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Return a folder with the keys of an installation."""
    make_keys(tmp_path / "keys", ROLES)
    return tmp_path / "keys"


def identities_of(keys: Path) -> dict[str, Identity]:
    return read_keyring(keys / KEYRING).identities


def at_once(calls: Iterable[Callable[[], Any]]) -> list[Any]:
    """Run the calls in threads that start together, and return their results.

    The lock is of an open file, and each call opens it. So a thread waits as a process does.
    """
    waiting = list(calls)
    start = Barrier(len(waiting))

    def run(call: Callable[[], Any]) -> Any:
        start.wait()
        return call()

    with ThreadPoolExecutor(len(waiting)) as threads:
        return list(threads.map(run, waiting))


def test_rotations_at_once_leave_a_new_key_and_the_key_before_it_of_each_identity(
    keys: Path,
) -> None:
    before = identities_of(keys)

    new = at_once(partial(rotate_key, keys, name) for name in before)

    after = identities_of(keys)
    for name, key in zip(before, new, strict=True):
        assert after[name].keys == (key, *before[name].keys)


def test_rotations_of_one_key_at_once_leave_the_private_keys_of_its_valid_public_keys(
    keys: Path,
) -> None:
    new = at_once([partial(rotate_key, keys, "supervisor")] * 4)

    valid = [key.id for key in identities_of(keys)["supervisor"].keys]
    private = read_private_keys(find_private_key_file(keys, "supervisor"))
    assert [key.id for key in private] == valid
    assert set(valid) <= {key.id for key in new}


def test_keys_that_are_made_at_once_are_all_in_the_keyring(tmp_path: Path) -> None:
    made = at_once(partial(make_keys, tmp_path, [role]) for role in ROLES)

    identities = identities_of(tmp_path)
    assert sorted(name for names in made for name in names) == sorted(identities)
    for name, identity in identities.items():
        (private,) = read_private_keys(find_private_key_file(tmp_path, name))
        assert [key.id for key in identity.keys] == [private.id]


def test_systems_that_start_at_once_have_workers_with_their_own_roles(tmp_path: Path) -> None:
    def start(role: str) -> LocalKeys:
        settings = Settings(redis_url=None, keys=None)
        queues = {"others": [role, "writer"]}
        return prepare_local_keys(
            tmp_path / role, settings, queues, tmp_path / "keys", has_none=False
        )

    started = at_once(partial(start, role) for role in ROLES)

    identities = identities_of(tmp_path / "keys")
    for role, local in zip(ROLES, started, strict=True):
        assert identities[local.workers["others"]].specialists == (role, "writer")


def test_redis_users_that_are_written_at_once_have_the_passwords_of_their_urls(
    tmp_path: Path,
) -> None:
    at_once([partial(write_users, tmp_path, REDIS, {"worker": ROLES})] * 4)

    rules = (tmp_path / USERS_FILE).read_text()
    password = get_url_file(tmp_path, "worker").read_text().split("@")[0].rpartition(":")[2]
    assert sha256(password.encode()).hexdigest() in rules


def test_a_folder_of_a_process_never_gets_a_private_key_without_its_public_key(keys: Path) -> None:
    users = write_users(keys, REDIS, {f"worker-{role}": [role] for role in ROLES})

    rotation = partial(rotate_key, keys, "supervisor")
    at_once([*[partial(write_process_folders, keys, users)] * 3, rotation, rotation])

    copied = keys / "supervisor"
    valid = [key.id for key in identities_of(copied)["supervisor"].keys]
    assert read_private_keys(copied / SIGNING_KEY)[0].id == valid[0]


def test_only_the_keys_of_one_run_do_not_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []
    monkeypatch.setattr(os, "fsync", waits.append)

    make_keys_of(tmp_path / "run", create_identities(()), is_for_one_run=True)
    assert waits == []
    make_keys(tmp_path / "lasting")
    assert len(waits) == len(create_identities(())) + 1, "each private key, and the keyring"


@pytest.mark.slow
def test_the_fork_server_loads_everything_that_signs_and_checks(keys: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from handoff_queue.shared.trust.key_files import load_cryptography
from handoff_queue.shared.trust.signatures import Trust
load_cryptography()
known = set(sys.modules)
trust = Trust(Path({str(keys)!r}), Path({str(keys / "supervisor.key")!r}))
trust.sign_handoff("role-1", "text")
trust.find_signer(trust.sign_events("events", "text"), "events", "text")
print(*[name for name in set(sys.modules) - known if name.startswith("cryptography")])
"""
    completed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert completed.stdout.strip() == ""


def test_a_folder_without_keys_gets_no_lock(tmp_path: Path) -> None:
    with suppress(UserError):
        rotate_key(tmp_path, "supervisor")
    assert list(tmp_path.iterdir()) == []


def test_a_rotation_keeps_the_key_before_it_that_other_users_could_read(keys: Path) -> None:
    """The rotation makes the file private again."""
    file = find_private_key_file(keys, "client")
    (before,) = read_private_keys(file)
    file.chmod(0o644)

    new = rotate_key(keys, "client")

    assert [key.id for key in read_private_keys(file)] == [new.id, before.id]


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_keyring_that_others_can_write_is_refused(keys: Path, mode: int) -> None:
    (keys / KEYRING).chmod(mode)

    with pytest.raises(UserError) as refused:
        Trust(keys)
    file = keys / KEYRING
    assert str(refused.value) == f"other users can write the file {file}: chmod go-w {file}"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_private_key_that_others_can_read_or_write_is_refused(keys: Path, mode: int) -> None:
    file = find_private_key_file(keys, "client")
    file.chmod(mode)
    with pytest.raises(UserError, match=f"other users can read the private key .*chmod 600 {file}"):
        Trust(keys, file).sign(Right.SUBMIT, "a job")


def test_a_file_without_a_key_gets_no_advice_to_change_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("127.0.0.1 localhost")
    file.chmod(0o644)
    with pytest.raises(UserError, match=f"^{file} has no private key of Ed25519: name the key"):
        read_private_keys(file)


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_keys_in_a_folder_that_others_can_write_are_refused(keys: Path, mode: int) -> None:
    keys.chmod(mode)
    file = find_private_key_file(keys, "client")
    changes = (
        partial(read_keyring, keys / KEYRING),
        partial(read_private_keys, file),
        partial(make_keys, keys),
        partial(rotate_key, keys, "client"),
        partial(write_users, keys, REDIS, {}),
    )
    for change in changes:
        with pytest.raises(
            UserError, match=f"other users can write the folder .*chmod go-w {keys}"
        ):
            change()


def test_a_link_to_keys_that_others_can_replace_is_refused(keys: Path, tmp_path: Path) -> None:
    keys.chmod(0o777)
    links = tmp_path / "links"
    links.mkdir(0o700)
    (links / KEYRING).symlink_to(keys / KEYRING)
    with pytest.raises(UserError, match=f"other users can write the folder {keys}"):
        read_keyring(links / KEYRING)


def mounted_as_a_secret(keys: Path, folder: Path) -> Path:
    """Return a folder with the links of a Secret that Kubernetes mounts."""
    folder.mkdir()
    (folder / "..2026_11_29").mkdir(0o755)
    for name in (KEYRING, "client.key"):
        copy = folder / "..2026_11_29" / name
        copy.write_bytes((keys / name).read_bytes())
        copy.chmod(0o400)
        (folder / name).symlink_to(f"..data/{name}")
    (folder / "..data").symlink_to("..2026_11_29")
    folder.chmod(0o1777)
    return folder


def test_the_files_of_a_secret_in_its_sticky_folder_are_accepted(
    keys: Path, tmp_path: Path
) -> None:
    secret = mounted_as_a_secret(keys, tmp_path / "secret")

    signature = Trust(secret / KEYRING, secret / "client.key").sign(Right.SUBMIT, "a job")

    assert Trust(secret).check(Right.SUBMIT, signature, "a job").name == "client"


@ONLY_ROOT
def test_a_file_of_another_user_in_a_sticky_folder_is_refused(keys: Path) -> None:
    keys.chmod(0o1777)
    os.chown(keys / KEYRING, FOREIGN_USER, FOREIGN_USER)
    with pytest.raises(UserError, match="belongs to another user, and every user can write"):
        read_keyring(keys / KEYRING)


def test_a_running_process_does_not_use_new_keys_that_others_can_write(keys: Path) -> None:
    reader = Trust(keys)
    rotate_key(keys, "client")
    signature = Trust(keys, find_private_key_file(keys, "client")).sign(Right.SUBMIT, "a job")

    (keys / KEYRING).chmod(0o666)

    with pytest.raises(UntrustedMessage, match="unknown key"):
        reader.check(Right.SUBMIT, signature, "a job")
