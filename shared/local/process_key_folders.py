"""A folder of keys for each kind of process: its signing key, its URL of Redis, and the keyring. A
container that mounts one folder cannot read the keys of another kind of process.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from handoff_queue.shared.local.redis_users import USERS_FILE, get_url_file
from handoff_queue.shared.local.run_directory import write_private
from handoff_queue.shared.store.redis.acl import ADMIN
from handoff_queue.shared.trust.key_files import KEYRING, find_private_key_file, lock_folder
from handoff_queue.shared.types.errors import UserError

REDIS = "redis"
"""Folder of the Redis server. It has digests of passwords, and every user may read it."""
REDIS_URL, SIGNING_KEY = "redis-url", "signing.key"


def write_process_folders(folder: Path, users: Iterable[str]) -> list[Path]:
    """Copy the files of each kind of process to `folder/USER`, and the users to `folder/redis`.
    Return the folders.

    All public keys are copied before the first private key, so that every signature can be
    checked.

    Args:
        folder: the folder that `make_keys` and `write_users` have written.
        users: the Redis users. The user with all rights gets no folder.

    Raises:
        UserError: a file cannot be read or written.
    """
    names = [name for name in users if name != ADMIN]
    try:
        with lock_folder(folder):
            _copy(folder, names)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written ({error.strerror}): name a folder that this user can write"
        ) from error
    return [folder / name for name in (*names, REDIS)]


def _copy(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).mkdir(mode=0o700, exist_ok=True)
        write_private(folder / name / KEYRING, (folder / KEYRING).read_text())
    for name in names:
        write_private(folder / name / REDIS_URL, get_url_file(folder, name).read_text())
        key = find_private_key_file(folder, name)
        if key.exists():
            write_private(folder / name / SIGNING_KEY, key.read_text())
    _write_users(folder / REDIS, (folder / USERS_FILE).read_text())


def _write_users(folder: Path, users: str) -> None:
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    draft = folder / f"{USERS_FILE}.new"
    draft.write_text(users)
    draft.chmod(0o644)
    draft.replace(folder / USERS_FILE)
