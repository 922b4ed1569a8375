"""Write the output of a command to stdout or to a file, always in UTF-8.

A file is either complete, or as it was before.
"""

from __future__ import annotations

import errno
import os
import secrets
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from handoff_queue.supervisor.cli.display.terminal import OutputFailed

STDOUT = Path("-")
_DEVICES = (Path("/dev"), Path("/proc"))


def write_out(target: Path, text: str) -> None:
    """Write a text to a file, or to stdout.

    Raises:
        OSError: the file cannot be written. The error names it, and no temporary file is left.
        OutputFailed: the target is a pipe without a reader, or stdout cannot be written.
        BrokenPipe: stdout has no reader.
    """
    if target == STDOUT:
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
    else:
        _write_file(target, (text,))


def write_lines(target: Path, lines: Iterable[str]) -> None:
    """Write lines to a file or to stdout as they come. The file is complete, or as it was before.

    Raises:
        OSError, OutputFailed, BrokenPipe: as `write_out`.
    """
    if target == STDOUT:
        for line in lines:
            write_out(target, line + "\n")
    else:
        _write_file(target, (line + "\n" for line in lines))


def check_target(target: Path) -> None:
    """Refuse a file that cannot be written, before the work for its content begins.

    Raises:
        OSError: the file is a folder, or its folder is missing or read-only.
    """
    if target == STDOUT:
        return
    number = 0
    folder = target.resolve().parent
    if not target.name or target.is_dir():
        number = errno.EISDIR
    elif _is_plain(target) and not folder.exists():
        number = errno.ENOENT
    elif _is_plain(target) and not folder.is_dir():
        number = errno.ENOTDIR
    elif _is_plain(target) and not os.access(folder, os.W_OK):
        number = errno.EACCES
    if number:
        raise OSError(number, os.strerror(number), str(target))


def _write_file(target: Path, texts: Iterable[str]) -> None:
    check_target(target)
    try:
        if _is_plain(target):
            _write_whole(target.resolve(), texts)  # the target of a link
        else:
            with target.open(
                "a", encoding="utf-8"
            ) as target_file:  # append: a log keeps its content
                target_file.writelines(texts)
    except BrokenPipeError as error:
        raise OutputFailed(f"{target}: the pipe has no reader") from error
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error


def _is_plain(target: Path) -> bool:
    """Return whether the file can be replaced: not a device, a pipe or an open file
    (`/dev/stdout`).
    """
    if target.exists() and not target.is_file():
        return False
    return not any(target.is_relative_to(folder) for folder in _DEVICES)


def _write_whole(target: Path, texts: Iterable[str]) -> None:
    partly = target.with_name(f".handoff-{secrets.token_hex(8)}.part")
    part_file = partly.open("x", encoding="utf-8")  # never a file of the user or another writer
    try:
        with part_file:
            part_file.writelines(texts)
        os.replace(partly, target)  # noqa: PTH105 (whole or not at all)
    except BaseException:
        with suppress(OSError):
            partly.unlink(missing_ok=True)
        raise
