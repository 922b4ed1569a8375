"""An entry of a journal that another program has written is read as an unreadable message."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store.journal import parse_stream_entry
from handoff_queue.shared.types.errors import MalformedMessage

EVENT = b'{"type": "cancel_requested", "by": "user"}'


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {b"t": b"1790000000000"},
        {b"e": EVENT},
        {b"t": b"soon", b"e": EVENT},
        {b"t": b"", b"e": b""},
        {b"t": b"1" * 5_000, b"e": EVENT},
        {b"x": b"y"},
    ],
)
def test_an_entry_of_a_journal_without_an_event_is_a_message_that_cannot_be_read(
    fields: dict[bytes, bytes],
) -> None:
    with pytest.raises(MalformedMessage):
        parse_stream_entry((b"7-0", fields))
