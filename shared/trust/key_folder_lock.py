"""The folder of the keys: one process at a time changes its files."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from handoff_queue.shared.settings.file_permissions import check_folder

LOCK = "keyring.lock"
"""Empty file in the folder, whose lock a process holds while it changes the keys."""
PRIVATE, PUBLIC = 0o600, 0o644


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of keys, for `with locked(folder): read and write its files`.

    Other processes and threads wait. The lock of a process that was killed is free. A thread that
    already holds the lock would wait forever.

    Raises:
        UserError: other users can write the folder.
        OSError: the folder cannot be written.
    """
    check_folder(folder)
    # NFS locks only a file that is open for writing, so the folder itself cannot have the lock
    descriptor = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, PRIVATE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace_file(file: Path, content: bytes, mode: int, *, waits: bool = True) -> None:
    """Replace a file at once, so that no process reads half a file.

    Args:
        waits: True to wait until the content is on the disk. Otherwise the file may be empty after
            a crash of the machine.

    Raises:
        OSError: the file cannot be written.
    """
    with NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}-", delete=False) as new:
        try:
            os.fchmod(new.fileno(), mode)  # a new file has mode 0600
            new.write(content)
            new.flush()
            if waits:
                os.fsync(new.fileno())
            Path(new.name).replace(file)
        except BaseException:
            with suppress(OSError):
                Path(new.name).unlink()
            raise
