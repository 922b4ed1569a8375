"""The text of a wait is parsed back into the same wait. A countdown alone is not a change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.types.presence import HandoffWait, has_activity_changed, parse_wait


@given(st.builds(HandoffWait, st.text(min_size=1), st.none() | st.integers(0, 10_000)))
def test_a_wait_is_read_back_from_its_sentence(wait: HandoffWait) -> None:
    assert parse_wait(str(wait)) == wait


@pytest.mark.parametrize(
    "doing", ["", "thinking", "waiting", "waiting_times", "waiting, search_documents"]
)
def test_another_activity_is_not_a_wait(doing: str) -> None:
    assert parse_wait(doing) is None


def test_only_a_change_of_the_awaited_thing_is_news() -> None:
    assert not has_activity_changed("waiting 11 s: rate limit", "waiting 12 s: rate limit")
    assert has_activity_changed("waiting 11 s: overloaded", "waiting 12 s: rate limit")
    assert has_activity_changed("waiting 12 s: rate limit", "waiting for budget")
    assert has_activity_changed("waiting 12 s: rate limit", "thinking")
    assert has_activity_changed("thinking", "waiting 1 s: rate limit")
    assert not has_activity_changed("thinking", "thinking")
