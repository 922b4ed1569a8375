"""The Redis users of an installation: a file for Redis, and one file with a URL for each user.

`users.acl` has digests of the passwords, and is the `aclfile` of Redis. `USER.redis-url` has the
URL with the password of one kind of process, and only its owner can read it.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from handoff_queue.shared.local.redis_server import find_server, read_version
from handoff_queue.shared.local.run_directory import read_private, write_private
from handoff_queue.shared.settings.redis_url import read_address
from handoff_queue.shared.store.redis.acl import (
    ACCESS,
    ADMIN,
    ADMIN_RULES,
    ANY_SPECIALIST,
    RedisDatabase,
    build_rules,
    build_user_line,
    build_worker_access,
)
from handoff_queue.shared.trust.key_files import lock_folder
from handoff_queue.shared.types.errors import UserError

HAS_KEY_PERMISSIONS = (7,)
"""Oldest version with rules for reading, for writing, and selectors."""
USERS_FILE = "users.acl"
WORKER = "worker"
"""Name of the user of workers, and the beginning of its names: `worker-SPECIALIST`."""
_PASSWORD_BYTES = 24
_NO_DEFAULT_USER = "user default off ~* &* +@all"
"""Line of the user of a connection without a name. No program can log in as this user. The user has
all rights, because a starting Redis runs the transactions of its append-only file as this user. It
drops a transaction with a command that the user may not run.
"""


@dataclass(frozen=True, slots=True)
class RedisUsers:
    """The users, by name."""

    rules: Mapping[str, Sequence[str]]
    passwords: Mapping[str, str]

    def build_lines(self) -> list[str]:
        """Return the lines of the ACL file, without a line of the user `default`."""
        lines: list[str] = []
        for name, rules in self.rules.items():
            lines.append(build_user_line(name, [self.passwords[name]], rules))
        return lines

    def build_url(self, name: str, address: str) -> str:
        """Return the URL of a user.

        Args:
            address: URL of the Redis. Its user and password are replaced.
        """
        parts = urlsplit(address)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{name}:{self.passwords[name]}@{host}"))


def build_installation_rules(
    workers: Mapping[str, Sequence[str]],
    database: RedisDatabase,
    *,
    without_memory: Collection[str] = (),
    has_other_workers: bool = False,
) -> dict[str, list[str]]:
    """Return the rules of each user, by its name.

    Args:
        workers: the specialists of each user of workers. Its name is `worker` or `worker-NAME`.
        without_memory: specialists that do not have the tool `memory`. A user of workers without
            another specialist has no right to notes.
        has_other_workers: True if workers of other specialists may start later, with the user that
            has all rights. The users of the other processes may then use all queues.
    """
    specialists: dict[str, None] = {}
    for served in workers.values():
        specialists.update(dict.fromkeys(served))
    if has_other_workers:
        specialists = {ANY_SPECIALIST: None}
    rules = {ADMIN: list(ADMIN_RULES)}
    for name, access_for in ACCESS.items():
        rules[name] = build_rules(access_for(list(specialists)), database)
    for name, served in workers.items():
        rules[name] = build_rules(build_worker_access(served, without_memory), database)
    return rules


def create_users(
    workers: Mapping[str, Sequence[str]],
    database: RedisDatabase,
    passwords: Mapping[str, str] | None = None,
    *,
    without_memory: Collection[str] = (),
    has_other_workers: bool = False,
) -> RedisUsers:
    """Return the users of an installation. A user without a password gets a random one.

    Args:
        workers, without_memory, has_other_workers: see `build_installation_rules`.
    """
    rules = build_installation_rules(
        workers, database, without_memory=without_memory, has_other_workers=has_other_workers
    )
    known = passwords or {}
    user_passwords: dict[str, str] = {}
    for name in rules:
        user_passwords[name] = known.get(name) or secrets.token_urlsafe(_PASSWORD_BYTES)
    return RedisUsers(rules, user_passwords)


def create_private_users(
    workers: Mapping[str, Sequence[str]], without_memory: Collection[str]
) -> RedisUsers:
    """Return users with random passwords for the server of this machine. A worker of any
    specialist may start later, in the shell with the URL of the private Redis.

    Args:
        workers, without_memory: see `build_installation_rules`.

    Raises:
        UserError: there is no server program.
    """
    is_new = read_version(find_server()) >= HAS_KEY_PERMISSIONS
    database = RedisDatabase(has_key_permissions=is_new)
    return create_users(workers, database, without_memory=without_memory, has_other_workers=True)


def get_url_file(folder: Path, name: str) -> Path:
    """Return the file with the URL of a user."""
    return folder / f"{name}.redis-url"


def write_users(
    folder: Path,
    address: str,
    workers: Mapping[str, Sequence[str]],
    without_memory: Collection[str] = (),
) -> list[str]:
    """Write the ACL file and the URLs of all users, for Redis 7 and Valkey. A user that has a URL
    keeps its password.

    Return the names of the users.

    Args:
        folder: an existing folder.
        address: URL of the Redis without a user, such as `redis://redis:6379/0`.
        workers, without_memory: see `build_installation_rules`.

    Raises:
        UserError: a file cannot be written.
        ValueError: the address is wrong.
    """
    redis_address = read_address(address)
    database = RedisDatabase(redis_address.database, redis_address.prefix)
    names = build_installation_rules(workers, database)
    try:
        with lock_folder(folder):
            passwords = _read_passwords(folder, names)
            users = create_users(workers, database, passwords, without_memory=without_memory)
            for name in names:
                write_private(get_url_file(folder, name), users.build_url(name, address) + "\n")
            file = folder / USERS_FILE
            draft = file.with_name(f"{file.name}.new")
            lines = [_NO_DEFAULT_USER, *users.build_lines()]
            draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
            draft.replace(file)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written ({error.strerror}): name a folder that this user can write"
        ) from error
    return list(names)


def _read_passwords(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the passwords of the users that have a URL in the folder."""
    passwords: dict[str, str] = {}
    for name in names:
        known = read_private(get_url_file(folder, name))
        if known is not None:
            passwords[name] = _parse_password(known.strip())
    return passwords


def _parse_password(url: str) -> str:
    """Return the password in a URL that `write_users` wrote. For another text, return ''."""
    try:
        return read_address(url).password or ""
    except ValueError:
        return ""
