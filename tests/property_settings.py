"""The number of cases of a property test, if it differs from the usual 50."""

from __future__ import annotations

from hypothesis import settings

USUAL = 50
"""Cases of a property test in `make test`. Each run draws the same cases. `make explore` draws 100
new cases, the default of Hypothesis.
"""


def draws(cases: int) -> settings:
    """Return Hypothesis settings for this number of cases, as a decorator.

    A profile that draws fewer or more cases than usual, such as `quick`, scales the number.
    """
    return settings(max_examples=max(1, cases * settings().max_examples // USUAL))
