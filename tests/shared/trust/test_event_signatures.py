"""Each event needs a right of the identity that signs it."""

from __future__ import annotations

from typing import get_args

import pytest

from handoff_queue.shared.trust.event_signatures import get_right
from handoff_queue.shared.trust.keyring import USER_RIGHTS
from handoff_queue.shared.types.events import Event
from tests.golden.test_journals import JOURNALS, read


@pytest.mark.parametrize(
    "kind",
    [kind for kind in get_args(Event) if "actor" in kind.model_fields],
    ids=lambda kind: kind.__name__,
)
def test_an_event_of_a_user_needs_a_right_of_users(kind: type[Event]) -> None:
    rights: list[bool] = []
    for path in JOURNALS:
        for recorded in read(path):
            event = recorded.event
            if isinstance(event, kind) and getattr(event, "actor", None):
                rights.append(get_right(event) in USER_RIGHTS)

    assert rights
    assert all(rights)
