"""End a process without Python's teardown of modules.

At its end, Python frees every object of every module. In a process with Celery and the Anthropic
SDK, this takes half a second of processor time. A forked process first copies the memory that it
shares. The operating system frees the memory at once.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@contextmanager
def without_teardown() -> Iterator[None]:
    """End the process without a teardown if the block ends normally or with an exit code.

    Python first waits for threads and calls the `atexit` functions. It calls them in reverse order
    of their registration, so enter the block before the imports of the process. After an error, or
    an exit with a text, Python ends the process as usual.
    """
    _register()
    try:
        yield
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            _exit_codes.append(end.code or 0)
        raise
    _exit_codes.append(0)


_exit_codes: list[int] = []
"""The exit code, once it is known. Blocks may be nested: a forked command has two."""


@cache
def _register() -> None:
    """Register `_end` once, in the outermost block."""
    atexit.register(_end)


def _end() -> None:
    """Write buffered output, and end the process. Return if Python must end the process."""
    if not _exit_codes:
        return
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (AttributeError, OSError, ValueError):  # Python reports this, with an exit code
        return
    os._exit(_exit_codes[-1])
