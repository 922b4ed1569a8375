"""An entry of a journal that another program has written is read as an unreadable message."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store.journal import parse_entry
from handoff_queue.shared.types.errors import MalformedMessage

EVENT = b'{"type": "cancel_requested", "by": "user"}'


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b" ",
        b"1790000000000",
        b"1790000000000 ",
        EVENT,
        b" " + EVENT,
        b"soon " + EVENT,
        b"-1 " + EVENT,
        b"1" * 5_000 + b" " + EVENT,
        b"1790000000000  {}",
        b"1790000000000 \x00\xff",
    ],
)
def test_an_entry_of_a_journal_without_an_event_is_a_message_that_cannot_be_read(
    entry: bytes,
) -> None:
    with pytest.raises(MalformedMessage):
        parse_entry(7, entry)
