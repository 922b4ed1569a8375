"""An evaluation names its highest cost before its first job."""

from __future__ import annotations

import pytest

from handoff_queue.supervisor.cli.evaluation_options import describe_worst_case


@pytest.mark.parametrize(
    ("limit", "is_free", "words"),
    [
        (None, True, "nothing: the offline model answers"),
        ("$2", False, "at most $2"),
        (None, False, "as much as its jobs need: set a limit with --max-usd"),
    ],
)
def test_an_evaluation_names_its_highest_cost_or_the_option_that_limits_it(
    limit: str | None, is_free: bool, words: str
) -> None:
    assert describe_worst_case(limit, is_free=is_free) == words
