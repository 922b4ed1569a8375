"""The cases of property tests: their number, if it differs from the usual 50, and their values."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.internal.conjecture import providers

USUAL = 50
"""Cases of a property test in `make test`. Each run draws the same cases. `make explore` draws 100
new cases, the default of Hypothesis.
"""


def draws(cases: int) -> settings:
    """Return Hypothesis settings for this number of cases, as a decorator.

    A profile that draws fewer or more cases than usual, such as `quick`, scales the number.
    """
    return settings(max_examples=max(1, cases * settings().max_examples // USUAL))


def leave_out_constants_of_modules() -> None:
    """Draw no constants from the source of imported modules.

    Hypothesis reads the constants of all imported modules of this repository. A run of one file
    would draw other cases than a run of all tests, and a change of any constant would change the
    cases. Hypothesis also compares all constants with each strategy, which took three seconds of
    processor time in one test.
    """
    providers._get_local_constants = lambda: providers._local_constants  # stays empty
