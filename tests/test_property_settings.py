"""Property tests draw the same cases in a run of one file and in a run of all tests."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.internal.conjecture.providers import HypothesisProvider


def test_no_case_depends_on_the_constants_of_the_imported_modules() -> None:
    constants = HypothesisProvider(None)._local_constants

    assert settings().derandomize == (len(constants) == 0)
