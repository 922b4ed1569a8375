"""How many cases a property test draws, where it wants more or fewer than the usual hundred."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100
"""Hypothesis's own."""


def draws(cases: int) -> settings:
    """So many of them, to stand above a test; in a profile that draws fewer than usual, as
    `quick` does, fewer by the same factor.
    """
    return settings(max_examples=max(1, cases * settings().max_examples // USUAL))
