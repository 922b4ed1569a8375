"""The private folder of one run, and files in it that only its user can read."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Self

_OWNER_ONLY = 0o600
"""Mode of a file that only its owner reads and writes."""


def read_private(file: Path) -> str | None:
    """Return the text of `file`.

    Return None if the file is missing or unreadable, or if other users can read it. A password in
    such a file is no longer a secret.
    """
    try:
        with file.open(encoding="utf-8") as open_file:
            if stat.S_IMODE(os.fstat(open_file.fileno()).st_mode) & ~_OWNER_ONLY:
                return None
            return open_file.read()
    except (OSError, UnicodeDecodeError):
        return None


def write_private(file: Path, text: str) -> None:
    """Replace `file` atomically. Other users can read neither the new file nor its draft."""
    draft = file.with_name(f"{file.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _OWNER_ONLY)
    with os.fdopen(descriptor, "w", encoding="utf-8") as draft_file:
        draft_file.write(text)
    draft.replace(file)


_PREFIX = "handoff-run-"
_LOCK = "lock"


class RunDirectory:
    """A folder that only this user can read. It is removed at the end of the `with` block:
    `with RunDirectory() as folder: use(folder.path)`.

    A run that is killed leaves its folder and a free lock behind. The next run removes the
    folder.
    """

    path: Path
    """The folder, within the `with` block."""

    def __init__(self, parent: Path | None = None) -> None:
        if parent is not None:
            self._parent = parent
        else:
            self._parent = Path(tempfile.gettempdir())
        self._lock_fd = -1
        self.path = self._parent

    def __enter__(self) -> Self:
        remove_stale_folders(self._parent)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._parent))  # mode 0700
        self._lock_fd = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock_fd)


def remove_stale_folders(parent: Path) -> None:
    """Remove this user's folders of runs that were killed."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            if folder.stat().st_uid == os.getuid() and _is_free(folder / _LOCK):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # a new folder without a lock yet, or another run has removed it


def _is_free(lock: Path) -> bool:
    """Return whether no process holds the lock.

    Raises:
        OSError: there is no lock file. The run has just made its folder, or another run has just
            removed it.
    """
    fd = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
