"""A file that a person named, read whole and never more of it than is allowed."""

from __future__ import annotations

from pathlib import Path

from handoff_queue.shared.types.errors import UserError


def bounded_bytes(path: Path, most: int, mend: str) -> bytes:
    """The content. `mend`: what to do about a file of more than `most` bytes.

    Raises:
        UserError: not there, not a regular file (a pipe would never end), unreadable, or too large.
    """
    try:
        if path.exists() and not path.is_file():
            raise UserError(f"{path} is not a regular file; name a file")
        with path.open("rb") as stream:
            data = stream.read(most + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(
            f"{str(path)!r:.200} cannot be read ({reason}); check the path and its permissions"
        ) from error
    if len(data) > most:
        raise UserError(f"{path} is larger than {most:,} bytes; {mend}")
    return data
