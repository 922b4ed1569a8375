"""The number of cases of a property test, if it differs from the usual hundred."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100
"""Default of Hypothesis."""


def draws(cases: int) -> settings:
    """Return Hypothesis settings for this number of cases, as a decorator.

    A profile that draws fewer cases than usual, such as `quick`, scales the number down.
    """
    return settings(max_examples=max(1, cases * settings().max_examples // USUAL))
