"""A file that a command makes for a person: whole, or as it was before."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path


def write_whole(target: Path, text: str) -> None:
    """What is no plain file (a device, a pipe) is written to as it is; a link leads to what is written.

    Raises:
        OSError: it cannot be written; names this file, and leaves no other behind.
    """
    if not target.name or target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    is_plain = not target.exists() or target.is_file()
    own = target.resolve() if is_plain else target
    partly = own.with_name(own.name + ".part")
    try:
        if not is_plain:
            target.write_text(text, encoding="utf-8")
            return
        partly.write_text(text, encoding="utf-8")
        os.replace(partly, own)  # noqa: PTH105 (whole or not at all)
    except OSError as error:
        with suppress(OSError):
            partly.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(target)) from error
