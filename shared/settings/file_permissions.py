"""Reads a file of keys or passwords. It refuses a file that other users can read or change.

A file is also refused if another user can replace it in its folder. Otherwise this user could add a
key and sign with it as a supervisor, or name another Redis.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from handoff_queue.shared.types.errors import UserError

MAX_FILE_BYTES = 1_000_000
"""Bytes of the largest file that is read."""
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_ROOT = 0
"""User id of root."""


def check_folder(folder: Path) -> None:
    """Check that no other user can replace a file in a folder.

    Every user may write a sticky folder, such as the folder of a Secret in Kubernetes. There only
    the owner of a file can replace it.

    Raises:
        UserError: other users can write the folder.
        OSError: there is no such folder.
    """
    mode = folder.stat().st_mode
    if mode & _WRITABLE and not mode & stat.S_ISVTX:
        raise UserError(
            f"other users can write the folder {folder}, so they can replace the files in it:"
            f" chmod go-w {folder}"
        )


def read_public(file: Path) -> bytes:
    """Read a file that every user may read, and no other user may write.

    Raises:
        UserError: other users can write or replace the file.
        OSError: the file cannot be read.
    """
    why = f"other users can write the file {file}: chmod go-w {file}"
    return _read(file, lambda file_status: bool(file_status.st_mode & _WRITABLE), why)


def read_private(file: Path, content: str = "private key") -> bytes:
    """Read a file that no other user may read or write.

    Args:
        content: the secret in the file, for the error.

    Raises:
        UserError: other users can read, write or replace the file.
        OSError: the file cannot be read.
    """
    why = f"other users can read the {content} {file}: chmod 600 {file}"
    return _read(file, _is_open, why)


def _is_open(file: os.stat_result) -> bool:
    """Return whether other users can read or write a file. Kubernetes gives the files of a Secret
    to root and to the group of the pod, so the group may read a file of root.
    """
    others = stat.S_IRWXG | stat.S_IRWXO
    if file.st_uid == _ROOT and os.geteuid() != _ROOT:
        others &= ~stat.S_IRGRP
    return bool(file.st_mode & others)


def _read(file: Path, is_refused: Callable[[os.stat_result], bool], why: str) -> bytes:
    """Read a file. `why` is the error for a file with refused rights."""
    check_place(file)
    with file.open("rb") as open_file:
        if is_refused(os.fstat(open_file.fileno())):
            raise UserError(why)
        return open_file.read(MAX_FILE_BYTES)


def check_place(file: Path) -> None:
    """Check that no other user can replace a file. If it is a link, check its target, too.

    Raises:
        UserError: other users can replace the file.
        OSError: there is no such file or folder.
    """
    for path in dict.fromkeys((file, file.resolve())):
        check_folder(path.parent)
        is_for_all = path.parent.stat().st_mode & _WRITABLE
        if is_for_all and path.lstat().st_uid not in (_ROOT, os.geteuid()):
            raise UserError(
                f"{path} belongs to another user, and every user can write its folder: move the"
                " file to a folder of mode 0700"
            )
