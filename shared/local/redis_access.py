"""Port and password of a private Redis whose data stays: the next start takes them again, so that exported URLs go on to work."""

from __future__ import annotations

import os
import secrets
import socket
import stat
from pathlib import Path

from pydantic import Field

from shared.wire.errors import MalformedMessage
from shared.wire.message import Message

_FOR_ITS_OWNER = 0o600


class RedisAccess(Message):
    """How a private Redis is reached."""

    port: int = Field(ge=1, le=65_535)
    password: str = Field(pattern=r"^[\w-]{16,}$", repr=False)

    @property
    def url(self) -> str:
        """Carries the password: for an environment variable, never for a command line or a log."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"


def access_from(earlier: RedisAccess | None) -> RedisAccess:
    """The earlier one; with another port if that one is taken, and all new if there is none."""
    if earlier is None:
        return RedisAccess(port=_free_port(), password=secrets.token_urlsafe(24))
    return earlier if is_free(earlier.port) else earlier.model_copy(update={"port": _free_port()})


def read_access(file: Path) -> RedisAccess | None:
    """None: there is none, it cannot be read, or others could read it, too: then its password is no secret any more."""
    try:
        with file.open() as opened:
            if stat.S_IMODE(os.fstat(opened.fileno()).st_mode) & ~_FOR_ITS_OWNER:
                return None
            return RedisAccess.from_json(opened.read())
    except (OSError, UnicodeDecodeError, MalformedMessage):
        return None


def write_access(file: Path, access: RedisAccess) -> None:
    """Whole or not at all, and at no moment for others to read."""
    new = file.with_name(f"{file.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(
        os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _FOR_ITS_OWNER), "w"
    ) as opened:
        opened.write(access.to_json())
    new.replace(file)


def is_free(port: int) -> bool:
    """Whether nobody listens there. As Redis binds: connections of its predecessor that are still closing do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _free_port() -> int:
    """A port that is free now. Should someone else take it first, the server does not start, or `answers` finds a stranger there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
