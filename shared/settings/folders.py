"""Folders that a user names, with `~` for a home folder."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from handoff_queue.shared.types.errors import UserError

LOADING = "still loading "
"""Beginning of a worker's message that names a file of the user that takes long to load."""


def expand_folder(folder: Path, setting: str) -> Path:
    """Return a folder with its `~` or `~NAME` replaced.

    A container may run under a user id without an entry in /etc/passwd and without HOME. Then
    there is no home folder.

    Raises:
        UserError: there is no home folder. The message names `setting`, the variable or option that
            can name another folder.
    """
    try:
        return folder.expanduser()
    except RuntimeError:
        raise UserError(
            f"{folder} needs a home folder, and this user has none: set {setting} to an absolute"
            " path, or set HOME"
        ) from None


def find_files_with_suffix(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Return the entries of a folder whose suffix is one of `suffixes` in any case, sorted by
    name.

    Args:
        suffixes: in lower case and with their dot, such as `{".md"}`.

    Raises:
        UserError: the folder cannot be listed.
    """
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise UserError(
            f"{folder} cannot be listed ({error.strerror}); name a folder that this user can read"
        ) from error
    return [path for path in entries if path.suffix.lower() in suffixes]
