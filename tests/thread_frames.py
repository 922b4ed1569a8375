"""Count the threads of this process that run a function. A test waits so for a blocked thread."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any


def threads_in(function: Callable[..., Any], called_by: Callable[..., Any] | None = None) -> int:
    """Return the number of threads that run `function`.

    Args:
        called_by: count only calls that this function makes itself; None: all calls.
    """
    code = code_of(function)
    caller = None if called_by is None else code_of(called_by)
    count = 0
    for innermost in sys._current_frames().values():
        frame: FrameType | None = innermost
        while frame is not None and not _is_call(frame, code, caller):
            frame = frame.f_back
        count += frame is not None
    return count


def code_of(function: Callable[..., Any]) -> CodeType:
    """Return the code of a function that is written in Python."""
    code: CodeType = inspect.unwrap(function).__code__
    return code


def _is_call(frame: FrameType, code: CodeType, caller: CodeType | None) -> bool:
    if frame.f_code is not code:
        return False
    return caller is None or (frame.f_back is not None and frame.f_back.f_code is caller)
