"""Figures in words. Pure."""

from __future__ import annotations


def times(more: float, less: float) -> str:
    """`5.2 times`; of nothing there is no quotient."""
    return f"{more / less:.1f} times" if less else "many times"
