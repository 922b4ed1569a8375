"""A private folder for one run: sockets, logs, configuration with a password. It goes when the run ends, or when the next one begins."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

_PREFIX = "handoff-run-"
_LOCK = "lock"


class RunDirectory:
    """`with RunDirectory() as folder:` gives a path that only this user can read.

    A run that was killed cannot clean up: its lock is free then, and the next run removes what it left.
    """

    def __init__(self, parent: Path | None = None) -> None:
        self._parent = parent if parent is not None else Path(tempfile.gettempdir())
        self._lock_fd = -1
        self.path = self._parent

    def __enter__(self) -> Self:
        remove_left_behind(self._parent)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._parent))  # mode 0700
        self._lock_fd = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock_fd)


def remove_left_behind(parent: Path) -> None:
    """Remove this user's run folders whose run has ended without doing so."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            if folder.stat().st_uid == os.getuid() and _is_free(folder / _LOCK):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # another run was quicker


def _is_free(lock: Path) -> bool:
    """False also for a folder without a lock: its run is just being born."""
    fd = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
