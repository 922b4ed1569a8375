"""The built-in specialists. Each is a Markdown file in this folder."""

from __future__ import annotations

from pathlib import Path

BUILT_IN = Path(__file__).parent
"""Folder of the built-in specialists, for `shared.specialists.load_specialists`."""
