"""A file that a command makes for a person: whole, or as it was before."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(target: Path, text: str) -> None:
    """Raises: OSError: it cannot be written."""
    partly = target.with_name(target.name + ".part")
    partly.write_text(text, encoding="utf-8")
    os.replace(partly, target)  # noqa: PTH105 (whole or not at all)
