"""The built-in specialists: one Markdown file each."""

from __future__ import annotations

from pathlib import Path

BUILT_IN = Path(__file__).parent
"""The folder that `shared.specialists.load_specialists` reads first."""
