"""The module `events` exports each kind of event."""

from __future__ import annotations

from typing import get_args

from handoff_queue.shared.types import events


def test_each_kind_of_event_is_exported() -> None:
    assert {kind.__name__ for kind in get_args(events.Event)} <= set(events.__all__)
