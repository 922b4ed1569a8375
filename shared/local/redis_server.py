"""A private Redis: on loopback, with a random port and password. It ends with its parent.

If its data is kept, the next start uses the port and the password again, so that exported URLs
stay valid.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.local.run_directory import read_private, write_private
from handoff_queue.shared.settings.ports import find_free_port, is_free
from handoff_queue.shared.types.errors import MalformedMessage, UserError
from handoff_queue.shared.types.message import Message

MAX_VALUE_BYTES = 128 * 1024 * 1024
"""Bytes of the longest value that Redis takes: more than any compressed document has."""


class RedisAccess(Message):
    """Address and credentials of a private Redis."""

    port: int = Field(ge=1, le=65_535)
    password: str = Field(pattern=r"^[\w-]+$", min_length=16, repr=False)

    @property
    def url(self) -> str:
        """URL with the password. Put it into an environment variable, never into a command
        line or a log.
        """
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"


def reuse_access(earlier: RedisAccess | None) -> RedisAccess:
    """Return the earlier access, with a free port if its port is taken. Without an earlier
    access, return a new one with a random password.
    """
    if earlier is None:
        return RedisAccess(port=find_free_port(), password=secrets.token_urlsafe(24))
    if is_free(earlier.port):
        return earlier
    return earlier.model_copy(update={"port": find_free_port()})


def read_access(file: Path) -> RedisAccess | None:
    """Return the stored access, or None if `read_private` returns None or the text is invalid."""
    text = read_private(file)
    if text is None:
        return None
    try:
        return RedisAccess.from_json(text)
    except MalformedMessage:
        return None


def write_access(file: Path, access: RedisAccess) -> None:
    """Store the access atomically in a file that only its owner can read."""
    write_private(file, access.to_json())


OLDEST = (6, 2)
"""Oldest version that kombu accepts. Our scripts need no newer one."""
LIMITS_ALL_CLIENTS = (7, 0)
"""Oldest version with a limit for the memory of all clients together."""
NAMES = ("redis-server", "valkey-server")
MISSING = (
    "no Redis server on this machine: install one (`apt install redis-server`,"
    " `dnf install valkey`, `brew install redis`), or set HANDOFF_REDIS_URL to a running server"
)
_START_TIMEOUT_S = 15.0
"""Seconds that a Redis server may take to start."""


class PrivateRedis:
    """A Redis that runs as a child of `processes` and is stopped with them. With an
    append-only file, it is started again on the same port and data if it dies.
    """

    def __init__(
        self,
        processes: Processes,
        folder: Path,
        *,
        append_only: bool = True,
        earlier: RedisAccess | None = None,
        is_killed_on_purpose: bool = False,
        users: Sequence[str] = (),
    ) -> None:
        """Choose the port and the password. `start` starts the server.

        Args:
            processes: the children that the server joins.
            folder: folder for its data.
            append_only: True to keep the data in a file. False: a server that dies is given up.
            earlier: access of an earlier run. Its port is used again if the port is free.
            is_killed_on_purpose: see `ChildSpec`.
            users: further users, as lines of an ACL file.
        """
        self._processes = processes
        self._users = tuple(users)
        self._data = folder / "redis"
        self._append_only = append_only
        self._is_killed_on_purpose = is_killed_on_purpose
        self.access = reuse_access(earlier)

    def start(self) -> str:
        """Start the server, wait until all processes are ready, and return the URL.

        Raises:
            UserError: there is no suitable server program on this machine, or the server does not
                start.
        """
        server = find_server()
        self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
        configuration = self._data / "redis.conf"
        configuration.touch(mode=0o600)
        configuration.write_text(self._build_configuration(read_version(server)))
        command = [str(server), str(configuration)]
        spec = ChildSpec(
            "redis",
            command,
            is_ready=self.is_answering,
            restart=self._append_only,
            is_killed_on_purpose=self._is_killed_on_purpose,
            ends_last=True,
        )
        self._processes.start(spec)
        self._processes.wait_until_ready(_START_TIMEOUT_S)
        return self.access.url

    def is_answering(self) -> bool:
        """Return whether the server on our port accepts our password and answers. The check
        uses a plain socket, because only the store may import redis.
        """
        try:
            with socket.create_connection(
                ("127.0.0.1", self.access.port), timeout=1.0
            ) as connection:
                connection.sendall(f"AUTH {self.access.password}\r\nPING\r\n".encode())
                with connection.makefile("rb") as replies:
                    return replies.readline() == b"+OK\r\n" and replies.readline() == b"+PONG\r\n"
        except OSError:
            return False

    def _build_configuration(self, version: tuple[int, ...]) -> str:
        lines: dict[str, str | int] = {
            "bind": "127.0.0.1",
            "port": self.access.port,
            "requirepass": self.access.password,
            "dir": json.dumps(str(self._data), ensure_ascii=False),  # quoted: it may have a space
            "appendonly": "yes" if self._append_only else "no",
            # with `everysec`, Redis answers before it has written its file
            "appendfsync": "always",
            # a Redis that was killed reads the whole file before it answers
            "auto-aof-rewrite-min-size": "2mb",
            "save": '""',
            # no worker stores a longer value, which a reader might hold in memory
            "proto-max-bulk-len": MAX_VALUE_BYTES,
            # answers that a client does not read; the longest ones are payloads of 256 MB
            "client-output-buffer-limit": "normal 512mb 256mb 60",
            "maxmemory-policy": "noeviction",  # an evicted journal is a lost job
            "daemonize": "no",
            "tcp-backlog": 128,
        }
        if version >= LIMITS_ALL_CLIENTS:
            lines["maxmemory-clients"] = "1gb"
        settings = "".join(f"{name} {value}\n" for name, value in lines.items())
        return settings + "".join(f"{line}\n" for line in self._users)


def find_server() -> Path:
    """Return the path of the system's Redis or Valkey, or of the binary that `make` installed.
    Programs that are older than `OLDEST`, or that do not run on this machine, are left out.

    Raises:
        UserError: no program is left. The message says how to install one.
    """
    own_server = Path(sys.prefix) / "bin" / "redis-server"
    candidates: list[Path] = []
    for name in NAMES:
        if path := shutil.which(name):
            candidates.append(Path(path))
    for server in [*candidates, own_server]:
        if server.exists() and read_version(server) >= OLDEST:
            return server
    raise UserError(MISSING)


def read_version(server: Path) -> tuple[int, ...]:
    """Return the version, such as (7, 0, 15), or () if the binary does not run on this machine."""
    try:
        output = subprocess.run(
            [server, "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    numbers = re.search(r"\bv=(\d+(?:\.\d+)*)", output)
    if numbers:
        return tuple(map(int, numbers[1].split(".")))
    return ()
