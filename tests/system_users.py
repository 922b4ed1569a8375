"""The Redis users of a running system. Each process gets the user of its kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import redis

from handoff_queue.shared.local.redis_server import find_server, read_version
from handoff_queue.shared.local.redis_users import (
    HAS_KEY_PERMISSIONS,
    WORKER,
    create_users,
)
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.redis.acl import RedisDatabase
from handoff_queue.supervisor.cli.supervisor_and_worker import list_specialist_names

CLIENT, FLOWER, SUPERVISOR = "client", "flower", "supervisor"


@cache
def _database() -> RedisDatabase:
    is_new = read_version(find_server()) >= HAS_KEY_PERMISSIONS
    return RedisDatabase(has_key_permissions=is_new)


class SystemUsers:
    """The users in the private Redis of a system.

    A Redis that was killed has them again, because they are in its configuration file, too.
    """

    def __init__(self, admin_url: str, configuration: Path, settings: Mapping[str, str]) -> None:
        """Add the users of all kinds of processes.

        Args:
            admin_url: URL of the user with all rights.
            configuration: Redis's configuration file.
            settings: variables of the processes.
        """
        self._admin_url = admin_url
        self._configuration = configuration
        folders = {"specialists_dirs": settings.get("HANDOFF_SPECIALISTS_DIRS", "")}
        self._known = list_specialist_names(Settings.model_validate({"offline": True, **folders}))
        self._urls: dict[str, str] = {}
        self._add({WORKER: self._known})

    def url_of(self, user: str) -> str:
        """Return the URL of a user."""
        return self._urls[user]

    def url_of_process(self, arguments: Sequence[str]) -> str:
        """Return the URL for `python -m celery` with these arguments.

        The first worker with its queues adds a user.
        """
        app = arguments[arguments.index("-A") + 1]
        if FLOWER in arguments:
            return self._urls[FLOWER]
        if SUPERVISOR in app:
            return self._urls[SUPERVISOR]
        if "-Q" not in arguments:
            return self._urls[WORKER]
        roles = arguments[arguments.index("-Q") + 1].split(",")
        name = "-".join([WORKER, *roles])
        if name not in self._urls:
            self._add({WORKER: self._known, name: roles})
        return self._urls[name]

    def _add(self, workers: Mapping[str, Sequence[str]]) -> None:
        users = create_users(workers, _database())
        added = [name for name in users.rules if name not in self._urls and name != "admin"]
        with (
            redis.Redis.from_url(self._admin_url) as admin,
            self._configuration.open("a") as configuration,
        ):
            pipe = admin.pipeline(transaction=False)
            for name in added:
                password = f">{users.passwords[name]}"
                pipe.execute_command("ACL SETUSER", name, "on", password, *users.rules[name])
                self._urls[name] = users.build_url(name, self._admin_url)
            pipe.execute()
            configuration.writelines(
                f"{line}\n" for line in users.build_lines() if line.split()[1] in added
            )


def refused_commands(admin: Any) -> list[str]:
    """Return a line for each command that Redis refused to a user since the last call."""
    lines: list[str] = []
    for entry in admin.acl_log():
        lines.append(
            f"{entry['username']}: {entry['reason']} {entry['object']} in {entry['context']}:"
            f" {entry['client-info'].get('cmd')}"
        )
    if lines:
        admin.acl_log_reset()
    return lines
