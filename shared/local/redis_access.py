"""Port and password of a private Redis whose data is kept. The next start uses them again, so
that exported URLs stay valid.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from pydantic import Field

from handoff_queue.shared.local.run_directory import read_private, write_private
from handoff_queue.shared.settings.ports import free_port, is_free
from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.message import Message


class RedisAccess(Message):
    """Address and credentials of a private Redis."""

    port: int = Field(ge=1, le=65_535)
    password: str = Field(pattern=r"^[\w-]{16,}$", repr=False)

    @property
    def url(self) -> str:
        """URL with the password. Put it into an environment variable, never into a command
        line or a log.
        """
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"


def access_from(earlier: RedisAccess | None) -> RedisAccess:
    """Return the earlier access, with a free port if its port is taken. Without an earlier
    access, return a new one with a random password.
    """
    if earlier is None:
        return RedisAccess(port=free_port(), password=secrets.token_urlsafe(24))
    if is_free(earlier.port):
        return earlier
    return earlier.model_copy(update={"port": free_port()})


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
