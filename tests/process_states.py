"""The states of processes."""

from __future__ import annotations

import os
from pathlib import Path


def is_gone(pid: int) -> bool:
    """Return whether the process has ended. A zombie counts as ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except ProcessLookupError:  # it has ended after the file was opened
        return True
    except FileNotFoundError:  # it has just ended, or the system has no such files
        return False
