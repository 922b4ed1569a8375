"""Small files that only their owner can read: passwords that stay the same between two starts."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_OWNER_ONLY = 0o600


def read_private(file: Path) -> str | None:
    """Return the text of `file`.

    Return None if the file is missing or unreadable, or if other users can read it: a password in
    such a file is no longer a secret.
    """
    try:
        with file.open(encoding="utf-8") as opened:
            if stat.S_IMODE(os.fstat(opened.fileno()).st_mode) & ~_OWNER_ONLY:
                return None
            return opened.read()
    except (OSError, UnicodeDecodeError):
        return None


def write_private(file: Path, text: str) -> None:
    """Replace `file` atomically; other users can read neither the new file nor its draft."""
    draft = file.with_name(f"{file.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _OWNER_ONLY)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)
    draft.replace(file)
