"""Counts in words."""

from __future__ import annotations


def counted(count: int, word: str) -> str:
    """`1 turn`, `2,310 tokens`, `3 processes`."""
    plural = f"{word}es" if word.endswith("s") else f"{word}s"
    return f"{count:,} {word if count == 1 else plural}"
