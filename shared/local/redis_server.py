"""A private Redis for one run: on loopback, with a random port and password. It ends with its
parent.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from handoff_queue.shared.local.processes import ChildSpec, Processes
from handoff_queue.shared.local.redis_access import RedisAccess, access_from
from handoff_queue.shared.types.errors import UserError

OLDEST = (6, 2)
"""kombu's requirement; our scripts need no more."""
NAMES = ("redis-server", "valkey-server")
MISSING = (
    "no Redis server on this machine: install one (`apt install redis-server`, `dnf install valkey`, `brew install redis`), "
    "or set HANDOFF_REDIS_URL to a running server"
)
_START_TIMEOUT_S = 15.0


class PrivateRedis:
    """Started among `processes`, so it is stopped with them and started again on the same port
    and data if it dies.
    """

    def __init__(
        self,
        processes: Processes,
        folder: Path,
        *,
        append_only: bool = True,
        earlier: RedisAccess | None = None,
        is_hunted: bool = False,
    ) -> None:
        """`earlier`: the port and password that it had before; the port is taken again if it
        is free. `is_hunted`: see `ChildSpec`.
        """
        self._processes = processes
        self._data = folder / "redis"
        self._append_only = append_only
        self._is_hunted = is_hunted
        self.access = access_from(earlier)

    def start(self) -> str:
        """Start it, wait until it answers, and return its URL.

        Raises:
            UserError: no binary on this machine, or it does not start.
        """
        server = find_server()
        self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
        configuration = self._data / "redis.conf"
        configuration.touch(mode=0o600)
        configuration.write_text(self._configuration())
        command = [str(server), str(configuration)]
        spec = ChildSpec(
            "redis",
            command,
            is_ready=self.answers,
            restart=self._append_only,
            is_hunted=self._is_hunted,
            ends_last=True,
        )
        self._processes.start(spec)
        self._processes.wait_until_ready(_START_TIMEOUT_S)
        return self.access.url

    def answers(self) -> bool:
        """Return whether the server on our port is ours and takes commands. It uses a plain socket,
        because only the store may import redis.
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

    def _configuration(self) -> str:
        lines = {
            "bind": "127.0.0.1",
            "port": self.access.port,
            "requirepass": self.access.password,
            "dir": self._data,
            "appendonly": "yes" if self._append_only else "no",
            # with `everysec` it answers before it has written, while an fsync is going on
            "appendfsync": "always",
            "save": '""',
            "maxmemory-policy": "noeviction",  # an evicted journal is a lost job
            "daemonize": "no",
            "tcp-backlog": 128,
        }
        return "".join(f"{name} {value}\n" for name, value in lines.items())


def find_server() -> Path:
    """Return the path of the system's Redis or Valkey, or of the binary that `make` installed.

    Raises:
        UserError: there is none, or its version is too old; the message says how to install it.
    """
    own = Path(sys.prefix) / "bin" / "redis-server"
    candidates: list[Path] = []
    for name in NAMES:
        if path := shutil.which(name):
            candidates.append(Path(path))
    for server in [*candidates, own]:
        if server.exists() and version_of(server) >= OLDEST:
            return server
    raise UserError(MISSING)


def version_of(server: Path) -> tuple[int, ...]:
    """(7, 0, 15), or () if the binary does not run on this machine."""
    try:
        shown = subprocess.run(
            [server, "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    numbers = re.search(r"\bv=(\d+(?:\.\d+)*)", shown)
    if numbers:
        return tuple(map(int, numbers[1].split(".")))
    return ()
